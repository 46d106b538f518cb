//! Clamps: values kept within bounds.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;

use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{DType, kernels};

/// The side of zero that a clamp bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Above,
    Both,
}

impl Context {
    /// `input.clamp(max=most)`, or `input.clamp(min=-most, max=most)`. Saves its input.
    pub(super) fn clamped(&mut self, input: &Tensor, bound: Bound, most: f32) -> OpResult<Tensor> {
        self.op("clamp", |cx| {
            let saved = if cx.differentiates(&[input]) { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "clamped")?;
            cx.copy(input, &output)?;
            cx.clamp_values(&output, bound, most)?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record_clamp(input, saved, bound, most);
            Ok(output.with_source(source))
        })
    }

    /// `input.clamp_(min=-most, max=most)`. Saves a copy of its input.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn clamp_in_place(&mut self, input: Tensor, most: f32) -> OpResult<Tensor> {
        self.op("clamp_", |cx| {
            let saved = if cx.differentiates(&[&input]) {
                let before = cx.activation(input.shape(), input.dtype(), "values before the clamp")?;
                cx.copy(&input, &before)?;
                Some(cx.save(&before)?)
            } else {
                None
            };
            cx.clamp_values(&input, Bound::Both, most)?;
            let Some(saved) = saved else { return Ok(input) };
            let source = cx.record_clamp(&input, saved, Bound::Both, most);
            Ok(input.with_source(source))
        })
    }

    fn clamp_values(&self, values: &Tensor, bound: Bound, most: f32) -> OpResult<()> {
        let dst = values.operand();
        self.launch(kernels::Elementwise::AtMost { src: dst, dst, most })?;
        if bound == Bound::Both {
            for _ in 0..2 {
                self.launch(kernels::Elementwise::Scale { src: dst, dst, factor: -1.0 })?;
                self.launch(kernels::Elementwise::AtMost { src: dst, dst, most })?;
            }
        }
        Ok(())
    }

    fn record_clamp(&mut self, input: &Tensor, saved: SavedVariable, bound: Bound, most: f32) -> GradientTarget {
        let shape = input.shape();
        self.record("clampBackward", [Some(input), None, None], move |cx, grads| {
            let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
            let input = saved.unpack(cx)?;
            let zero = cx.temporary(Shape::new(&[]), grad.dtype(), "zero")?;
            let flags = |what| cx.temporary(shape, DType::U8, what);
            let within = flags("at most the bound")?;
            let above = if bound == Bound::Both { Some(flags("at least the other")?) } else { None };
            let dst = cx.temporary(shape, grad.dtype(), "gradient of what was clamped")?;
            cx.copy(&input, &dst)?;
            let src = dst.operand();
            // Checks both bounds at once, by the square.
            let most = if bound == Bound::Both { most * most } else { most };
            if bound == Bound::Both {
                cx.launch(kernels::Elementwise::Mul { a: src, b: src, dst: src })?;
            }
            cx.launch(kernels::Elementwise::AtMostBackward { src, grad: grad.operand(), dst: src, most })?;
            drop((above, within, zero, grad, input));
            Ok([Some(dst), None, None])
        })
    }
}
