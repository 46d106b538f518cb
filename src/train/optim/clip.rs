//! Gradients clipped by the norm of all of them: `torch.nn.utils.clip_grad_norm_`, in its form for lists of tensors.

use super::rule::{Trained, with_gradients};
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, NORM_RUN, Operand, kernels};

/// Multiplies the gradients of `parameters` by one factor, so that their norm is at most `most`.
pub(crate) fn clip_gradients(cx: &mut Context, parameters: &[usize], most: f64) -> OpResult<()> {
    let trained = with_gradients(cx, parameters);
    let gradients: Vec<Operand> = trained.iter().map(|parameter| parameter.gradient.operand()).collect();
    if gradients.is_empty() {
        return Ok(());
    }
    cx.op("clip_grad_norm", |cx| {
        let factor = clip_factor(cx, &trained, &gradients, most)?;
        gradients.iter().try_for_each(|gradient| {
            cx.launch(kernels::Elementwise::Mul { a: *gradient, b: factor.operand(), dst: *gradient })
        })
    })
}

/// The factor, in the block of the norm: one kernel makes both of the sums.
fn clip_factor(cx: &Context, trained: &[Trained], gradients: &[Operand], most: f64) -> OpResult<Tensor> {
    let dtype = trained.iter().map(|parameter| parameter.data.dtype()).max_by_key(|dtype| dtype.size());
    let dtype = dtype.unwrap_or(DType::F32);
    let rows = trained.len();
    let runs = gradients.iter().map(|gradient| gradient.len.div_ceil(NORM_RUN)).max().unwrap_or(1);
    let scalar = |what| cx.temporary(Shape::new(&[]), dtype, what);
    let sums = cx.temporary(Shape::new(&[rows * runs]), DType::F32, "sums of squares")?;
    let norms: Vec<Tensor> = trained.iter().map(|_| scalar("gradient norm")).collect::<OpResult<_>>()?;
    cx.launch(kernels::Elementwise::Fill { dst: sums.operand(), value: 0.0 })?;
    cx.launch(kernels::Optimizer::SquareSums { tensors: gradients, sums: sums.operand() })?;
    // What the sums lead to is computed while they are there.
    let [first, ..] = &*norms else { return scalar("norm of all gradients") };
    cx.launch(kernels::Optimizer::ClipFactor { sums: sums.operand(), rows, factor: first.operand(), most })?;
    drop(sums);
    let stacked = cx.temporary(Shape::new(&[rows]), dtype, "gradient norms")?;
    let total = scalar("norm of all gradients")?;
    cx.launch(kernels::Elementwise::Cast { src: first.operand(), dst: total.operand() })?;
    drop((norms, stacked));
    let shifted = scalar("norm and epsilon")?;
    let reciprocal = scalar("reciprocal norm")?;
    let factor = scalar("factor")?;
    drop((shifted, reciprocal));
    let clamped = scalar("clamped factor")?;
    drop((factor, clamped));
    Ok(total)
}
