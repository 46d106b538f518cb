//! Queries scaled by their positions, op by op as transformers does for Ministral 3.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// Who counts the positions by which queries are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionCount {
    /// The model, from 0; factors have the type of queries (Ministral 3).
    Model,
    /// Each layer that does not rotate, from 1; products are in f32 (Llama 4).
    Layer,
}

/// The factor on queries: `1 + beta · ln(1 + ⌊position / original⌋)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionScale {
    /// Who counts positions.
    pub count: PositionCount,
    /// How fast the factor grows.
    pub beta: f64,
    /// Positions of the original training: this many have a factor of 1.
    pub original: f64,
}

impl PositionScale {
    /// The factor of a position, in the f32 steps in which PyTorch computes it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    fn factor(self, position: usize) -> f32 {
        match self.count {
            PositionCount::Model => {
                let times = (position as f32 / self.original as f32).floor();
                1.0 + self.beta as f32 * (1.0 + times).ln()
            }
            PositionCount::Layer => {
                let times = ((position as f32 + 1.0) / self.original as f32).floor();
                times.ln_1p() * self.beta as f32 + 1.0
            }
        }
    }
}

impl Context {
    /// Queries (batch, heads, rows, head size) times the factors of their positions, counted from 0, and variables that
    /// live until the caller returns: positions and factors, if it makes them itself. Saves the factors.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn scale_by_position(
        &mut self,
        input: &Tensor,
        scale: PositionScale,
    ) -> OpResult<(Tensor, Option<[Tensor; 2]>)> {
        if scale.count == PositionCount::Model {
            return Ok((self.scaled_by_position(input, scale, input.dtype())?.0, None));
        }
        let rows = input.shape().dims().get(2).copied().unwrap_or(1);
        let positions = self.positions(rows)?;
        let wide = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let (scaled, factors) = self.scaled_by_position(input, scale, wide)?;
        Ok((self.converted(scaled, input.dtype(), "scaled queries in their type")?, Some([positions, factors])))
    }

    /// Queries times the factors of their positions in type `wide`, and these.
    fn scaled_by_position(&mut self, input: &Tensor, scale: PositionScale, wide: DType) -> OpResult<(Tensor, Tensor)> {
        let [batch, heads, rows, head_size] = *input.shape().dims() else { return Ok((input.clone(), input.clone())) };
        // With the elements in the order of a projection's output.
        let whole = Shape::new(&[batch, rows, heads * head_size]);
        let side_by_side = [rows * heads * head_size, head_size, heads * head_size, 1];
        self.op("position_scale", |cx| {
            let differentiates = cx.differentiates(&[input]);
            let narrow = input.dtype();
            let factors = cx.position_factors(rows, wide, scale)?;
            // The layer's own factors are repeated for each sample, so hooks get a copy of them all.
            let repeats = scale.count == PositionCount::Layer && batch > 1;
            let saved = match (differentiates, repeats) {
                (true, true) => Some(cx.save_slice(&factors.strided(Shape::new(&[batch, rows]), [0, 1, 0, 0], 0))?),
                (true, false) => Some(cx.save(&factors)?),
                (false, _) => None,
            };
            let output = cx.activation(whole, wide, "scaled queries")?.strided(input.shape(), side_by_side, 0);
            cx.multiply_rows(input, &factors, &output)?;
            let Some(saved) = saved else { return Ok((output, factors)) };
            let source = cx.record("mulBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let factors = saved.unpack(cx)?.window(Shape::new(&[rows]), 0);
                let dst = cx.temporary(grad.shape(), grad.dtype(), "gradient of queries")?;
                let dst = dst.restrided(grad.compact_strides());
                cx.multiply_rows(&grad, &factors, &dst)?;
                if narrow == wide {
                    return Ok([Some(dst), None, None]);
                }
                drop(factors);
                let cast = cx.temporary(grad.shape(), narrow, "gradient in the type of queries")?;
                let cast = cast.restrided(dst.layout());
                cx.arrange(&dst, &cast)?;
                drop((dst, grad));
                Ok([Some(cast), None, None])
            });
            Ok((output.with_source(source), factors))
        })
    }

    /// The factors of the first positions.
    #[expect(clippy::cast_precision_loss, reason = "positions of a sample")]
    fn position_factors(&mut self, rows: usize, dtype: DType, scale: PositionScale) -> OpResult<Tensor> {
        let list = Shape::new(&[rows]);
        let mut made = self.temporary(list, DType::F32, "positions in f32")?;
        let begin = match scale.count {
            PositionCount::Model => 0.0,
            PositionCount::Layer => {
                made = self.temporary(list, DType::F32, "positions over those first learned")?;
                1.0
            }
        };
        for what in ["whole times", "times and one", "their logarithm", "its part", "factors of positions"] {
            made = self.temporary(list, DType::F32, what)?;
        }
        if dtype != DType::F32 {
            made = self.temporary(list, dtype, "factors of positions")?;
        }
        if rows as f64 - 1.0 + begin < scale.original {
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
