//! Embedding tables.

use crate::context::{Context, SavedVariable};
use crate::error::{Interrupt, OpResult, TrainError};
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{DType, kernels};

impl Context {
    /// The rows of `weight` (vocabulary, width) at `indices` (i64): (…, width). Saves the indices.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, indices of four dimensions.
    pub fn embedding(&mut self, weight: &Tensor, indices: &Tensor) -> OpResult<Tensor> {
        self.padded_embedding(weight, indices, None)
    }

    /// The same; row `padding`, if there is one, gets no gradient (`padding_idx`).
    ///
    /// # Errors
    /// Out of memory, a failed kernel, indices of four dimensions.
    pub fn padded_embedding(&mut self, weight: &Tensor, indices: &Tensor, padding: Option<usize>) -> OpResult<Tensor> {
        self.op("embedding", |cx| {
            let (output, saved) = cx.looked_up(weight, indices, "output")?;
            let Some(saved) = saved else { return Ok(output) };
            let (shape, width) = (weight.shape(), weight.shape().last());
            let source = cx.record("embeddingBackward", [Some(weight), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let indices = saved.unpack(cx)?;
                let dst = cx.embedding_gradient(&grad, &indices, shape)?;
                if let Some(padding) = padding.filter(|padding| *padding < shape.rows()) {
                    let row = dst.window(Shape::new(&[width]), padding * width);
                    cx.launch(kernels::Elementwise::Fill { dst: row.operand(), value: 0.0 })?;
                }
                Ok([Some(dst), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// The same for a table whose rows are divided equally among ranks, this rank having `part`. Each rank looks up its own rows,
    /// applies `scaled` to the result as the module does, and the sum over the ranks is complete. Backward computes the gradient
    /// of the whole table first. The values are those of an undivided table.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, indices of four dimensions.
    pub fn split_embedding(
        &mut self,
        part: &Tensor,
        indices: &Tensor,
        scaled: impl FnOnce(&mut Self, Tensor) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        let Some(world) = self.tensor_world() else {
            let rows = self.embedding(part, indices)?;
            return scaled(self, rows);
        };
        if let GradientTarget::Leaf(index) = part.source() {
            self.leaves[index].shares_rows = true;
        }
        let (partial, others) = self.op("embedding", |cx| {
            let shape = indices.shape().with_appended(part.shape().last()).ok_or_else(too_many_dimensions)?;
            let flags = |cx: &Self, what| cx.temporary(indices.shape(), DType::U8, what);
            let (below, above) = (flags(cx, "below own rows")?, flags(cx, "behind own rows")?);
            let others = flags(cx, "rows of others")?;
            drop((below, above));
            let numbers = |cx: &Self, what| cx.temporary(indices.shape(), DType::I64, what);
            let copy = numbers(cx, "indices of rows")?;
            let own = numbers(cx, "indices of own rows")?;
            drop(copy);
            let saved = if cx.differentiates(&[part]) { Some(cx.save(indices)?) } else { None };
            let output = cx.activation(shape, part.dtype(), "output")?;
            drop(own);
            let Some(saved) = saved else { return Ok((output, others)) };
            let (rows, width) = (part.shape().rows(), part.shape().last());
            let whole = part.shape().with_first(rows * world.size());
            let source = cx.record("embeddingBackward", [Some(part), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let indices = saved.unpack(cx)?;
                let table = cx.embedding_gradient(&grad, &indices, whole)?;
                let own = table.window(whole.with_first(rows), world.rank() * rows * width);
                Ok([Some(own), None, None])
            });
            Ok((output.with_source(source), others))
        })?;
        let partial = scaled(self, partial)?;
        drop(others);
        self.reduce_from_ranks(partial)
    }

    /// The rows of a table at `indices`, and the indices in the form that backward needs, if there is a backward.
    pub(in crate::ops) fn looked_up(
        &mut self,
        weight: &Tensor,
        indices: &Tensor,
        what: &'static str,
    ) -> OpResult<(Tensor, Option<SavedVariable>)> {
        let width = weight.shape().last();
        let saved = if self.differentiates(&[weight]) { Some(self.save(indices)?) } else { None };
        let shape = indices.shape().with_appended(width).ok_or_else(too_many_dimensions)?;
        let output = self.activation(shape, weight.dtype(), what)?;
        self.launch(kernels::Embedding::Forward {
            weight: weight.operand(),
            indices: indices.operand(),
            dst: output.operand(),
            width,
        })?;
        Ok((output, saved))
    }

    /// The dense gradient of a table. Many indices are sorted first, and the rows of one index are summed in parts.
    fn embedding_gradient(&mut self, grad: &Tensor, indices: &Tensor, shape: Shape) -> OpResult<Tensor> {
        let n = indices.numel();
        let sorted = if n > MOST_UNSORTED { Some(self.sort_indices(n)?) } else { None };
        let dst = self.temporary(shape, grad.dtype(), "weight gradient")?;
        if sorted.is_some() {
            // Parts are summed in f32 at least.
            let summed = if grad.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
            self.sum_by_index(n, shape, summed)?;
        }
        self.launch(kernels::Embedding::Backward {
            grad: grad.operand(),
            indices: indices.operand(),
            dst: dst.operand(),
            width: shape.last(),
        })?;
        Ok(dst)
    }

    /// Blocks of a radix sort of the indices with their positions; returns those of the result.
    fn sort_indices(&self, n: usize) -> OpResult<[Tensor; 2]> {
        let list = |what| self.temporary(Shape::new(&[n]), DType::I64, what);
        let sorted = [list("sorted indices")?, list("original positions")?];
        let positions = list("positions")?;
        drop(self.scratch(sort_storage(n), "sort storage")?);
        drop(positions);
        Ok(sorted)
    }

    /// Blocks of the sum over sorted indices.
    fn sum_by_index(&self, n: usize, shape: Shape, dtype: DType) -> OpResult<()> {
        const ROWS_PER_PART: usize = 10;
        let list = |len, what| self.temporary(Shape::new(&[len]), DType::I64, what);
        let scalar = |what| self.temporary(Shape::new(&[]), DType::I64, what);
        let segments = n.min(shape.dims()[0]);
        let parts = n / ROWS_PER_PART + segments;
        let offsets = list(n, "segment offsets")?;
        let count = scalar("segment count")?;
        let keys = list(n, "distinct indices")?;
        drop(self.scratch(scan_storage(n.div_ceil(DISTINCT_TILE)), "distinct storage")?);
        drop(keys);
        let per_segment = list(segments, "parts per segment")?;
        let part_offsets = list(segments, "offsets of parts")?;
        drop(self.scratch(scan_storage(segments.div_ceil(SCAN_TILE)), "scan storage")?);
        let part_count = scalar("part count")?;
        let starts = list(parts, "starts of parts")?;
        if n >= CROWDED * segments {
            drop(list(parts, "segments of parts")?);
        } else {
            let width = shape.last().next_multiple_of(32);
            drop(self.temporary(Shape::new(&[parts, width]), dtype, "partial sums")?);
        }
        drop((starts, part_count, part_offsets, per_segment, count, offsets));
        Ok(())
    }
}

/// Up to this many indices the gradient is summed without sorting.
const MOST_UNSORTED: usize = 3072;
/// From this many indices per row of the table on, parts are added to it directly. Measured: between 27.4 and 31.9.
const CROWDED: usize = 30;
/// Elements per thread block of the sort, of the search for distinct indices and of the scan on sm_90.
const SORT_TILE: usize = 4608;
const DISTINCT_TILE: usize = 2304;
pub(super) const SCAN_TILE: usize = 448;
/// Library storage is cut into pieces at multiples of this.
const PIECE: usize = 256;

/// Storage of a radix sort of `n` pairs of i64: second buffers for both, digit counts of eight passes, and a table of
/// 256 digits per thread block.
pub(super) const fn sort_storage(n: usize) -> usize {
    let buffers = 2 * (8 * n).next_multiple_of(PIECE);
    let digit_counts = 8 * 256 * 8;
    buffers + digit_counts + 256 * 4 * n.div_ceil(SORT_TILE) + PIECE + PIECE - 1
}

/// The same for a sort that covers only the bits of numbers below `bound`: one pass for each 8 bits, and no second buffers for one pass.
pub(super) const fn sort_storage_below(n: usize, bound: usize) -> usize {
    let bits = match bound.saturating_sub(1) {
        0 => 1,
        largest => largest.ilog2() as usize + 1,
    };
    let passes = bits.div_ceil(8);
    let buffers = if passes > 1 { 2 * (8 * n).next_multiple_of(PIECE) } else { 0 };
    buffers + passes * 256 * 8 + 256 * 4 * n.div_ceil(SORT_TILE) + PIECE + PIECE - 1
}

/// Storage of a scan over `tiles` thread blocks: 8 bytes for each, and for a warp's look-back.
pub(super) const fn scan_storage(tiles: usize) -> usize {
    (8 * (tiles + 32)).next_multiple_of(PIECE) + 2 * PIECE + PIECE - 1
}

/// Elements of f32 per thread block of a scan.
const FLOAT_SCAN_TILE: usize = 1920;

/// Storage of a scan of `n` elements of f32: a thread block's value and state are one word.
pub(super) const fn float_scan_storage(n: usize) -> usize {
    (8 * n.div_ceil(FLOAT_SCAN_TILE)).next_multiple_of(PIECE) + 2 * PIECE + PIECE - 1
}

fn too_many_dimensions() -> Interrupt {
    TrainError::Workload("indices of four dimensions have no rows to look up; give them fewer".into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read from histories of PyTorch 2.11 on an H200.
    #[test]
    fn library_storage_is_what_pytorch_asked_for() {
        for (n, bytes) in [
            (3073, 67_583),
            (4300, 87_039),
            (5000, 99_327),
            (8192, 150_015),
            (12_000, 211_967),
            (50_000, 828_415),
            (100_000, 1_639_423),
            (200_000, 3_261_951),
        ] {
            assert_eq!(sort_storage(n), bytes, "{n} indices");
        }
        for (n, bound, bytes) in [
            (3072, 10_000, 54_783),
            (4608, 10_000, 79_359),
            (4609, 10_000, 80_895),
            (32_768, 10_000, 537_087),
            (8192, 256, 4607),
            (8192, 257, 137_727),
            (8192, 65_536, 137_727),
            (8192, 65_537, 139_775),
        ] {
            assert_eq!(sort_storage_below(n, bound), bytes, "{n} indices below {bound}");
        }
        for (n, bytes) in [(3073_usize, 1279), (70_000, 1279), (80_000, 1535), (200_000, 1791)] {
            assert_eq!(scan_storage(n.div_ceil(DISTINCT_TILE)), bytes, "{n} indices");
        }
        for (segments, bytes) in [(256_usize, 1279), (8192, 1279), (52_000, 2047), (60_000, 2303), (70_000, 2303)] {
            assert_eq!(scan_storage(segments.div_ceil(SCAN_TILE)), bytes, "{segments} segments");
        }
        // For floats, as `torch.cumsum` requested on a simulated card.
        for (n, bytes) in [(64, 1023), (32_768, 1023), (65_536, 1279), (2_097_152, 9727), (8_388_608, 35_839)] {
            assert_eq!(float_scan_storage(n), bytes, "{n} floats");
        }
    }
}
