//! Queries scaled by their positions, op by op as transformers does for Ministral 3.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// The factor on queries: `1 + beta · ln(1 + ⌊position / original⌋)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionScale {
    /// How fast the factor grows.
    pub beta: f64,
    /// Positions of the original training: this many have a factor of 1.
    pub original: f64,
}

impl PositionScale {
    /// The factor of a position, in the f32 steps in which PyTorch computes it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    fn factor(self, position: usize) -> f32 {
        let times = (position as f32 / self.original as f32).floor();
        1.0 + self.beta as f32 * (1.0 + times).ln()
    }
}

impl Context {
    /// Queries (batch, heads, rows, head size) times the factors of their positions, counted from 0. Saves the factors.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn scale_by_position(&mut self, input: &Tensor, scale: PositionScale) -> OpResult<Tensor> {
        let [batch, heads, rows, head_size] = *input.shape().dims() else { return Ok(input.clone()) };
        // With the elements in the order of a projection's output.
        let whole = Shape::new(&[batch, rows, heads * head_size]);
        let side_by_side = [rows * heads * head_size, head_size, heads * head_size, 1];
        self.op("position_scale", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let factors = cx.position_factors(rows, input.dtype(), scale)?;
            let saved = if differentiates { Some(cx.save(&factors)?) } else { None };
            let output = cx.activation(whole, input.dtype(), "scaled queries")?.strided(input.shape(), side_by_side, 0);
            cx.multiply_rows(input, &factors, &output)?;
            let Some(saved) = saved else { return Ok(output) };
            let source = cx.record("mulBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let factors = saved.unpack(cx)?;
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of queries")?;
                let dst = dst.restrided(grad.compact_strides());
                cx.multiply_rows(&grad, &factors, &dst)?;
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The factors of the first positions.
    #[expect(clippy::cast_precision_loss, reason = "positions of a sample")]
    fn position_factors(&mut self, rows: usize, dtype: DType, scale: PositionScale) -> OpResult<Tensor> {
        let list = Shape::new(&[rows]);
        let mut made = self.temporary(list, DType::F32, "positions over those first learned")?;
        for what in ["whole times", "times and one", "their logarithm", "its part", "factors of positions"] {
            made = self.temporary(list, DType::F32, what)?;
        }
        if dtype != DType::F32 {
            made = self.temporary(list, dtype, "factors of positions")?;
        }
        if rows as f64 <= scale.original {
            self.launch(kernels::Elementwise::Fill { dst: made.operand(), value: 1.0 })?;
        } else {
            self.memory().fill(&made, |first, bytes| put(dtype, bytes, |i| scale.factor(first + i)))?;
        }
        Ok(made)
    }

    /// `dst = src · factors` by row, sample after sample; a row has its heads side by side, or heads lie one after the other.
    fn multiply_rows(&mut self, src: &Tensor, factors: &Tensor, dst: &Tensor) -> OpResult<()> {
        let rows = factors.numel();
        let dims = src.shape();
        let cols = match *dims.dims() {
            [_, _, _, head_size] if src.is_contiguous() => head_size,
            [batch, ..] => src.numel() / (batch * rows),
            [] => 1,
        };
        let part = Shape::new(&[rows, cols]);
        for start in (0..src.numel()).step_by(rows * cols) {
            let (a, dst) = (src.window(part, start).operand(), dst.window(part, start).operand());
            self.launch(kernels::Elementwise::MulRows { a, b: factors.operand(), dst, cols })?;
        }
        Ok(())
    }
}

/// Writes numbers in the format of a type.
fn put(dtype: DType, bytes: &mut [u8], value: impl Fn(usize) -> f32) {
    match dtype {
        DType::Bf16 => {
            for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                *bytes = half::bf16::from_f32(value(i)).to_le_bytes();
            }
        }
        DType::F64 => {
            for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                *bytes = f64::from(value(i)).to_le_bytes();
            }
        }
        _ => {
            for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                *bytes = value(i).to_le_bytes();
            }
        }
    }
}
