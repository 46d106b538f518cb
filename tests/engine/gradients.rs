//! Gradients through the tape: every op against central differences in f64, and the fused f32 and 16-bit attention
//! against the one made of matrix products.

use std::rc::Rc;

use vramlab::allocator::Settings;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::{DType, Earlier};
use vramlab::model::Category;
use vramlab::train::{
    AttentionKernel, ClampedExperts, Context, EagerScores, ExpertScores, GroupRule, Interrupt, Libraries, LossHead,
    MaskShape, Memory, NextLabels, OpResult, PositionCount, PositionScale, Repeatable, RouterRule, RunningStatistics,
    Shape, SideBySide, Tensor, Turn, checkpoint,
};
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

#[test]
fn linear_with_and_without_bias() {
    check(&[&[5, 4], &[3, 4], &[3]], &|cx, p| cx.linear(&p[0], &p[1], Some(&p[2])));
    check(&[&[2, 3, 4], &[6, 4]], &|cx, p| cx.linear(&p[0], &p[1], None));
}

/// `Conv1D` of transformers.
#[test]
fn a_weight_of_inputs_and_outputs_has_the_gradients_of_its_formula() {
    check(&[&[2, 5, 4], &[4, 3], &[3]], &|cx, p| cx.addmm(&p[2], &p[0], &p[1]));
    check(&[&[4, 3]], &|cx, p| {
        let [input, bias] =
            [(&[5, 4][..], 20), (&[3], 3)].map(|(dims, len)| tensor(cx, dims, p[0].dtype(), &values(7, len)));
        cx.addmm(&bias, &input, &p[0])
    });
}

#[test]
fn activations() {
    check(&[&[4, 6]], &|cx, p| cx.relu(&p[0]));
    check(&[&[4, 6]], &|cx, p| cx.gelu(&p[0], true));
    check(&[&[4, 6]], &|cx, p| cx.gelu(&p[0], false));
    check(&[&[4, 6]], &|cx, p| cx.new_gelu(&p[0]));
}

#[test]
fn gelu_op_by_op_is_that_of_one_op() {
    let mut cx = context();
    let input = tensor(&cx, &[4, 6], DType::F64, &values(1, 24));
    let [by_one, by_ops] = [cx.gelu(&input, true), cx.new_gelu(&input)].map(|made| decode(&cx, &made.unwrap()));
    for (one, ops) in by_one.iter().zip(&by_ops) {
        assert!((one - ops).abs() < 1e-12, "{one} for {ops}");
    }
}

#[test]
fn convolutions_and_their_transposes() {
    check(&[&[2, 3, 5, 5], &[4, 3, 3, 3], &[4]], &|cx, p| cx.conv2d(&p[0], &p[1], Some(&p[2]), 2, 1));
    check(&[&[2, 3, 4, 4], &[2, 3, 1, 1]], &|cx, p| cx.conv2d(&p[0], &p[1], None, 1, 0));
    check(&[&[2, 3, 3, 3], &[3, 2, 4, 4]], &|cx, p| cx.conv_transpose2d(&p[0], &p[1], 2, 1));
}

#[test]
fn batch_norm_in_all_three_arguments() {
    check(&[&[3, 2, 2, 3], &[2], &[2]], &|cx, p| {
        let running = RunningStatistics {
            mean: tensor(cx, &[2], DType::F64, &[0.0; 2]),
            variance: tensor(cx, &[2], DType::F64, &[1.0; 2]),
            batches: tensor(cx, &[], DType::I64, &[0.0]),
        };
        cx.batch_norm(&p[0], &p[1], &p[2], &running)
    });
}

#[test]
fn batch_norm_by_running_statistics_in_all_three_arguments() {
    check(&[&[3, 2, 2, 3], &[2], &[2]], &|cx, p| {
        let running = RunningStatistics {
            mean: tensor(cx, &[2], DType::F64, &[0.3, -0.2]),
            variance: tensor(cx, &[2], DType::F64, &[1.7, 0.4]),
            batches: tensor(cx, &[], DType::I64, &[5.0]),
        };
        cx.evaluating(|cx| cx.batch_norm(&p[0], &p[1], &p[2], &running))
    });
}

#[test]
fn pooling_and_means() {
    check(&[&[2, 2, 5, 5]], &|cx, p| cx.max_pool2d(&p[0], 3, 2, 1));
    check(&[&[2, 3, 2, 4]], &|cx, p| cx.mean(&p[0], 2..4));
    check(&[&[2, 3, 4]], &|cx, p| cx.mean(&p[0], 1..2));
}

#[test]
fn functions_in_place() {
    check(&[&[4, 6]], &|cx, p| cx.tanh(&p[0]));
    check(&[&[4, 6]], &|cx, p| {
        let copy = cx.scale(&p[0], 1.5, "copy")?;
        cx.relu_in_place(copy)
    });
    check(&[&[4, 6], &[4, 6]], &|cx, p| {
        let copy = cx.scale(&p[0], 1.5, "copy")?;
        let sum = cx.add_in_place(copy, &p[1])?;
        cx.leaky_relu_in_place(sum, 0.2)
    });
}

#[test]
fn binary_cross_entropy_of_logits() {
    let mut cx = context();
    let logits = parameters(&mut cx, &[&[6]], DType::F64).remove(0);
    let target = tensor(&cx, &[6], DType::F64, &[1.0, 0.0, 1.0, 0.25, 0.0, 1.0]);
    let scalar = cx.binary_cross_entropy_with_logits(&logits, &target).unwrap();
    let seed = one(&cx, DType::F64);
    cx.backward(&scalar, &seed).unwrap();
    let (x, t) = (values(1, 6), decode(&cx, &target));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let losses = x.iter().zip(&t).map(|(&x, &t)| -t * sigmoid(x).ln() - (1.0 - t) * (1.0 - sigmoid(x)).ln());
    assert!((decode(&cx, &scalar)[0] - losses.sum::<f64>() / 6.0).abs() < 1e-12);
    for ((gradient, x), t) in decode(&cx, cx.gradient(&logits).unwrap()).iter().zip(x).zip(t) {
        assert!((gradient - (sigmoid(x) - t) / 6.0).abs() < 1e-12);
    }
}

#[test]
fn layer_norm_in_all_three_arguments() {
    check(&[&[3, 7], &[7], &[7]], &|cx, p| cx.layer_norm(&p[0], &p[1], &p[2], 1e-5));
}

#[test]
fn sums_broadcast_and_repeated() {
    check(&[&[2, 3, 4], &[3, 4]], &|cx, p| cx.add(&p[0], &p[1]));
    // A tensor that is used twice collects both gradients, and so does a parameter.
    check(&[&[3, 4]], &|cx, p| {
        let twice = cx.add(&p[0], &p[0])?;
        let activated = cx.gelu(&twice, true)?;
        cx.add(&activated, &twice)
    });
    check(&[&[3, 5]], &|cx, p| cx.scale(&p[0], -1.75, "scaled"));
}

/// What DoRA scales: quotients by constants, differences from them, products of each row with a vector, factors less 1.
#[test]
fn outputs_scaled_column_by_column() {
    fn constant(cx: &Context) -> Tensor {
        tensor(cx, &[4], DType::F64, &[0.7, -1.3, 2.1, 0.4])
    }
    check(&[&[2, 3, 4]], &|cx, p| cx.subtract_columns(&p[0], &constant(cx), "difference"));
    check(&[&[4], &[2, 3, 4]], &|cx, p| cx.multiply_columns(&p[0], &p[1], "products"));
    check(&[&[2, 3, 4]], &|cx, p| cx.multiply_columns(&constant(cx), &p[0], "products"));
    check(&[&[4], &[2, 3, 4]], &|cx, p| {
        let factors = cx.quotient(&p[0], &constant(cx), "factors")?;
        let less = cx.add_number(&factors, -1.0)?;
        let twice = cx.multiply_columns(&factors, &p[1], "products")?;
        let more = cx.multiply_columns(&less, &twice, "products of products")?;
        cx.add(&more, &twice)
    });
}

#[test]
fn embedding_tied_to_the_head() {
    check(&[&[5, 4]], &|cx, p| {
        let tokens = tensor(cx, &[2, 3], DType::I64, &[0.0, 3.0, 3.0, 1.0, 4.0, 0.0]);
        let x = cx.embedding(&p[0], &tokens)?;
        cx.linear(&x, &p[0], None)
    });
}

fn attend(heads: usize, causal: bool) -> impl Fn(&mut Context, &[Tensor]) -> OpResult<Tensor> {
    move |cx, p| {
        let qkv = cx.linear(&p[0], &p[1], None)?;
        let y = cx.attention(&qkv, heads, causal)?;
        cx.merge_heads(&y)
    }
}

#[test]
fn attention_by_matrix_products() {
    for causal in [true, false] {
        check(&[&[2, 3, 4], &[12, 4]], &attend(2, causal));
    }
}

#[test]
fn fused_attention_has_the_gradients_of_matrix_products() {
    let sizes = [(8, 2, 5), (4, 3, 33), (64, 1, 40), (6, 2, 9)];
    for ((head_size, heads, rows), causal) in sizes.into_iter().flat_map(|s| [(s, true), (s, false)]) {
        let width = heads * head_size;
        let shapes: [&[usize]; 2] = [&[2, rows, width], &[3 * width, width]];
        let exact = gradients(&shapes, DType::F64, None, &attend(heads, causal));
        for (amp, tolerance) in [(None, 2e-5), (Some(DType::F16), 2e-2), (Some(DType::Bf16), 1e-1)] {
            let ours = gradients(&shapes, DType::F32, amp, &attend(heads, causal));
            for (ours, exact) in ours.iter().zip(&exact) {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (a, b) in ours.iter().zip(exact) {
                    assert!((a - b).abs() <= tolerance * largest, "head size {head_size}, {amp:?}: {a} for {b}");
                }
            }
        }
    }
}

#[test]
fn math_attention_has_them_in_sixteen_bits_too() {
    for (heads, rows, causal) in [(2, 5, true), (1, 4, true), (3, 33, false)] {
        let width = heads * 8;
        let shapes: [&[usize]; 2] = [&[2, rows, width], &[3 * width, width]];
        let exact = gradients(&shapes, DType::F64, None, &attend(heads, causal));
        for (amp, tolerance) in [(None, 2e-5), (Some(DType::F16), 2e-2), (Some(DType::Bf16), 1e-1)] {
            let ours = gradients(&shapes, DType::F32, amp, &move |cx, p| {
                cx.choose_attention(AttentionKernel::Math);
                attend(heads, causal)(cx, p)
            });
            for (ours, exact) in ours.iter().zip(&exact) {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (a, b) in ours.iter().zip(exact) {
                    assert!((a - b).abs() <= tolerance * largest, "{heads} heads, {amp:?}: {a} for {b}");
                }
            }
        }
    }
}

struct Layer(Vec<Tensor>);

impl Repeatable for Layer {
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let p = &self.0;
        let normalised = cx.layer_norm(x, &p[0], &p[1], 1e-5)?;
        let hidden = cx.linear(&normalised, &p[2], Some(&p[3]))?;
        let activated = cx.gelu(&hidden, true)?;
        cx.add(x, &activated)
    }
}

#[test]
fn a_checkpointed_segment_has_the_gradients_of_a_plain_one() {
    let shapes: [&[usize]; 5] = [&[3, 4], &[4], &[4], &[4, 4], &[4]];
    check(&shapes, &|cx, p| {
        let layer: Rc<dyn Repeatable> = Rc::new(Layer(p[1..].to_vec()));
        let x = checkpoint(cx, &layer, &p[0])?;
        checkpoint(cx, &layer, &x)
    });
    let run = |recompute: bool| {
        gradients(&shapes, DType::F32, Some(DType::Bf16), &move |cx, p| {
            let layer: Rc<dyn Repeatable> = Rc::new(Layer(p[1..].to_vec()));
            if recompute { checkpoint(cx, &layer, &p[0]) } else { layer.forward(cx, &p[0]) }
        })
    };
    assert_eq!(run(true), run(false), "to the bit");
}

#[test]
fn a_norm_by_the_root_of_the_mean_square_has_the_gradients_of_its_formula() {
    let shapes: [&[usize]; 2] = [&[2, 3, 5], &[5]];
    check(&shapes, &|cx, p| cx.rms_norm(&p[0], &p[1], 1e-6));
    // A residual beside it: the norm's two gradients of its input meet a third one.
    check(&shapes, &|cx, p| {
        let y = cx.rms_norm(&p[0], &p[1], 1e-6)?;
        cx.add(&p[0], &y)
    });
}

#[test]
fn a_norm_whose_weight_is_added_to_one_has_the_gradients_of_its_formula() {
    check(&[&[2, 3, 5], &[5]], &|cx, p| cx.centred_rms_norm(&p[0], &p[1], 1e-6));
}

/// Four heads of queries over two of keys, op for op, with a cap and a window.
#[test]
fn eager_attention_has_the_gradients_of_its_formula() {
    for cap in [None, Some(0.7)] {
        check(&[&[2, 5, 16], &[2, 5, 8], &[2, 5, 8]], &move |cx, p| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
            let shape = MaskShape { batch: 2, rows: 5, earlier: Earlier::Window(3), padding: false };
            let mask = cx.attention_mask(shape, p[0].dtype())?;
            let (attended, _) = cx.eager_attention(
                [&q, &k, &v],
                EagerScores { scale: 0.4, cap, mask: &mask, dropout: 0.0, plain: cap.is_none(), turned: cap.is_none() },
            )?;
            Ok(attended)
        });
    }
}

/// Four heads of queries over two of keys or over as many, with one more logit for each.
#[test]
fn attention_with_sinks_has_the_gradients_of_its_formula() {
    for kv in [2, 4] {
        let of_keys: &[usize] = &[2, 5, 4 * kv];
        check(&[&[2, 5, 16], of_keys, of_keys, &[4]], &move |cx, p| {
            // Products leave the gradient of keys in the order of a head's elements.
            let k = cx.scale(&p[1], 1.0, "keys")?;
            let [q, k, v] = [&p[0], &k, &p[2]].map(|part| cx.by_head_size(part, 4));
            let shape = MaskShape { batch: 2, rows: 5, earlier: Earlier::Window(3), padding: false };
            let mask = &cx.attention_mask(shape, p[0].dtype())?;
            let by = EagerScores { scale: 0.4, cap: None, mask, dropout: 0.0, plain: false, turned: false };
            Ok(cx.attention_with_sinks([&q, &k, &v], &p[3], by)?.0)
        });
    }
}

/// A sink with no weight leaves attention unchanged.
#[test]
fn sinks_take_their_share_of_the_weights() {
    let mut cx = context();
    let [q, k, v] = [1, 2, 3].map(|seed| tensor(&cx, &[1, 3, 4], DType::F64, &values(seed, 12)));
    let [q, k, v] = [q, k, v].map(|part| cx.by_head_size(&part, 2));
    let mask =
        &cx.attention_mask(MaskShape { batch: 1, rows: 3, earlier: Earlier::All, padding: false }, DType::F64).unwrap();
    let by = EagerScores { scale: 0.5, cap: None, mask, dropout: 0.0, plain: false, turned: false };
    let (plain, _) = cx.eager_attention([&q, &k, &v], by).unwrap();
    let mut with = |sinks: [f64; 2]| {
        let sinks = tensor(&cx, &[2], DType::F64, &sinks);
        let (attended, _) = cx.attention_with_sinks([&q, &k, &v], &sinks, by).unwrap();
        decode(&cx, &attended)
    };
    let (none, some) = (with([-1e9; 2]), with([-1e9, 2.0]));
    let plain = decode(&cx, &plain);
    for (ours, theirs) in none.iter().zip(&plain) {
        assert!((ours - theirs).abs() < 1e-12, "{ours} for {theirs}");
    }
    // The first row of the second head has one score and the sink.
    let [q, k] = [1, 2].map(|seed| values(seed, 12));
    let score = 0.5 * (q[2] * k[2] + q[3] * k[3]);
    let share = score.exp() / (score.exp() + 2.0_f64.exp());
    assert!((some[2] - share * plain[2]).abs() < 1e-12 && (some[0] - plain[0]).abs() < 1e-12);
}

/// Two of six experts for each row, from the two of three groups with the largest weights.
#[test]
fn experts_in_groups_have_the_gradients_of_their_formula() {
    let rule = RouterRule { chosen: 2, normalises: true, narrows: false, widens: false, of_chosen: false };
    let sigmoid = GroupRule { scores: ExpertScores::Sigmoid, groups: 3, chosen_groups: 2, factor: 2.5 };
    let program = move |cx: &mut Context, p: &[Tensor]| {
        let rows = cx.as_matrix(&p[0]);
        let larger = cx.scale(&rows, 4.0, "larger rows")?;
        let logits = cx.linear(&larger, &p[1], None)?;
        let correction = cx.buffer("correction", Shape::new(&[6]), DType::F32, 0.0)?;
        let routes = cx.routes_by_sigmoid(logits, (rule, sigmoid), &correction)?;
        cx.experts(&rows, &routes, [&p[2], &p[3]], false)
    };
    let shapes: [&[usize]; 4] = [&[2, 3, 4], &[6, 4], &[6, 6, 4], &[6, 4, 3]];
    check(&shapes, &program);

    // The same by hand.
    let p: Vec<Vec<f64>> = shapes.iter().zip(1..).map(|(shape, seed)| values(seed, shape.iter().product())).collect();
    let mut cx = context();
    let given: Vec<Tensor> = shapes.iter().zip(&p).map(|(shape, p)| tensor(&cx, shape, DType::F64, p)).collect();
    let made = program(&mut cx, &given).unwrap();
    let (mut outside, mut expected) = (0, Vec::new());
    for x in p[0].chunks(4) {
        let sigmoid_of = |e: usize| 1.0 / (1.0 + (-4.0 * (0..4).map(|i| x[i] * p[1][4 * e + i]).sum::<f64>()).exp());
        let weights: Vec<f64> = (0..6).map(sigmoid_of).collect();
        let mut groups = [0, 1, 2];
        groups.sort_by(|a, b| (weights[2 * b] + weights[2 * b + 1]).total_cmp(&(weights[2 * a] + weights[2 * a + 1])));
        let by_weight = |all: &mut Vec<usize>| all.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
        let mut all: Vec<usize> = (0..6).collect();
        let mut inside: Vec<usize> = groups[..2].iter().flat_map(|g| [2 * g, 2 * g + 1]).collect();
        by_weight(&mut all);
        by_weight(&mut inside);
        outside += usize::from(all[..2] != inside[..2]);
        let mut sum = vec![0.0; 4];
        for &e in &inside[..2] {
            let share = 2.5 * weights[e] / (weights[inside[0]] + weights[inside[1]]);
            let both: Vec<f64> = (0..6).map(|j| (0..4).map(|i| x[i] * p[2][24 * e + 4 * j + i]).sum()).collect();
            for (o, sum) in sum.iter_mut().enumerate() {
                let hidden =
                    (0..3).map(|j| both[j] / (1.0 + (-both[j]).exp()) * both[3 + j] * p[3][12 * e + 3 * o + j]);
                *sum += share * hidden.sum::<f64>();
            }
        }
        expected.extend(sum);
    }
    assert!(outside > 0, "groups decide nothing here");
    for (ours, theirs) in decode(&cx, &made).iter().zip(&expected) {
        assert!((ours - theirs).abs() < 1e-12, "{ours} for {theirs}");
    }
}

/// All of three experts for each row, two of which have a share.
#[test]
fn experts_of_all_rows_have_the_gradients_of_their_formula() {
    let program = move |cx: &mut Context, p: &[Tensor]| {
        let logits = cx.linear(&p[0], &p[1], None)?;
        let shares = cx.shares_of_all_experts(&logits, 2)?;
        let scaled = cx.rows_for_all_experts(&p[0], &shares)?;
        let outputs = cx.all_experts(&scaled, [&p[2], &p[3]])?;
        cx.sum_over_experts(&outputs, 3)
    };
    let shapes: [&[usize]; 4] = [&[5, 4], &[3, 4], &[3, 4, 6], &[3, 3, 4]];
    check(&shapes, &program);

    // The same by hand.
    let p: Vec<Vec<f64>> = shapes.iter().zip(1..).map(|(shape, seed)| values(seed, shape.iter().product())).collect();
    let mut cx = context();
    let given: Vec<Tensor> = shapes.iter().zip(&p).map(|(shape, p)| tensor(&cx, shape, DType::F64, p)).collect();
    let made = program(&mut cx, &given).unwrap();
    let made = decode(&cx, &made);
    for (row, x) in p[0].chunks(4).enumerate() {
        let dot = |a: &[f64], column: usize, cols: usize, of: &[f64]| -> f64 {
            a.iter().enumerate().map(|(i, a)| a * of[i * cols + column]).sum()
        };
        let logits: Vec<f64> = p[1].chunks(4).map(|of| x.iter().zip(of).map(|(a, b)| a * b).sum()).collect();
        let least = logits.iter().copied().fold(f64::INFINITY, f64::min);
        let mut sum = [0.0; 4];
        for (expert, logit) in logits.iter().enumerate().filter(|(_, logit)| **logit > least) {
            let share = 1.0 / (1.0 + (-logit).exp());
            let scaled: Vec<f64> = x.iter().map(|x| x * share).collect();
            let (gate_up, down) = (&p[2][expert * 24..][..24], &p[3][expert * 12..][..12]);
            let both: Vec<f64> = (0..6).map(|column| dot(&scaled, column, 6, gate_up)).collect();
            let hidden: Vec<f64> = (0..3).map(|i| both[3 + i] * both[i] / (1.0 + (-both[i]).exp())).collect();
            sum.iter_mut().enumerate().for_each(|(column, sum)| *sum += dot(&hidden, column, 4, down));
        }
        for (ours, theirs) in made[row * 4..][..4].iter().zip(sum) {
            assert!((ours - theirs).abs() < 1e-12, "row {row}: {ours} for {theirs}");
        }
    }
}

/// Two of four experts for each row, whose weights are divided by their sum, or by something larger.
#[test]
fn weights_divided_by_their_sum_have_the_gradients_of_their_formula() {
    for least in [1e-12, 0.75] {
        let program = move |cx: &mut Context, p: &[Tensor]| {
            let larger = cx.scale(&p[0], 2.0, "larger rows")?;
            let logits = cx.linear(&larger, &p[1], None)?;
            let routes = cx.routes_by_corrected_softmax(logits, (2, least), DType::F64)?;
            cx.experts(&p[0], &routes, [&p[2], &p[3]], false)
        };
        let shapes: [&[usize]; 4] = [&[6, 4], &[4, 4], &[4, 6, 4], &[4, 4, 3]];
        check(&shapes, &program);
    }
    let mut cx = context();
    let logits = tensor(&cx, &[1, 4], DType::F64, &[2.0_f64.ln(), 0.0, 0.0, 4.0_f64.ln()]);
    for (least, theirs) in [(1e-12, [2.0 / 3.0, 1.0 / 3.0]), (0.9, [0.5 / 0.9, 0.25 / 0.9])] {
        let routes = cx.routes_by_corrected_softmax(logits.clone(), (2, least), DType::F64).unwrap();
        for (ours, theirs) in decode(&cx, routes.shares()).iter().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-6, "{ours} for {theirs}");
        }
    }
}

/// Two of three experts for each row, some of whose gates are clamped.
#[test]
fn clamped_experts_have_the_gradients_of_their_formula() {
    let rule = RouterRule { chosen: 2, normalises: false, narrows: false, widens: false, of_chosen: true };
    let program = move |cx: &mut Context, p: &[Tensor]| {
        let rows = cx.as_matrix(&p[0]);
        let logits = cx.linear(&rows, &p[1], Some(&p[2]))?;
        let routes = cx.routes(logits, rule, DType::F32)?;
        let wide = cx.scale(&rows, 12.0, "larger rows")?;
        let of = ClampedExperts { gate_up: &p[3], gate_up_bias: &p[4], down: &p[5], down_bias: &p[6] };
        cx.clamped_experts(&wide, &routes, of)
    };
    let shapes: [&[usize]; 7] = [&[2, 3, 4], &[3, 4], &[3], &[3, 4, 6], &[3, 6], &[3, 3, 4], &[3, 4]];
    check(&shapes, &program);

    // The same by hand.
    let p: Vec<Vec<f64>> = shapes.iter().zip(1..).map(|(shape, seed)| values(seed, shape.iter().product())).collect();
    let mut cx = context();
    let given: Vec<Tensor> = shapes.iter().zip(&p).map(|(shape, p)| tensor(&cx, shape, DType::F64, p)).collect();
    let made = program(&mut cx, &given).unwrap();
    let (mut clamped, mut expected) = (0, Vec::new());
    for x in p[0].chunks(4) {
        let logits: Vec<f64> = (0..3).map(|e| p[2][e] + (0..4).map(|i| x[i] * p[1][4 * e + i]).sum::<f64>()).collect();
        let mut order = [0, 1, 2];
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let all = logits[order[0]].exp() + logits[order[1]].exp();
        let mut sum = vec![0.0; 4];
        for &e in &order[..2] {
            let both: Vec<f64> = (0..6)
                .map(|j| p[4][6 * e + j] + (0..4).map(|i| 12.0 * x[i] * p[3][24 * e + 6 * i + j]).sum::<f64>())
                .collect();
            clamped += both.iter().filter(|value| value.abs() > 7.0).count();
            let hidden: Vec<f64> = (0..3)
                .map(|j| {
                    let (gate, up) = (both[2 * j].min(7.0), both[2 * j + 1].clamp(-7.0, 7.0));
                    (up + 1.0) * gate / (1.0 + (-1.702 * gate).exp())
                })
                .collect();
            for (c, sum) in sum.iter_mut().enumerate() {
                let out = p[6][4 * e + c] + (0..3).map(|j| hidden[j] * p[5][12 * e + 4 * j + c]).sum::<f64>();
                *sum += out * logits[e].exp() / all;
            }
        }
        expected.extend(sum);
    }
    assert!(clamped > 5, "{clamped} of them are clamped");
    for (ours, theirs) in decode(&cx, &made).iter().zip(&expected) {
        assert!((ours - theirs).abs() < 1e-9, "{ours} for {theirs}");
    }
}

#[test]
fn a_loss_by_hand_has_the_gradients_of_its_formula() {
    for batch in [1, 2] {
        check(&[&[batch, 3, 5]], &move |cx, p| {
            let labels = tensor(cx, &[batch, 3], DType::I64, &vec![2.0; 3 * batch]);
            cx.choose_causal(LossHead::Shifted, false);
            cx.loss_of_next(&p[0], NextLabels { labels: &labels, lengths: None })
        });
    }
}

#[test]
fn a_gated_mlp_has_the_gradients_of_its_formula() {
    let shapes: [&[usize]; 4] = [&[2, 3, 4], &[6, 4], &[6, 4], &[4, 6]];
    check(&shapes, &|cx, p| {
        let gate = cx.linear(&p[0], &p[1], None)?;
        let gate = cx.silu(&gate)?;
        let up = cx.linear(&p[0], &p[2], None)?;
        let hidden = cx.mul(&gate, &up)?;
        cx.linear(&hidden, &p[3], None)
    });
    check(&shapes, &|cx, p| {
        let [gate, up] = [&p[1], &p[2]].map(|weight| cx.linear(&p[0], weight, None));
        let hidden = cx.gated_silu(&gate?, &up?)?;
        cx.linear(&hidden, &p[3], None)
    });
}

#[test]
fn rows_are_not_looked_up_by_indices_of_four_dimensions() {
    let mut cx = context();
    let table = tensor(&cx, &[3, 2], DType::F64, &values(1, 6));
    let indices = tensor(&cx, &[1, 1, 1, 2], DType::I64, &[0.0, 1.0]);
    for looked_up in [cx.embedding(&table, &indices), cx.indexed_rows(&table, &indices)] {
        let Err(Interrupt::Failed(error)) = looked_up else { panic!("looked up") };
        assert_eq!(error.to_string(), "indices of four dimensions have no rows to look up; give them fewer");
    }
}

#[test]
fn frozen_norms_hand_gradients_on() {
    check(&[&[2, 3, 8]], &|cx, p| {
        let [weight, bias] = [7, 8].map(|seed| tensor(cx, &[8], p[0].dtype(), &values(seed, 8)));
        cx.layer_norm(&p[0], &weight, &bias, 1e-5)
    });
}

#[test]
fn norms_in_f32_have_the_gradients_of_their_formula() {
    check(&[&[2, 3, 8], &[8]], &|cx, p| {
        let normalised = cx.wide_layer_norm(&p[0], &p[1], 1e-5)?;
        cx.mul(&normalised, &p[0])
    });
    // Heads with weights of their own.
    check(&[&[2, 3, 8], &[2, 4]], &|cx, p| {
        let apart = cx.heads_apart(&p[0], 4, &SideBySide::default());
        let normalised = cx.wide_layer_norm(&apart, &p[1], 1e-5)?;
        let heads = cx.by_head_size(&normalised, 4);
        cx.merge_heads(&heads)
    });
    check(&[&[2, 3, 8]], &|cx, p| cx.plain_layer_norm(&p[0], 1e-5));
}

#[test]
fn gated_rows_have_the_gradients_of_their_formula() {
    check(&[&[2, 3, 5], &[4, 5], &[1, 5]], &|cx, p| {
        let rows = cx.as_matrix(&p[0]);
        let made = cx.linear(&rows, &p[1], None)?;
        let logits = cx.linear(&rows, &p[2], None)?;
        let gates = cx.sigmoid(&logits)?;
        let gated = cx.gated(&gates, &made)?;
        Ok(cx.rows_as(&gated, &made))
    });
}

/// Frequencies of the rotary embedding of heads of `size`.
fn rotary_tables(
    cx: &mut Context,
    tokens: &Tensor,
    size: usize,
    dtype: DType,
) -> OpResult<vramlab::train::RotaryTables> {
    let frequencies = tensor(cx, &[size / 2], DType::F32, &values(5, size / 2));
    let positions = cx.positions(tokens.shape().last())?;
    cx.rotary_tables(&positions, &frequencies, dtype, 1.25)
}

#[test]
fn rotated_heads_have_the_gradients_of_their_formula() {
    for rows in [1, 5] {
        let shape: &[usize] = &[2, rows, 12];
        check(&[shape], &move |cx, p| {
            let tokens = tensor(cx, &[2, rows], DType::I64, &vec![0.0; 2 * rows]);
            let tables = rotary_tables(cx, &tokens, 4, p[0].dtype())?;
            let heads = cx.by_head_size(&p[0], 4);
            let rotated = cx.rotary(&heads, &tables, Turn::default())?;
            cx.merge_heads(&rotated)
        });
    }
}

/// As gpt-oss writes it: half by half, with tables of one.
#[test]
fn heads_rotated_by_halves_are_rotated_alike() {
    let shape: &[usize] = &[2, 5, 12];
    let program = |halves: bool| {
        move |cx: &mut Context, p: &[Tensor]| {
            let frequencies = tensor(cx, &[2], DType::F32, &values(5, 2));
            let positions = cx.positions(5)?;
            let heads = cx.by_head_size(&p[0], 4);
            let rotated = if halves {
                let tables = cx.rotary_tables_of_half(&positions, &frequencies, p[0].dtype(), 1.25)?;
                cx.rotary_by_halves(&heads, &tables)?
            } else {
                let tables = cx.rotary_tables(&positions, &frequencies, p[0].dtype(), 1.25)?;
                cx.rotary(&heads, &tables, Turn::default())?
            };
            cx.merge_heads(&rotated)
        }
    };
    check(&[shape], &program(true));
    let [halves, whole] = [true, false].map(|halves| gradients(&[shape], DType::F64, None, &program(halves)));
    for (ours, theirs) in halves.iter().flatten().zip(whole.iter().flatten()) {
        assert!((ours - theirs).abs() < 1e-12, "{ours} for {theirs}");
    }
}

/// As GLM rotates them: pairs of neighbours, of a part of each head.
#[test]
fn rotated_neighbours_have_the_gradients_of_their_formula() {
    for part in [4, 2] {
        let shape: &[usize] = &[2, 5, 12];
        check(&[shape; 3], &move |cx, p| {
            let tokens = tensor(cx, &[2, 5], DType::I64, &[0.0; 10]);
            let tables = rotary_tables(cx, &tokens, part, p[0].dtype())?;
            let tables = cx.tables_of_neighbours(&tables)?;
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
            let [q, k] = cx.rotary_before_rest([&q, &k], &tables, Turn { neighbours: true, widens: false })?;
            let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

/// As GPT-NeoX has them: side by side in each head, of which a part is rotated.
#[test]
fn thirds_of_heads_have_the_gradients_of_their_formula() {
    for part in [4, 2] {
        let shape: &[usize] = &[2, 5, 36];
        check(&[shape], &move |cx, p| {
            let tokens = tensor(cx, &[2, 5], DType::I64, &[0.0; 10]);
            let tables = rotary_tables(cx, &tokens, part, p[0].dtype())?;
            let [q, k, v] = cx.thirds_of_heads(&p[0], 4);
            let [q, k] = cx.rotary_before_rest([&q, &k], &tables, Turn::default())?;
            let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

/// As GPT-2 has them: side by side.
#[test]
fn thirds_of_a_projection_have_the_gradients_of_their_formula() {
    let shape: &[usize] = &[2, 5, 24];
    check(&[shape], &|cx, p| {
        let parts = cx.thirds(&p[0]);
        let [q, k, v] = parts.map(|part| cx.by_head_size(&part, 4));
        let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
        cx.merge_heads(&output)
    });
}

#[test]
fn neighbours_are_rotated_as_halves_in_another_order() {
    let mut cx = context();
    let tokens = tensor(&cx, &[2, 5], DType::I64, &[0.0; 10]);
    let tables = rotary_tables(&mut cx, &tokens, 8, DType::F64).unwrap();
    let of_neighbours = cx.tables_of_neighbours(&tables).unwrap();
    let before = values(1, 80);
    // Of each head the even elements, then the odd ones.
    let halves = |all: &[f64]| -> Vec<f64> {
        let of_head = |head: &[f64]| [0, 2, 4, 6, 1, 3, 5, 7].map(|at| head[at]);
        all.chunks(8).flat_map(of_head).collect()
    };
    let mut rotated = |values: &[f64], tables, neighbours| {
        let input = tensor(&cx, &[2, 5, 8], DType::F64, values);
        let heads = cx.by_head_size(&input, 8);
        let rotated = cx.rotary(&heads, tables, Turn { neighbours, widens: false }).unwrap();
        let rotated = cx.merge_heads(&rotated).unwrap();
        decode(&cx, &rotated)
    };
    let by_pairs = rotated(&before, &of_neighbours, true);
    assert_eq!(halves(&by_pairs), rotated(&halves(&before), &tables, false));
    assert_ne!(by_pairs, before);
}

#[test]
fn queries_that_grow_have_the_gradients_of_their_formula() {
    let scale = PositionScale { count: PositionCount::Model, beta: 0.5, original: 2.0 };
    let shape: &[usize] = &[2, 5, 12];
    check(&[shape], &move |cx, p| {
        let heads = cx.by_head_size(&p[0], 4);
        let (grown, _) = cx.scale_by_position(&heads, scale)?;
        cx.merge_heads(&grown)
    });
    let mut cx = context();
    let input = tensor(&cx, shape, DType::F64, &values(1, 120));
    let heads = cx.by_head_size(&input, 4);
    let (grown, _) = cx.scale_by_position(&heads, scale).unwrap();
    let grown = cx.merge_heads(&grown).unwrap();
    for (i, (after, before)) in decode(&cx, &grown).into_iter().zip(values(1, 120)).enumerate() {
        let times: f64 = [1.0, 1.0, 2.0, 2.0, 3.0][i / 12 % 5];
        assert!((after - before * (1.0 + 0.5 * times.ln())).abs() < 1e-6, "element {i}: {after} of {before}");
    }
}

/// Queries that a layer scales by its own positions, from 1 on.
#[test]
fn queries_that_a_layer_scales_have_the_gradients_of_their_formula() {
    let scale = PositionScale { count: PositionCount::Layer, beta: 0.5, original: 2.0 };
    let shape: &[usize] = &[2, 5, 12];
    check(&[shape], &move |cx, p| {
        let heads = cx.by_head_size(&p[0], 4);
        let (scaled, _) = cx.scale_by_position(&heads, scale)?;
        cx.merge_heads(&scaled)
    });
    let mut cx = context();
    let input = tensor(&cx, shape, DType::F64, &values(1, 120));
    let heads = cx.by_head_size(&input, 4);
    let (scaled, _) = cx.scale_by_position(&heads, scale).unwrap();
    let scaled = cx.merge_heads(&scaled).unwrap();
    for (i, (after, before)) in decode(&cx, &scaled).into_iter().zip(values(1, 120)).enumerate() {
        let times: f64 = [0.0, 1.0, 1.0, 2.0, 2.0][i / 12 % 5];
        assert!((after - before * (1.0 + 0.5 * times.ln_1p())).abs() < 1e-6, "element {i}: {after} of {before}");
    }
}

/// Whole heads as complex numbers, and a norm of each without a weight.
#[test]
fn complex_heads_that_are_normalised_have_the_gradients_of_their_formula() {
    for normalises in [false, true] {
        check(&[&[2, 5, 16], &[2, 5, 8]], &move |cx, p| {
            let frequencies = tensor(cx, &[2], DType::F32, &[1.0, 0.3]);
            let positions = cx.positions(5)?;
            let tables = cx.rotary_tables_of_complex(&positions, &frequencies, 1.0)?;
            let heads = [0, 1].map(|part| cx.by_head_size(&p[part], 4));
            let told = [SideBySide::default(), SideBySide::default()];
            let turned = cx.rotary_of_whole_complex(heads, &tables, normalises.then_some(&told))?;
            let mut merged = Vec::new();
            for (turned, told) in turned.into_iter().zip(&told) {
                let heads = if normalises {
                    let rows = cx.rows_of_heads(&turned);
                    let made = cx.plain_rms_norm(&rows, 1e-6)?;
                    cx.by_head_size_told(&made, 4, told)
                } else {
                    turned
                };
                merged.push(heads);
            }
            let v = merged[1].clone();
            let output = cx.grouped_attention([&merged[0], &merged[1], &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

#[test]
fn heads_that_share_keys_have_the_gradients_of_their_formula() {
    // Four heads of queries over two, one and four of keys and values.
    for kv in [2, 1, 4] {
        let shapes: [&[usize]; 3] = [&[2, 5, 16], &[2, 5, 4 * kv], &[2, 5, 4 * kv]];
        check(&shapes, &|cx, p| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
            let output = cx.grouped_attention([&q, &k, &v], None, 0.0)?;
            cx.merge_heads(&output)
        });
    }
}

#[test]
fn norms_of_heads_have_the_gradients_of_their_formula() {
    check(&[&[2, 3, 8], &[4]], &|cx, p| {
        let tokens = tensor(cx, &[2, 3], DType::I64, &[0.0; 6]);
        let tables = rotary_tables(cx, &tokens, 4, p[0].dtype())?;
        let apart = cx.heads_apart(&p[0], 4, &SideBySide::default());
        let normalised = cx.rms_norm(&apart, &p[1], 1e-6)?;
        let heads = cx.by_head_size(&normalised, 4);
        let rotated = cx.rotary(&heads, &tables, Turn::default())?;
        cx.merge_heads(&rotated)
    });
}

/// Computed op by op or by matrix products, attention drops the same weights.
#[test]
fn eager_attention_leaves_out_what_others_do() {
    let shapes: [&[usize]; 3] = [&[2, 9, 16], &[2, 9, 8], &[2, 9, 8]];
    let parts = |cx: &mut Context, p: &[Tensor]| [0, 1, 2].map(|part| cx.by_head_size(&p[part], 4));
    let by_products = |dropout| {
        gradients(&shapes, DType::F64, None, &move |cx, p| {
            let [q, k, v] = parts(cx, p);
            let output = cx.grouped_attention([&q, &k, &v], None, dropout)?;
            cx.merge_heads(&output)
        })
    };
    let eagerly = gradients(&shapes, DType::F64, None, &move |cx, p| {
        let [q, k, v] = parts(cx, p);
        let mask = MaskShape { batch: 2, rows: 9, earlier: Earlier::All, padding: false };
        let mask = &cx.attention_mask(mask, DType::F64)?;
        Ok(cx
            .eager_attention(
                [&q, &k, &v],
                EagerScores { scale: 0.5, cap: None, mask, dropout: 0.3, plain: false, turned: false },
            )?
            .0)
    });
    let distance = |other: &[Vec<f64>]| {
        let both = eagerly.iter().flatten().zip(other.iter().flatten());
        both.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()))
    };
    assert!(distance(&by_products(0.3)) < 1e-12);
    assert!(distance(&by_products(0.0)) > 1e-2, "nothing was left out");
}

/// Masks of windows and chunks, as fused kernels know them and as products read them.
#[test]
fn fused_attention_with_a_mask_has_the_gradients_of_matrix_products() {
    for (rows, earlier) in [(33, Earlier::Window(7)), (33, Earlier::Chunk(7)), (64, Earlier::Chunk(24))] {
        let program = move |cx: &mut Context, p: &[Tensor]| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 8));
            let mask = cx.sdpa_mask(MaskShape { batch: 2, rows, earlier, padding: false })?;
            cx.masked_attention([&q, &k, &v], &mask, 0.4, 0.0)
        };
        let shapes: [&[usize]; 3] = [&[2, rows, 32], &[2, rows, 16], &[2, rows, 16]];
        let exact = gradients(&shapes, DType::F64, None, &program);
        for kernel in [AttentionKernel::Auto, AttentionKernel::Math] {
            let ours = gradients(&shapes, DType::F32, None, &move |cx, p| {
                cx.choose_attention(kernel);
                program(cx, p)
            });
            for (part, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (i, (a, b)) in ours.iter().zip(exact).enumerate() {
                    assert!(
                        (a - b).abs() <= 1e-4 * largest,
                        "{earlier:?}, {kernel:?}, part {part}, element {i}: {a} for {b}"
                    );
                }
            }
        }
    }
}

/// The fused kernels run once for each member of a group, and sum the gradients of keys and values.
#[test]
fn fused_attention_of_shared_keys_has_the_gradients_of_matrix_products() {
    for (kv, dropout) in [(1, 0.0), (2, 0.0), (3, 0.0), (2, 0.3), (6, 0.3)] {
        let program = move |cx: &mut Context, p: &[Tensor]| {
            let [q, k, v] = [0, 1, 2].map(|part| cx.by_head_size(&p[part], 8));
            let output = cx.grouped_attention([&q, &k, &v], None, dropout)?;
            cx.merge_heads(&output)
        };
        let shapes: [&[usize]; 3] = [&[2, 33, 48], &[2, 33, 8 * kv], &[2, 33, 8 * kv]];
        let exact = gradients(&shapes, DType::F64, None, &program);
        for kernel in [AttentionKernel::Auto, AttentionKernel::Flash, AttentionKernel::Math] {
            let ours = gradients(&shapes, DType::F32, Some(DType::Bf16), &move |cx, p| {
                cx.choose_attention(kernel);
                program(cx, p)
            });
            for (ours, exact) in ours.iter().zip(&exact) {
                let largest = exact.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                for (a, b) in ours.iter().zip(exact) {
                    assert!((a - b).abs() <= 1e-1 * largest, "{kv} heads of keys, {kernel:?}: {a} for {b}");
                }
            }
        }
    }
}

#[test]
fn each_label_is_that_of_the_position_before_it() {
    let mut cx = context();
    for rows in [1, 3] {
        let logits = tensor(&cx, &[2, rows, 5], DType::F32, &values(3, 10 * rows));
        let labels: Vec<f64> = [4.0, 1.0, 2.0].into_iter().cycle().take(2 * rows).collect();
        let mut next: Vec<f64> = labels.iter().copied().skip(1).chain([0.0]).collect();
        next.iter_mut().skip(rows - 1).step_by(rows).for_each(|last| *last = -100.0);
        let labels = tensor(&cx, &[2, rows], DType::I64, &labels);
        let next = tensor(&cx, &[2, rows], DType::I64, &next);
        let [ours, plain] = [cx.causal_loss(&logits, &labels).unwrap(), cx.cross_entropy(&logits, &next).unwrap()]
            .map(|loss| decode(&cx, &loss));
        assert_eq!(ours[0].to_bits(), plain[0].to_bits(), "{rows} rows");
    }
}
