//! Clips gradients by the norm of all of them together: `torch.nn.utils.clip_grad_norm_`, in its form for lists of tensors. If
//! each rank has only some of them, the norm is over all ranks.

use super::rule::{ParameterGradient, by_type, with_gradients};
use crate::communicator::GradientGroup;
use crate::context::Context;
use crate::error::{OpResult, TrainError};
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, NORM_RUN, Operand, kernels};

/// Multiplies the gradients of `parameters` by one factor, so that their total norm is at most `most`.
pub(crate) fn clip_gradients(
    cx: &mut Context,
    parameters: &[usize],
    most: f64,
    shared: Option<GradientGroup<'_>>,
) -> OpResult<()> {
    let trained = with_gradients(cx, parameters);
    let gradients: Vec<Operand> = trained.iter().map(|parameter| parameter.gradient.operand()).collect();
    if gradients.is_empty() {
        // This rank has no gradients, but the others have some.
        let Some(GradientGroup { communicator, in_parts: false }) = shared else { return Ok(()) };
        let none = cx.temporary(Shape::new(&[]), DType::F32, "norm of all gradients")?;
        cx.launch(kernels::Elementwise::Fill { dst: none.operand(), value: 0.0 })?;
        communicator.all_reduce(cx.memory(), &none)?;
        return communicator.join(cx.memory());
    }
    if by_type(&trained).len() > 1 {
        let text = "gradients of weights in several types are not clipped here; leave --clip out".to_owned();
        return Err(TrainError::Workload(text).into());
    }
    cx.op("clip_grad_norm", |cx| {
        let factor = clip_factor(cx, &trained, &gradients, most, shared)?;
        gradients.iter().try_for_each(|gradient| {
            cx.launch(kernels::Elementwise::Mul { a: *gradient, b: factor.operand(), dst: *gradient })
        })
    })
}

/// The factor, in the block of the norm: one kernel computes both from the sums.
fn clip_factor(
    cx: &Context,
    trained: &[ParameterGradient],
    gradients: &[Operand],
    most: f64,
    shared: Option<GradientGroup<'_>>,
) -> OpResult<Tensor> {
    let dtype = trained.iter().map(|parameter| parameter.data.dtype()).max_by_key(|dtype| dtype.size());
    let dtype = dtype.unwrap_or(DType::F32);
    let rows = trained.len();
    let runs = gradients.iter().map(|gradient| gradient.len.div_ceil(NORM_RUN)).max().unwrap_or(1);
    let on_host = trained.iter().any(|parameter| parameter.gradient.is_on_host());
    let temporary = |shape, dtype, what| cx.temporary_beside(on_host, shape, dtype, what);
    let scalar = |what| temporary(Shape::new(&[]), dtype, what);
    let sums = temporary(Shape::new(&[rows * runs]), DType::F32, "sums of squares")?;
    let norms: Vec<Tensor> = trained.iter().map(|_| scalar("gradient norm")).collect::<OpResult<_>>()?;
    cx.launch(kernels::Elementwise::Fill { dst: sums.operand(), value: 0.0 })?;
    cx.launch(kernels::Optimizer::SquareSums { tensors: gradients, sums: sums.operand() })?;
    // The results of the sums are computed while the sums are alive.
    let [first, ..] = &*norms else { return scalar("norm of all gradients") };
    // Ranks exchange sums of squares in f32, which do not fit into a 16-bit norm.
    let wide = (shared.is_some() && dtype != DType::F32 && cx.memory().holds_bytes())
        .then(|| temporary(Shape::new(&[]), DType::F32, "sum of all squares"))
        .transpose()?;
    let squares = wide.as_ref().unwrap_or(first);
    if shared.is_some() {
        let (src, dst) = (sums.operand(), squares.operand());
        cx.launch(kernels::Sums::Columns { src, dst, rows: rows * runs, cols: 1 })?;
    } else {
        cx.launch(kernels::Optimizer::ClipFactor { sums: sums.operand(), rows, factor: first.operand(), most })?;
    }
    drop(sums);
    let stack = |what| temporary(Shape::new(&[rows]), dtype, what);
    let stacked = stack("gradient norms")?;
    let roots = match shared {
        Some(GradientGroup { communicator, in_parts: true }) => {
            let parts = stack("squares of norms of parts")?;
            let reduced = stack("squares of norms")?;
            let roots = stack("norms of whole gradients")?;
            communicator.all_reduce(cx.memory(), squares)?;
            communicator.join(cx.memory())?;
            drop((parts, reduced));
            Some(roots)
        }
        _ => None,
    };
    let total = scalar("norm of all gradients")?;
    if let Some(GradientGroup { communicator, in_parts }) = shared {
        if !in_parts {
            communicator.all_reduce(cx.memory(), squares)?;
            communicator.join(cx.memory())?;
        }
        let (sums, factor) = (squares.operand(), total.operand());
        cx.launch(kernels::Optimizer::ClipFactor { sums, rows: 1, factor, most })?;
    } else {
        cx.launch(kernels::Elementwise::Cast { src: first.operand(), dst: total.operand() })?;
    }
    drop((roots, norms, stacked, wide));
    let shifted = scalar("norm and epsilon")?;
    let reciprocal = scalar("reciprocal norm")?;
    let factor = scalar("factor")?;
    drop((shifted, reciprocal));
    let clamped = scalar("clamped factor")?;
    drop((factor, clamped));
    Ok(total)
}
