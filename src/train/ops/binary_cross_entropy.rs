//! Binary cross-entropy of logits.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

impl Context {
    /// Mean binary cross-entropy of `logits` against `target`, a probability for each. Runs in f32 under autocast. Saves
    /// both.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn binary_cross_entropy_with_logits(&mut self, logits: &Tensor, target: &Tensor) -> OpResult<Tensor> {
        let logits = &self.cast_to_f32(logits, "logits in f32")?;
        self.op("binary_cross_entropy_with_logits", |cx| {
            let differentiates = cx.differentiates(&[logits]);
            let saved = if differentiates { Some((cx.save(logits)?, cx.save(target)?)) } else { None };
            let loss = {
                // The blocks of the elementwise ops and their mean, which one kernel replaces.
                let _log_sigmoid = cx.temporary(logits.shape(), logits.dtype(), "log-sigmoid")?;
                let _losses = cx.temporary(logits.shape(), logits.dtype(), "losses")?;
                cx.activation(Shape::new(&[]), logits.dtype(), "loss")?
            };
            cx.launch(kernels::Loss::BceWithLogits {
                logits: logits.operand(),
                targets: target.operand(),
                loss: loss.operand(),
            })?;
            let Some((saved_logits, saved_target)) = saved else { return Ok(loss) };
            let backward = "binary_cross_entropy_with_logitsBackward";
            let source = cx.record(backward, [Some(logits), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (logits, target) = (saved_logits.unpack(cx)?, saved_target.unpack(cx)?);
                let dst = cx.temporary(logits.shape(), logits.dtype(), "logits gradient")?;
                cx.launch(kernels::Loss::BceWithLogitsBackward {
                    grad: grad.operand(),
                    logits: logits.operand(),
                    targets: target.operand(),
                    dst: dst.operand(),
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(loss.with_source(source))
        })
    }

    /// `input` in f32 (`input.float()`): itself if it is f32, else a copy whose gradient is cast back.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn float(&mut self, input: &Tensor) -> OpResult<Tensor> {
        if input.dtype() == DType::F32 { Ok(input.clone()) } else { self.cast(input, DType::F32, "copy in f32") }
    }
}
