//! Sums over rows, with the scratch that PyTorch's reduction kernel takes on a GPU.

use crate::context::Context;
use crate::error::OpResult;
use crate::library::Libraries;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, kernels};

/// Threads of a thread block in which each thread owns one output.
const MAX_THREADS: usize = 512;
const WARP: usize = 32;

/// Blocks of memory that a reduction takes besides its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scratch {
    /// Partial sums.
    pub partials: usize,
    /// One counter per column of thread blocks.
    pub semaphores: usize,
}

const fn floor_power_of_two(n: usize) -> usize {
    if n == 0 { 1 } else { 1 << n.ilog2() }
}

/// The scratch of a sum of `rows × cols` over its rows, accumulated in `accumulator` bytes per element; `None` when the
/// sum runs in one launch grid without partial sums.
///
/// This follows the launch rules of PyTorch's reduction: threads read up to four adjacent columns at once; a thread block
/// is at most a warp wide unless there are too few rows to fill it; warps share the rows once each thread would get 16 or
/// more of them; and thread blocks share them (through memory) once a thread would still get 256.
pub(super) fn row_sum_scratch(rows: usize, cols: usize, accumulator: usize, gpu: Libraries) -> Option<Scratch> {
    const MIN_VALUES: usize = 16;
    const MAX_VALUES: usize = 256;
    let vector = [4, 2].into_iter().find(|v| cols.is_multiple_of(*v)).unwrap_or(1);
    let max_threads = MAX_THREADS / vector;
    let across = floor_power_of_two((cols / vector).min(max_threads));
    let down = floor_power_of_two(rows.min(max_threads));
    let height = down.min(max_threads / across.min(WARP));
    let width = across.min(max_threads / height);
    if rows < (height * MIN_VALUES).min(MAX_VALUES) {
        return None;
    }
    let per_thread = rows.div_ceil(height);
    let grid = (cols / vector).div_ceil(width);
    let target = gpu.multiprocessors * (gpu.threads_per_multiprocessor() / (width * height));
    if per_thread < MAX_VALUES || grid > target {
        return None;
    }
    let shares = target.div_ceil(grid).min(per_thread.div_ceil(MIN_VALUES)).max(per_thread.div_ceil(MAX_VALUES));
    (shares > 1).then_some(Scratch { partials: accumulator * cols * shares * width * vector, semaphores: 4 * grid })
}

/// The scratch of a sum of `count` contiguous elements, accumulated in `accumulator` bytes, by the same rules: one thread block
/// owns the only output, and others share the work once a thread would get 256 elements.
pub(super) fn sum_scratch(count: usize, accumulator: usize, gpu: Libraries) -> Option<Scratch> {
    const MIN_VALUES: usize = 16;
    const MAX_VALUES: usize = 256;
    let per_thread = count.div_ceil(MAX_THREADS);
    if per_thread < MAX_VALUES {
        return None;
    }
    let target = gpu.multiprocessors * (gpu.threads_per_multiprocessor() / MAX_THREADS);
    let shares = target.min(per_thread.div_ceil(MIN_VALUES)).max(per_thread.div_ceil(MAX_VALUES));
    (shares > 1).then_some(Scratch { partials: accumulator * shares, semaphores: 4 })
}

impl Context {
    /// Sums the rows of `input` (`rows × cols`) into a new tensor of `shape`.
    pub(super) fn sum_rows(
        &mut self,
        input: &Tensor,
        rows: usize,
        shape: Shape,
        what: &'static str,
    ) -> OpResult<Tensor> {
        self.sum_rows_as(input.dtype(), input, rows, shape, what)
    }

    /// The same into another type.
    pub(super) fn sum_rows_as(
        &mut self,
        dtype: DType,
        input: &Tensor,
        rows: usize,
        shape: Shape,
        what: &'static str,
    ) -> OpResult<Tensor> {
        let output = self.row_sum_output(dtype, rows, shape, what)?;
        self.launch(kernels::Sums::Columns { src: input.operand(), dst: output.operand(), rows, cols: shape.numel() })?;
        Ok(output)
    }

    /// The output of a sum over `rows` rows for another kernel to fill; the sum's scratch is allocated and freed.
    pub(super) fn row_sum_output(
        &self,
        dtype: DType,
        rows: usize,
        shape: Shape,
        what: &'static str,
    ) -> OpResult<Tensor> {
        let output = self.temporary(shape, dtype, what)?;
        let accumulator = if dtype == DType::F64 { 8 } else { 4 };
        let _scratch = match row_sum_scratch(rows, shape.numel(), accumulator, self.workspaces.policy) {
            Some(Scratch { partials, semaphores }) => {
                Some((self.scratch(partials, "row sum partials")?, self.scratch(semaphores, "row sum semaphores")?))
            }
            None => None,
        };
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(rows: usize, cols: usize) -> Option<(usize, usize)> {
        row_sum_scratch(rows, cols, 4, Libraries::HOPPER).map(|s| (s.partials, s.semaphores))
    }

    /// Sizes read from recorded histories of PyTorch 2.11 on an H200.
    #[test]
    fn scratch_is_what_pytorch_asked_for() {
        assert_eq!(scratch(1088, 384), Some((3_342_336, 12)));
        assert_eq!(scratch(1088, 288), Some((2_506_752, 12)));
        assert_eq!(scratch(1600, 256), Some((3_276_800, 8)));
        assert_eq!(scratch(1600, 1024), Some((13_107_200, 32)));
        assert_eq!(scratch(2048, 200), Some((3_276_800, 8)));
        for (rows, cols) in [(1088, 96), (2048, 10), (768, 3072), (128, 32)] {
            assert_eq!(scratch(rows, cols), None, "{rows} × {cols}");
        }
        // Sums of whole masks, counted in i64.
        let whole = |count| sum_scratch(count, 8, Libraries::HOPPER);
        assert_eq!(whole(160_000), Some(Scratch { partials: 160, semaphores: 4 }));
        assert_eq!(whole(2048), None);
    }
}
