//! Cross-entropy by its formula: a log-softmax of elementary ops, its negative, a gather at the targets, the mean.

use crate::context::{Context, SavedVariable};
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

use super::row_numbers;

/// The saved tensors.
struct LossResiduals {
    largest: SavedVariable,
    exponentials: SavedVariable,
    sums: SavedVariable,
    negative: SavedVariable,
    targets: SavedVariable,
}

impl Context {
    /// `shifted = x - max(x); logp = shifted - log(sum(exp(shifted))); mean(gather(-logp, targets))` over the last dimension of
    /// `logits`. Under autocast exponentials, and all results computed from them, are in f32.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn cross_entropy_by_hand(&mut self, logits: &Tensor, targets: &Tensor) -> OpResult<Tensor> {
        self.op("cross-entropy by hand", |cx| {
            let (low, cols) = (logits.dtype(), logits.shape().last());
            let wide = if low == DType::F64 { low } else { DType::F32 };
            let values = cx.by_row(logits, low, "largest logits")?;
            let places = cx.activation(row_numbers(logits), DType::I64, "places of the largest")?;
            let largest = cx.save(&places)?;
            drop(places);
            let shifted = cx.elementwise(logits, low, "shifted logits")?;
            let exponentials = {
                let copy = if wide == low { None } else { Some(cx.elementwise(logits, wide, "logits in f32")?) };
                let exponentials = cx.activation(logits.shape(), wide, "exponentials")?;
                // The memory of the exponentials holds log-probabilities, which simplifies backward.
                let src = copy.as_ref().unwrap_or(logits).operand();
                cx.launch(kernels::Softmax::Log { src, dst: exponentials.operand(), cols })?;
                exponentials
            };
            let saved_exponentials = cx.save(&exponentials)?;
            let sums = cx.by_row_activation(&exponentials, wide, "sums of exponentials")?;
            let saved_sums = cx.save(&sums)?;
            let logarithms = cx.elementwise(&sums, wide, "logarithms")?;
            let log_probabilities = cx.elementwise(&exponentials, wide, "log-probabilities")?;
            drop((exponentials, sums, logarithms, shifted, values));
            let negative = cx.elementwise_activation(&log_probabilities, wide, "negative log-probabilities")?;
            drop(log_probabilities);
            let (saved_negative, saved_targets) = (cx.save(&negative)?, cx.save(targets)?);
            let gathered = cx.temporary(row_numbers(logits), wide, "of the targets")?;
            let loss = cx.activation(Shape::new(&[]), wide, "loss")?;
            cx.launch(kernels::Loss::Nll {
                logp: negative.operand(),
                targets: targets.operand(),
                loss: loss.operand(),
                total_weight: gathered.window(Shape::new(&[]), 0).operand(),
                cols,
            })?;
            drop((gathered, negative));
            if !cx.differentiates(&[logits]) {
                return Ok(loss);
            }
            let saved = LossResiduals {
                largest,
                exponentials: saved_exponentials,
                sums: saved_sums,
                negative: saved_negative,
                targets: saved_targets,
            };
            let (shape, types) = (logits.shape(), [low, wide]);
            let source = cx.record("cross-entropy by handBackward", [Some(logits), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                Ok([Some(cx.cross_entropy_by_hand_backward(&grad, saved, shape, types)?), None, None])
            });
            Ok(loss.with_source(source))
        })
    }

    fn cross_entropy_by_hand_backward(
        &mut self,
        grad: &Tensor,
        saved: LossResiduals,
        shape: Shape,
        [low, wide]: [DType; 2],
    ) -> OpResult<Tensor> {
        let (cols, of_rows) = (shape.last(), shape.with_last(1));
        let of_mean = self.temporary(of_rows, wide, "gradient of the mean")?;
        // The number of targets, in the form that the kernel takes.
        let count = of_mean.window(Shape::new(&[]), 0);
        #[expect(clippy::cast_precision_loss, reason = "the tokens of a batch")]
        self.launch(kernels::Elementwise::Fill { dst: count.operand(), value: of_rows.numel() as f64 })?;
        let (negative, targets) = (saved.negative.unpack(self)?, saved.targets.unpack(self)?);
        let gathered = self.temporary(shape, wide, "gradient where the targets are")?;
        self.launch(kernels::Loss::NllBackward {
            grad: grad.operand(),
            targets: targets.operand(),
            total_weight: count.operand(),
            dst: gathered.operand(),
            cols,
        })?;
        drop((count, of_mean, negative, saved.negative, targets, saved.targets));
        let to_log = self.temporary(shape, wide, "log-probabilities gradient")?;
        let exponentials = saved.exponentials.unpack(self)?;
        let (output, grad, dst) = (exponentials.operand(), gathered.operand(), to_log.operand());
        self.launch(kernels::Softmax::LogBackward { output, grad, dst, cols })?;
        drop(gathered);
        let minus = self.elementwise(&to_log, wide, "negative gradient")?;
        // A narrower tensor gets its gradient in its own type.
        let to_shifted = if wide == low { to_log.clone() } else { self.elementwise(&to_log, low, "gradient copy")? };
        let to_logarithms = self.by_row(&minus, wide, "logarithms gradient")?;
        drop((minus, to_log));
        let sums = saved.sums.unpack(self)?;
        let to_sums = self.elementwise(&to_logarithms, wide, "sums gradient")?;
        drop((to_logarithms, sums, saved.sums));
        let to_exponentials = self.elementwise(&exponentials, wide, "exponentials gradient")?;
        drop((to_sums, exponentials, saved.exponentials));
        if wide != low {
            drop(self.elementwise(&to_exponentials, low, "exponentials gradient copy")?);
        }
        drop(to_exponentials);
        let negative = self.elementwise(&to_shifted, low, "negative gradient")?;
        let of_largest = self.by_row(&negative, low, "gradient of the largest")?;
        drop(negative);
        let places = saved.largest.unpack(self)?;
        let scattered = self.elementwise(&to_shifted, low, "gradient where the largest are")?;
        drop((of_largest, places, saved.largest, scattered));
        Ok(to_shifted)
    }
}
