//! Activation functions.

use crate::device::Kernel;
use crate::train::context::Context;
use crate::train::error::OpResult;
use crate::train::tape::Gradients;
use crate::train::tensor::Tensor;

impl Context {
    /// `max(input, 0)` in a new tensor. Saves its output.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn relu(&mut self, input: &Tensor) -> OpResult<Tensor> {
        self.op("relu", |cx| {
            let output = cx.activation(input.shape(), input.dtype(), "relu output")?;
            cx.launch(&Kernel::Relu { src: input.operand(), dst: output.operand() })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let saved = cx.save(&output)?;
            let source = cx.record("reluBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let output = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "relu gradient")?;
                cx.launch(&Kernel::ReluBackward {
                    output: output.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// GELU of every element: by the error function, or its tanh approximation. Saves its input.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn gelu(&mut self, input: &Tensor, tanh: bool) -> OpResult<Tensor> {
        self.op("gelu", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let saved = if differentiates { Some(cx.save(input)?) } else { None };
            let output = cx.activation(input.shape(), input.dtype(), "gelu output")?;
            cx.launch(&Kernel::Gelu { src: input.operand(), dst: output.operand(), tanh })?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("geluBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let input = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gelu gradient")?;
                cx.launch(&Kernel::GeluBackward {
                    src: input.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                    tanh,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}
