//! Dropout: a share of the elements become 0, the others grow by as much.

use crate::context::{Context, Saving};
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, Kernel};

impl Context {
    /// Whether a `share` is left out of an input: nothing is by a model in evaluation mode, or without a backward pass to come.
    #[must_use]
    pub const fn drops_out(&self, share: f64) -> bool {
        share > 0.0 && self.training && !matches!(self.saving, Saving::Nothing)
    }

    /// `input` without a `share` of its elements, drawn anew at each call; the others are divided by 1 − `share`
    /// (`torch.nn.functional.dropout`), where [`Context::drops_out`] says so. Saves which they were.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn dropout(&mut self, input: &Tensor, share: f64) -> OpResult<Tensor> {
        if !self.drops_out(share) {
            return Ok(input.clone());
        }
        let draw = Draw { call: self.generator, share };
        self.generator = self.generator.wrapping_add(1);
        self.op("native_dropout", |cx| {
            let mask = cx.activation(input.shape(), DType::U8, "dropout mask")?;
            let output = cx.activation(input.shape(), input.dtype(), "dropped out")?;
            draw.apply(cx, input, &output)?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let mask = cx.save(&mask)?;
            let source = cx.record("native_dropoutBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let _mask = mask.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of what stayed")?;
                draw.apply(cx, &grad, &dst)?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }
}

/// Which elements one call leaves out: they follow from its number, so that a second run of a checkpoint leaves out the same.
#[derive(Clone, Copy)]
struct Draw {
    call: u64,
    share: f64,
}

impl Draw {
    /// Writes what stays of `src` to `dst`: factors come from the host, because the mask itself is never read.
    fn apply(self, cx: &Context, src: &Tensor, dst: &Tensor) -> OpResult<()> {
        #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
        let kept = (1.0 / (1.0 - self.share)) as f32;
        let factor = |index: usize| if self.leaves_out(index) { 0.0 } else { kept };
        if cx.memory().holds_bytes() {
            let narrow = dst.dtype() == DType::Bf16;
            cx.memory().fill_by_cores(dst, |first, bytes| {
                if narrow {
                    for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                        *bytes = half::bf16::from_f32(factor(first + i)).to_le_bytes();
                    }
                } else {
                    for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                        *bytes = factor(first + i).to_le_bytes();
                    }
                }
            })?;
        }
        cx.launch(&Kernel::Mul { a: src.operand(), b: dst.operand(), dst: dst.operand() })
    }

    /// SplitMix64 of the call and the element, as a number below 1.
    fn leaves_out(self, index: usize) -> bool {
        let mut x = self.call.wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(index as u64);
        x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let unit = (x >> 11) as f64 / (1_u64 << 53) as f64;
        unit < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_elements_is_left_out_and_each_call_draws_anew() {
        let count = |call: u64, share: f64| {
            let draw = Draw { call, share };
            (0..100_000).filter(|&index| draw.leaves_out(index)).count()
        };
        assert!((9_500..10_500).contains(&count(0, 0.1)) && (9_500..10_500).contains(&count(7, 0.1)));
        let [first, second] = [0, 1].map(|call| Draw { call, share: 0.5 });
        let alike = (0..10_000).filter(|&index| first.leaves_out(index) == second.leaves_out(index)).count();
        assert!((4_700..5_300).contains(&alike), "{alike}");
    }
}
