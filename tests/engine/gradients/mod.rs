//! Gradients through the tape: every op against central differences in f64, and the fused f32 and 16-bit attention
//! against the one made of matrix products.

mod attention;
mod elementwise;
mod experts;
mod heads;
mod losses;
mod norms;
mod products;
mod rotary;

use vramlab::allocator::Settings;
use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::model::Category;
use vramlab::train::{Context, Libraries, Memory, OpResult, RotaryTables, Shape, Tensor};
use vramlab::units::Bytes;

fn context() -> Context {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::mib(256)), threads: Some(1) }).unwrap();
    Context::new(Memory::new(Box::new(device), Settings::default(), Box::new(())), Libraries::PROCESSOR)
}

fn values(seed: u64, n: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "any number will do")]
            let unit = (state >> 11) as f64 / (1_u64 << 53) as f64;
            2.0 * unit - 1.0
        })
        .collect()
}

fn encode(values: &[f64], dtype: DType) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "to the tensor's type")]
    match dtype {
        DType::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F32 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
        DType::I64 => values.iter().flat_map(|v| (*v as i64).to_le_bytes()).collect(),
        other => panic!("{other:?}"),
    }
}

fn decode(cx: &Context, tensor: &Tensor) -> Vec<f64> {
    let mut bytes = vec![0; usize::try_from(tensor.bytes().get()).unwrap()];
    cx.memory().read(tensor, &mut bytes).unwrap();
    match tensor.dtype() {
        DType::F64 => bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        DType::F32 => bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
        other => panic!("{other:?}"),
    }
}

fn tensor(cx: &Context, shape: &[usize], dtype: DType, values: &[f64]) -> Tensor {
    let shape = shape.iter().fold(Shape::new(&[]), |shape, dim| shape.with_appended(*dim).unwrap());
    let tensor = cx.memory().tensor(shape, dtype, Category::Other, "test").unwrap();
    cx.memory().write(&tensor, &encode(values, dtype)).unwrap();
    tensor
}

fn one(cx: &Context, dtype: DType) -> Tensor {
    tensor(cx, &[], dtype, &[1.0])
}

/// Cross-entropy against fixed targets turns any output into a scalar.
fn loss(cx: &mut Context, output: &Tensor) -> OpResult<Tensor> {
    let (rows, cols) = (output.numel() / output.shape().last(), output.shape().last());
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let targets: Vec<f64> = (0..rows).map(|r| ((r * 7 + 3) % cols) as f64).collect();
    let targets = tensor(cx, &[rows], DType::I64, &targets);
    cx.cross_entropy(output, &targets)
}

type Program = dyn Fn(&mut Context, &[Tensor]) -> OpResult<Tensor>;

/// Gradients of the program's loss with respect to all parameters, in `dtype`.
fn gradients(shapes: &[&[usize]], dtype: DType, amp: Option<DType>, program: &Program) -> Vec<Vec<f64>> {
    let mut cx = context();
    let parameters = parameters(&mut cx, shapes, dtype);
    let scalar = cx
        .autocast(amp, |cx| {
            let output = program(cx, &parameters)?;
            loss(cx, &output)
        })
        .unwrap();
    let seed = one(&cx, scalar.dtype());
    cx.backward(&scalar, &seed).unwrap();
    parameters.iter().map(|p| decode(&cx, cx.gradient(p).unwrap())).collect()
}

fn parameters(cx: &mut Context, shapes: &[&[usize]], dtype: DType) -> Vec<Tensor> {
    let tensors = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| tensor(cx, shape, dtype, &values(i as u64 + 1, shape.iter().product())));
    let tensors: Vec<Tensor> = tensors.collect();
    tensors.into_iter().enumerate().map(|(i, t)| cx.parameter(t, &format!("p{i}"))).collect()
}

/// Compares the tape's gradients with central differences.
fn check(shapes: &[&[usize]], program: &Program) {
    const STEP: f64 = 1e-5;
    let analytic = gradients(shapes, DType::F64, None, program);
    let mut cx = context();
    let parameters = parameters(&mut cx, shapes, DType::F64);
    for (p, shape) in shapes.iter().enumerate() {
        let base = values(p as u64 + 1, shape.iter().product());
        for i in 0..base.len() {
            let mut at = |offset: f64| {
                let mut moved = base.clone();
                moved[i] += offset;
                cx.memory().write(&parameters[p], &encode(&moved, DType::F64)).unwrap();
                let scalar = cx
                    .no_grad(|cx| {
                        let output = program(cx, &parameters)?;
                        loss(cx, &output)
                    })
                    .unwrap();
                decode(&cx, &scalar)[0]
            };
            let numeric = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            at(0.0);
            let ours = analytic[p][i];
            assert!(
                (ours - numeric).abs() <= 1e-7 + 1e-6 * numeric.abs(),
                "parameter {p}, element {i}: {ours} by the tape, {numeric} by differences"
            );
        }
    }
}

/// Frequencies of the rotary embedding of heads of `size`.
fn rotary_tables(cx: &mut Context, tokens: &Tensor, size: usize, dtype: DType) -> OpResult<RotaryTables> {
    let frequencies = tensor(cx, &[size / 2], DType::F32, &values(5, size / 2));
    let positions = cx.positions(tokens.shape().last())?;
    cx.rotary_tables(&positions, &frequencies, dtype, 1.25)
}
