//! Cross-entropy: log-softmax, then the mean negative log-likelihood.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

impl Context {
    /// Mean cross-entropy of `logits` (…, classes) against `targets` (i64, one per row).
    ///
    /// Under autocast the log-softmax runs, and is saved, in the type of the logits; the likelihood runs on an f32 copy,
    /// which is saved too.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn cross_entropy(&mut self, logits: &Tensor, targets: &Tensor) -> OpResult<Tensor> {
        if self.fused {
            return self.fused_cross_entropy(logits, targets);
        }
        let log_probabilities = self.log_softmax(logits)?;
        let log_probabilities = self.cast_to_f32(&log_probabilities, "log-probabilities in f32")?;
        self.nll_loss(&log_probabilities, targets)
    }

    /// The same in one pass that keeps the logits and one number per row; in backward the gradient overwrites the logits.
    fn fused_cross_entropy(&mut self, logits: &Tensor, targets: &Tensor) -> OpResult<Tensor> {
        self.op("cross_entropy", |cx| {
            let (rows, cols, stride) = (logits.shape().rows(), logits.shape().last(), logits.row_stride());
            let saved = if cx.differentiates(&[logits]) { Some((cx.save(logits)?, cx.save(targets)?)) } else { None };
            let logsumexp = cx.activation(Shape::new(&[rows]), DType::F32, "logsumexp")?;
            let loss = cx.activation(Shape::new(&[]), DType::F32, "loss")?;
            let total_weight = cx.activation(Shape::new(&[]), DType::F32, "total weight")?;
            cx.launch(kernels::Loss::CrossEntropy {
                logits: logits.padded_rows(),
                targets: targets.operand(),
                loss: loss.operand(),
                total_weight: total_weight.operand(),
                logsumexp: logsumexp.operand(),
                cols,
                stride,
            })?;
            let Some((saved_logits, saved_targets)) = saved else { return Ok(loss) };
            let (saved_sums, saved_weight) = (cx.save(&logsumexp)?, cx.save(&total_weight)?);
            let source = cx.record("cross_entropyBackward", [Some(logits), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let (logits, targets) = (saved_logits.unpack(cx)?, saved_targets.unpack(cx)?);
                let (logsumexp, total_weight) = (saved_sums.unpack(cx)?, saved_weight.unpack(cx)?);
                // Logits that waited in host memory come back without the gaps between their rows.
                let stride = logits.row_stride();
                cx.launch(kernels::Loss::CrossEntropyBackward {
                    grad: grad.operand(),
                    logits: logits.padded_rows(),
                    targets: targets.operand(),
                    total_weight: total_weight.operand(),
                    logsumexp: logsumexp.operand(),
                    cols,
                    stride,
                })?;
                Ok([Some(logits.detach()), None, None])
            });
            Ok(loss.with_source(source))
        })
    }

    fn log_softmax(&mut self, logits: &Tensor) -> OpResult<Tensor> {
        self.op("log_softmax", |cx| {
            let cols = logits.shape().last();
            let output = cx.activation(logits.shape(), logits.dtype(), "log-probabilities")?;
            cx.launch(kernels::Softmax::Log { src: logits.operand(), dst: output.operand(), cols })?;
            if !cx.differentiates(&[logits]) {
                return Ok(output);
            }
            let saved = cx.save(&output)?;
            let source = cx.record("log_softmaxBackward", [Some(logits), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let output = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "logits gradient")?;
                cx.launch(kernels::Softmax::LogBackward {
                    output: output.operand(),
                    grad: grad.operand(),
                    dst: dst.operand(),
                    cols,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    fn nll_loss(&mut self, log_probabilities: &Tensor, targets: &Tensor) -> OpResult<Tensor> {
        self.op("nll_loss", |cx| {
            let differentiates = cx.differentiates(&[log_probabilities]);
            // PyTorch saves the log-probabilities for the weighted form, so they live until this node has run.
            let saved_input =
                if differentiates { Some((cx.save(log_probabilities)?, cx.save(targets)?)) } else { None };
            let (shape, dtype) = (log_probabilities.shape(), log_probabilities.dtype());
            let cols = shape.last();
            let loss = cx.activation(Shape::new(&[]), dtype, "loss")?;
            let total_weight = cx.activation(Shape::new(&[]), dtype, "total weight")?;
            cx.launch(kernels::Loss::Nll {
                logp: log_probabilities.operand(),
                targets: targets.operand(),
                loss: loss.operand(),
                total_weight: total_weight.operand(),
                cols,
            })?;
            let Some((saved_input, saved_targets)) = saved_input else { return Ok(loss) };
            let saved_weight = cx.save(&total_weight)?;
            let source = cx.record("nll_lossBackward", [Some(log_probabilities), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _log_probabilities = saved_input.unpack(cx)?;
                let (targets, total_weight) = (saved_targets.unpack(cx)?, saved_weight.unpack(cx)?);
                let dst = cx.temporary(shape, dtype, "log-probabilities gradient")?;
                cx.launch(kernels::Loss::NllBackward {
                    grad: grad.operand(),
                    targets: targets.operand(),
                    total_weight: total_weight.operand(),
                    dst: dst.operand(),
                    cols,
                })?;
                Ok([Some(dst), None, None])
            });
            Ok(loss.with_source(source))
        })
    }
}
