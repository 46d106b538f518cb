//! Sums over one dimension, and means.

use super::Sums;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use crate::{ChannelShape, DType, Operand};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Loads that a thread has in flight at the same time.
const UNROLL: usize = 8;
/// Elements that the kernel for short rows keeps in shared memory.
const TILE: usize = 8192;
/// Longer rows are summed by several blocks.
const SHORT_ROW: usize = TILE / 2;
/// Up to this number, rows are summed by one thread for each four columns.
const FEW_ROWS: usize = 8;
/// Blocks that a multiprocessor runs at once.
const RESIDENT: usize = 4;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Sums) -> Result<(), Refusal> {
    let computes = |operand: Operand| matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16);
    match *kernel {
        Sums::Columns { src, dst, rows, cols } if computes(src) && computes(dst) => {
            columns(queue, &src, &dst, [1, rows, cols], 1.0)
        }
        Sums::Channels { src, dst, shape } if computes(src) && computes(dst) => channels(queue, &src, &dst, shape, 1.0),
        Sums::Mean { src, dst, outer, middle, inner } if computes(src) && computes(dst) => {
            if inner == 1 {
                channels(queue, &src, &dst, ChannelShape { batch: 1, channels: outer, area: middle }, count(middle))
            } else {
                columns(queue, &src, &dst, [outer, middle, inner], count(middle))
            }
        }
        Sums::MeanBackward { grad, dst, outer, middle, inner } if computes(grad) && computes(dst) => {
            if dst.len == 0 {
                return Ok(());
            }
            let per_block = THREADS as usize * 16 / dst.dtype.size() as usize;
            let grid = Grid::row(blocks_of(dst.len, per_block), THREADS);
            let arguments = Arguments::new().operand(&grad).operand(&dst).count(outer).count(middle).count(inner);
            queue.launch("mean_backward", &[grad.dtype, dst.dtype], grid, &mut arguments.float(count(middle)))
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

/// A number of terms as a divisor of their sum.
#[expect(clippy::cast_precision_loss, reason = "kernels compute in f32")]
const fn count(terms: usize) -> f32 {
    terms as f32
}

/// True if four elements can be loaded at once from every multiple of `step` elements.
const fn packed(operand: &Operand, step: usize) -> bool {
    step.is_multiple_of(4) && operand.address.0.is_multiple_of(4 * operand.dtype.size())
}

/// Scratch for the shares of several blocks in a sum: f32, one row of results for each of `splits`.
fn shares(queue: &mut Queue<'_>, splits: usize, results: usize) -> Result<Operand, Refusal> {
    let len = splits * results;
    let address = if splits > 1 { queue.scratch(4 * len)? } else { Address(0) };
    Ok(Operand { address, dtype: DType::F32, len })
}

/// How a block's threads are arranged, and how a sum over rows is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ColumnPlan {
    /// Threads in a row, each for four columns.
    across: usize,
    splits: usize,
    rows_per_split: usize,
    blocks: usize,
}

impl ColumnPlan {
    /// The arrangement for `outer` times `rows` of `cols`: initially `across` threads in a row, and `wanted` blocks in
    /// total if that is worth it.
    fn new([outer, rows, cols]: [usize; 3], packed: bool, across: usize, wanted: usize) -> Self {
        let threads = THREADS as usize;
        let useful = if packed { cols.div_ceil(4) } else { cols }.max(1);
        let mut across = across.min(useful);
        // If there are fewer rows than rows of threads, arrange more threads side by side.
        while across < useful.min(threads) && threads / across > rows.max(1) {
            across = (2 * across).min(threads);
        }
        let tiles = outer * cols.div_ceil(4 * across);
        let rounds = rows / (threads / across * UNROLL);
        let splits = if rounds <= 4 { 1 } else { (wanted / tiles.max(1)).clamp(1, rounds) };
        let rows_per_split = rows.div_ceil(splits).max(1);
        let splits = rows.div_ceil(rows_per_split).max(1);
        Self { across, splits, rows_per_split, blocks: tiles * splits }
    }
}

/// `dst[o,c] = Σ_r src[o,r,c] / divisor`.
fn columns(
    queue: &mut Queue<'_>,
    src: &Operand,
    dst: &Operand,
    shape: [usize; 3],
    divisor: f32,
) -> Result<(), Refusal> {
    let [outer, rows, cols] = shape;
    let results = outer * cols;
    if results == 0 {
        return Ok(());
    }
    if (1..=FEW_ROWS).contains(&rows) && packed(src, cols) {
        let arguments = Arguments::new().operand(src).operand(dst).count(results).count(rows).count(cols);
        let grid = Grid::row(blocks_of(results, 4 * THREADS as usize), THREADS);
        return queue.launch("few_rows", &[src.dtype, dst.dtype], grid, &mut arguments.float(divisor));
    }
    let wanted = queue.multiprocessors() as usize * RESIDENT;
    let plan = ColumnPlan::new(shape, packed(src, cols), 32, wanted);
    if plan.splits == 1 {
        return column_sum(queue, src, dst, shape, plan, divisor);
    }
    let partial = shares(queue, plan.splits, outer * cols)?;
    column_sum(queue, src, &partial, shape, plan, 1.0)?;
    add_shares(queue, &partial, dst, plan.splits, divisor)
}

/// `dst[i] = Σ_s partial[s,i] / divisor`.
pub(in crate::kernels) fn add_shares(
    queue: &mut Queue<'_>,
    partial: &Operand,
    dst: &Operand,
    splits: usize,
    divisor: f32,
) -> Result<(), Refusal> {
    let shape = [1, splits, partial.len / splits];
    let plan = ColumnPlan::new(shape, packed(partial, shape[2]), 8, 1);
    column_sum(queue, partial, dst, shape, plan, divisor)
}

fn column_sum(
    queue: &mut Queue<'_>,
    src: &Operand,
    dst: &Operand,
    [outer, rows, cols]: [usize; 3],
    plan: ColumnPlan,
    divisor: f32,
) -> Result<(), Refusal> {
    let name = if packed(src, cols) { "column_sum" } else { "column_sum_unaligned" };
    let arguments = Arguments::new().operand(src).operand(dst).count(outer).count(rows).count(cols);
    let arguments = arguments.int(plan.across as u32).count(plan.splits).count(plan.rows_per_split).float(divisor);
    let grid = Grid::row(blocks_of(plan.blocks, 1), THREADS);
    queue.launch(name, &[src.dtype, dst.dtype], grid, &mut { arguments })
}

/// How a block's threads are arranged over areas, and how a sum over images and areas is split. A piece is one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChannelPlan {
    /// Threads side by side in one area.
    across: usize,
    splits: usize,
    pieces_per_split: usize,
}

impl ChannelPlan {
    fn new(shape: ChannelShape, packed: bool, wanted: usize) -> Self {
        let loads = if packed { shape.area / 4 } else { shape.area };
        let across = loads.clamp(1, THREADS as usize);
        let pieces = shape.batch * loads.div_ceil(across);
        let rounds = pieces / (THREADS as usize / across * UNROLL);
        let splits = if rounds <= 4 { 1 } else { (wanted / shape.channels.max(1)).clamp(1, rounds) };
        let pieces_per_split = pieces.div_ceil(splits).max(1);
        Self { across, splits: pieces.div_ceil(pieces_per_split).max(1), pieces_per_split }
    }
}

/// `dst[c] = Σ_{n,i} src[n,c,i] / divisor`.
fn channels(
    queue: &mut Queue<'_>,
    src: &Operand,
    dst: &Operand,
    shape: ChannelShape,
    divisor: f32,
) -> Result<(), Refusal> {
    let ChannelShape { batch, channels, area } = shape;
    if channels == 0 {
        return Ok(());
    }
    if batch == 1 && area <= SHORT_ROW {
        return short_rows(queue, src, dst, [channels, area], divisor);
    }
    if area == 1 {
        return columns(queue, src, dst, [1, batch, channels], divisor);
    }
    let wanted = queue.multiprocessors() as usize * RESIDENT;
    let plan = ChannelPlan::new(shape, packed(src, area), wanted);
    if plan.splits == 1 {
        return channel_sum(queue, src, dst, shape, plan, divisor);
    }
    let partial = shares(queue, plan.splits, channels)?;
    channel_sum(queue, src, &partial, shape, plan, 1.0)?;
    add_shares(queue, &partial, dst, plan.splits, divisor)
}

fn channel_sum(
    queue: &mut Queue<'_>,
    src: &Operand,
    dst: &Operand,
    ChannelShape { batch, channels, area }: ChannelShape,
    plan: ChannelPlan,
    divisor: f32,
) -> Result<(), Refusal> {
    let name = if packed(src, area) { "channel_sum" } else { "channel_sum_unaligned" };
    let arguments = Arguments::new().operand(src).operand(dst).count(batch).count(channels).count(area);
    let arguments = arguments.int(plan.across as u32).count(plan.pieces_per_split).float(divisor);
    let grid = Grid::row(blocks_of(channels * plan.splits, 1), THREADS);
    queue.launch(name, &[src.dtype, dst.dtype], grid, &mut { arguments })
}

/// `dst[r] = Σ_i src[r,i] / divisor` for rows of at most [`SHORT_ROW`].
fn short_rows(
    queue: &mut Queue<'_>,
    src: &Operand,
    dst: &Operand,
    [rows, cols]: [usize; 2],
    divisor: f32,
) -> Result<(), Refusal> {
    let wanted = queue.multiprocessors() as usize * RESIDENT;
    let per_block = (rows / wanted).clamp(1, TILE / cols.max(1));
    // Threads per row: each has at least two elements, so that adjacent rows share a warp.
    let share = cols.div_ceil(2).next_power_of_two().min(32);
    let arguments = Arguments::new().operand(src).operand(dst).count(rows).int(cols as u32);
    let arguments = arguments.int(per_block as u32).int(share as u32).float(divisor);
    let grid = Grid::row(blocks_of(rows, per_block), THREADS);
    queue.launch("row_sum", &[src.dtype, dst.dtype], grid, &mut { arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: usize = 132 * RESIDENT;

    #[test]
    fn sums_over_many_rows_keep_every_multiprocessor_busy_in_one_wave() {
        for (rows, cols) in [(16_384, 768), (16_384, 3072), (8192, 4096), (16_384, 10), (100_000, 1)] {
            let plan = ColumnPlan::new([1, rows, cols], cols % 4 == 0, 32, BLOCKS);
            assert!(plan.blocks <= BLOCKS, "{rows} × {cols}: {plan:?}");
            assert!(plan.blocks >= 48, "{rows} × {cols}: {plan:?}");
        }
        let plan = ColumnPlan::new([1, 16_384, 50_257], false, 32, BLOCKS);
        assert_eq!((plan.splits, plan.blocks), (1, 393));
    }

    #[test]
    fn splits_cover_all_rows_and_none_is_empty() {
        for rows in (0..3000).step_by(7).chain([16_384, 1_000_003]) {
            for (outer, cols, packed) in [(1, 768, true), (3, 50, false), (1, 1, false), (2, 5000, true), (1, 4, true)]
            {
                for across in [8, 32] {
                    let plan = ColumnPlan::new([outer, rows, cols], packed, across, BLOCKS);
                    let covered = plan.splits * plan.rows_per_split;
                    assert!(covered >= rows && covered < rows.max(1) + plan.rows_per_split, "{rows}: {plan:?}");
                    assert!((1..=256).contains(&plan.across), "{plan:?}");
                    assert_eq!(plan.blocks, outer * plan.splits * cols.div_ceil(4 * plan.across), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn few_rows_take_threads_side_by_side() {
        assert_eq!(ColumnPlan::new([1, 1, 1 << 20], true, 32, BLOCKS).across, 256);
        assert_eq!(ColumnPlan::new([1, 2, 1 << 20], true, 32, BLOCKS).across, 128);
        assert_eq!(ColumnPlan::new([1, 1, 40], true, 32, BLOCKS).across, 10);
    }

    #[test]
    fn channels_are_split_where_they_are_few() {
        let shape = |batch, channels, area| ChannelShape { batch, channels, area };
        assert_eq!(ChannelPlan::new(shape(256, 2048, 49), false, BLOCKS).splits, 1);
        let plan = ChannelPlan::new(shape(128, 3, 4096), true, BLOCKS);
        assert!(plan.splits > 8 && plan.across == 256, "{plan:?}");
        for batch in [1, 2, 77] {
            for (channels, area) in [(3, 5), (64, 196), (1, 1_000_001), (500, 12_544)] {
                for packed in [false, area % 4 == 0] {
                    let plan = ChannelPlan::new(shape(batch, channels, area), packed, BLOCKS);
                    let lanes = if packed { 4 } else { 1 } * plan.across;
                    let (pieces, covered) = (batch * area.div_ceil(lanes), plan.splits * plan.pieces_per_split);
                    assert!(covered >= pieces && covered < pieces + plan.pieces_per_split, "{plan:?}");
                    assert!(plan.across == 256 || area <= lanes, "several pieces an area need whole blocks");
                }
            }
        }
    }
}
