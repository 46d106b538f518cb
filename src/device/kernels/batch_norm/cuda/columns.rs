//! Batch normalisation fused with the operations after it, for channels-last data: channels are columns of a matrix.

use super::plain::{code, valued};
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::cuda::rows::{VECTOR, place};
use crate::{ChannelShape, DType, Operand};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// The most adjacent threads that share a row: of vectors, and of single elements.
const LANES: [usize; 2] = [8, 32];
/// The least number of rows in a part, for each of its threads.
const PART_ROWS: usize = 8;
/// Blocks per multiprocessor into which rows are divided.
const BLOCKS: u32 = 4;
/// The most parts, because one kernel joins them all.
const PARTS: u32 = 512;
/// Channels whose parts one block joins, each with the same number of threads.
const JOINED: u32 = 32;

/// How kernels iterate over a matrix of (pixels, channels).
pub(super) struct Columns {
    dtype: DType,
    wide: bool,
    lanes: u32,
    grid: Grid,
    rows: u32,
    channels: u32,
}

/// The operands of the forward pass.
pub(super) struct ColumnsForward<'a> {
    pub arrays: [&'a Operand; 2],
    pub residual: Option<&'a Operand>,
    /// Weights and biases.
    pub values: [&'a Operand; 2],
    /// Means and reciprocal deviations.
    pub statistics: [&'a Operand; 2],
    pub running: [&'a Operand; 2],
    pub eps: f32,
    pub momentum: f32,
    pub slope: f32,
}

/// The operands of the backward pass.
pub(super) struct ColumnsBackward<'a> {
    /// The gradient, the source and the source's gradient.
    pub arrays: [&'a Operand; 3],
    pub output: Option<&'a Operand>,
    pub dresidual: Option<&'a Operand>,
    /// Means, reciprocal deviations, weights and biases.
    pub values: [&'a Operand; 4],
    /// Gradients of weights and biases.
    pub gradients: [&'a Operand; 2],
    pub slope: f32,
}

impl Columns {
    /// `None` if channels are not adjacent in memory, the operands do not match the shape, or there is no kernel for
    /// them.
    pub fn of(arrays: &[&Operand], values: &[&Operand], shape: &ChannelShape, multiprocessors: u32) -> Option<Self> {
        let dtype = arrays.first()?.dtype;
        if shape.area != 1
            || shape.is_empty()
            || arrays.iter().any(|array| (array.dtype, array.len) != (dtype, shape.len()))
            || values.iter().any(|value| value.len != shape.channels || code(value.dtype).is_none())
        {
            return None;
        }
        let vector = VECTOR / usize::try_from(dtype.size()).ok()?;
        let wide = shape.channels.is_multiple_of(vector) && arrays.iter().all(|array| place(array) == 0);
        let (vector, most) = if wide { (vector, LANES[0]) } else { (1, LANES[1]) };
        let lanes = (shape.channels / vector).next_power_of_two().min(most);
        let (rows, channels) = (i32::try_from(shape.batch).ok()?, i32::try_from(shape.channels).ok()?);
        let across = blocks_of(shape.channels, lanes * vector);
        let filling = (BLOCKS * multiprocessors).div_ceil(across);
        let worthwhile = blocks_of(shape.batch, PART_ROWS * THREADS as usize / lanes);
        let grid = Grid { blocks: [across, filling.min(worthwhile).clamp(1, PARTS), 1], threads: THREADS, shared: 0 };
        Some(Self {
            dtype,
            wide,
            lanes: blocks_of(lanes, 1),
            grid,
            rows: rows.unsigned_abs(),
            channels: channels.unsigned_abs(),
        })
    }

    const fn parts(&self) -> u32 {
        self.grid.blocks[1]
    }

    /// Scratch for the sums of all parts, followed by two values per channel.
    fn room(&self, queue: &mut Queue<'_>) -> Result<[Address; 2], Refusal> {
        let each = 2 * 4 * self.channels as usize;
        let parts = self.parts() as usize;
        let start = queue.scratch(each * (parts + 1))?;
        Ok([start, Address(start.0 + (each * parts) as u64)])
    }

    fn sides(&self, arguments: Arguments) -> Arguments {
        arguments.int(self.rows).int(self.channels)
    }

    /// Launches one of the kernels `[wide, single]`, depending on the vectors.
    fn launch(
        &self,
        queue: &mut Queue<'_>,
        [wide, single]: [&'static str; 2],
        mut arguments: Arguments,
    ) -> Result<(), Refusal> {
        queue.launch(if self.wide { wide } else { single }, &[self.dtype], self.grid, &mut arguments)
    }

    fn joining(&self) -> Grid {
        Grid::row(self.channels.div_ceil(JOINED), JOINED * 32)
    }

    /// Launches three kernels: sums, the total of sums, and the pass over all elements.
    pub fn forward(&self, queue: &mut Queue<'_>, operands: &ColumnsForward<'_>) -> Result<(), Refusal> {
        let &ColumnsForward { arrays: [src, dst], residual, values, statistics: [mean, rstd], running, .. } = operands;
        let [parts, _] = self.room(queue)?;
        let names = ["batch_norm_columns_statistics_wide", "batch_norm_columns_statistics_single"];
        self.launch(queue, names, self.sides(Arguments::new().operand(src).at(parts).int(self.lanes)))?;
        let joined = Arguments::new().operand(src).at(parts).int(self.parts()).operand(mean).operand(rstd);
        let joined = valued(joined, &running).float(operands.eps).float(operands.momentum);
        let name = "batch_norm_columns_join_statistics";
        queue.launch(name, &[self.dtype], self.joining(), &mut self.sides(joined))?;
        let arguments = Arguments::new().operand(src).optional(residual).operand(dst);
        let arguments = valued(arguments, &values).operand(mean).operand(rstd).float(operands.slope).int(self.lanes);
        let names = ["batch_norm_columns_apply_wide", "batch_norm_columns_apply_single"];
        self.launch(queue, names, self.sides(arguments))
    }

    /// Launches three kernels, like [`Self::forward`].
    pub fn backward(&self, queue: &mut Queue<'_>, operands: &ColumnsBackward<'_>) -> Result<(), Refusal> {
        let &ColumnsBackward { arrays: [grad, src, dsrc], output, dresidual, values, gradients, slope } = operands;
        let [parts, joined] = self.room(queue)?;
        let arguments = || {
            let arguments =
                Arguments::new().operand(grad).operand(src).optional(output).optional(dresidual).operand(dsrc);
            self.sides(valued(arguments, &values).float(slope).int(self.lanes))
        };
        let names = ["batch_norm_columns_gradient_sums_wide", "batch_norm_columns_gradient_sums_single"];
        self.launch(queue, names, arguments().at(parts))?;
        let all = Arguments::new().at(parts).int(self.parts()).at(joined);
        let mut all = self.sides(valued(valued(all, &[values[1]]), &gradients));
        queue.launch("batch_norm_columns_join_gradients", &[], self.joining(), &mut all)?;
        let names = ["batch_norm_columns_apply_gradient_wide", "batch_norm_columns_apply_gradient_single"];
        self.launch(queue, names, arguments().at(joined))
    }
}
