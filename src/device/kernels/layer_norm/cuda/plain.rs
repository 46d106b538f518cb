//! Layer normalisation.

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::cuda::rows::{Rows, place, threads_of};
use crate::kernels::LayerNorm;
use crate::kernels::family::Family;
use crate::{DType, Operand};
use vramlab_allocator::units::Address;

/// Threads in a block if each warp has rows of its own.
const THREADS: u32 = 128;
/// The longest row that a warp holds in registers.
const WARP_ROW: usize = 1024;
/// The longest row that a block holds in registers.
const BLOCK_ROW: usize = 32 << 10;
/// For backward by blocks: elements of a row that a thread holds, and the most threads.
const BACKWARD: (usize, usize) = (8, 1024);
/// Blocks of [`THREADS`] that fit on a multiprocessor for backward by warps.
const RESIDENT: usize = 3;
/// Columns that a block sums.
const COLUMNS: usize = 32;
/// Threads of such a block.
const COLUMN_THREADS: u32 = 1024;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Result<(), Refusal> {
    let launched = match kernel {
        LayerNorm::Forward { .. } => forward(queue, kernel),
        LayerNorm::Backward { .. } => backward(queue, kernel),
        _ => None,
    };
    launched.unwrap_or_else(|| Err(Refusal::unsupported(kernel.name())))
}

/// The operand, or `None` if it has no elements.
fn some(operand: &Operand) -> Option<&Operand> {
    Some(operand).filter(|operand| operand.len > 0)
}

/// True if all operands are aligned to vectors and rows are whole numbers of vectors.
pub(in crate::kernels) fn vectors(rows: &Rows, operands: &[&Operand]) -> bool {
    rows.cols.is_multiple_of(rows.vector) && operands.iter().all(|operand| place(operand) == 0)
}

/// `None` if there is no kernel for these operands.
fn forward(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Option<Result<(), Refusal>> {
    let LayerNorm::Forward { src, weight, bias, dst, mean, rstd, cols, eps } = kernel else { return None };
    let rows = Rows::of(src, *cols)?;
    if dst != &(Operand { address: dst.address, ..*src })
        || bias.dtype != weight.dtype
        || [weight, bias].iter().any(|x| x.len != rows.cols && x.len != 0)
        || [mean, rstd].iter().any(|x| (x.dtype, x.len) != (DType::F32, rows.rows))
    {
        return None;
    }
    if rows.rows == 0 {
        return Some(Ok(()));
    }
    let [weight, bias] = [weight, bias].map(|operand| some(operand));
    let present: Vec<_> = [Some(src), weight, bias, Some(dst)].into_iter().flatten().collect();
    let vectors = vectors(&rows, &present);
    let (name, grid) = forms(&rows, vectors, ["layer_norm_warp", "layer_norm_block", "layer_norm_any"]);
    let operands = [Some(src), weight, bias, Some(dst), Some(mean), Some(rstd)];
    let arguments = operands.into_iter().fold(Arguments::new(), Arguments::optional);
    let arguments = &mut arguments.count(rows.rows).int(rows.width).float(*eps);
    Some(queue.launch(name, &[src.dtype, weight.map_or(src.dtype, |weight| weight.dtype)], grid, arguments))
}

/// The kernel for these rows: by warps, by blocks, or for rows of any length and alignment.
pub(super) fn forms(rows: &Rows, vectors: bool, [warp, block, any]: [&'static str; 3]) -> (&'static str, Grid) {
    if vectors && rows.cols <= WARP_ROW {
        (warp, Grid::row(blocks_of(rows.rows, THREADS as usize / 32), THREADS))
    } else if vectors && rows.cols <= BLOCK_ROW {
        (block, Grid::row(rows.grid, threads_of(rows.cols / rows.vector)))
    } else {
        (any, Grid::row(rows.grid, threads_of(rows.cols)))
    }
}

/// `None` if there is no kernel for these operands.
fn backward(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Option<Result<(), Refusal>> {
    let LayerNorm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, cols } = kernel else {
        return None;
    };
    let rows = Rows::of(src, *cols)?;
    if [grad, dsrc].iter().any(|x| (x.dtype, x.len) != (src.dtype, src.len))
        || [dweight, dbias].iter().any(|x| x.dtype != weight.dtype)
        || [weight, dweight, dbias].iter().any(|x| x.len != rows.cols && x.len != 0)
        || dweight.len < dbias.len
        || [mean, rstd].iter().any(|x| (x.dtype, x.len) != (DType::F32, rows.rows))
    {
        return None;
    }
    let operands = [Some(grad), Some(src), Some(mean), Some(rstd), some(weight), Some(dsrc)];
    let summed = if rows.rows == 0 {
        queue.scratch(0).map(|partial| (partial, 0))
    } else if vectors(
        &rows,
        &[Some(grad), Some(src), some(weight), Some(dsrc)].into_iter().flatten().collect::<Vec<_>>(),
    ) && fits_backward(&rows)
    {
        held(queue, &rows, operands)
    } else {
        any(queue, &rows, operands)
    };
    let parameters = (dweight.len > 0).then_some([dweight, dbias]);
    Some(summed.and_then(|summed| parameters.map_or(Ok(()), |parameters| join(queue, &rows, summed, parameters))))
}

/// Adds up the sums of `parts` at `partial`, including the bias's sums if there is a bias.
pub(super) fn join(
    queue: &mut Queue<'_>,
    rows: &Rows,
    (partial, parts): (Address, u32),
    [dweight, dbias]: [&Operand; 2],
) -> Result<(), Refusal> {
    let grid = Grid::row(blocks_of(2 * rows.cols, COLUMNS), COLUMN_THREADS);
    let arguments = Arguments::new().at(partial).operand(dweight).optional(some(dbias)).int(parts).int(rows.width);
    queue.launch("layer_norm_joined", &[dweight.dtype], grid, &mut { arguments })
}

/// True if registers can hold a row and its gradient.
pub(super) const fn fits_backward(rows: &Rows) -> bool {
    rows.cols <= BACKWARD.0 * BACKWARD.1
}

/// Scratch for `parts` sums of the rows' contributions to the gradients of weight and bias.
pub(super) fn room(queue: &mut Queue<'_>, parts: u32, rows: &Rows) -> Result<Address, Refusal> {
    queue.scratch(parts as usize * 2 * rows.cols * 4)
}

/// Launches backward for rows that fit into registers. Returns the address of the columns' sums and their number.
fn held(queue: &mut Queue<'_>, rows: &Rows, operands: [Option<&Operand>; 6]) -> Result<(Address, u32), Refusal> {
    let forms = ["layer_norm_backward_warp", "layer_norm_backward_block"];
    let (name, grid) = backward_forms(rows, queue.multiprocessors() as usize, forms);
    let parts = grid.blocks[0];
    let partial = room(queue, parts, rows)?;
    let arguments = operands.into_iter().fold(Arguments::new(), Arguments::optional);
    let arguments = &mut arguments.at(partial).count(rows.rows).int(rows.width);
    queue.launch(name, &types(operands), grid, arguments)?;
    Ok((partial, parts))
}

/// The types of rows and of their weight, or the rows' type if there is no weight.
fn types([_, src, _, _, weight, _]: [Option<&Operand>; 6]) -> [DType; 2] {
    let rows = src.map_or(DType::F32, |src| src.dtype);
    [rows, weight.map_or(rows, |weight| weight.dtype)]
}

/// The kernel of backward for these rows: by warps or by blocks.
pub(super) fn backward_forms(
    rows: &Rows,
    multiprocessors: usize,
    [warp, block]: [&'static str; 2],
) -> (&'static str, Grid) {
    if rows.cols <= WARP_ROW {
        let blocks = rows.rows.div_ceil(THREADS as usize / 32).min(RESIDENT * multiprocessors);
        let shared = blocks_of(2 * 4 * rows.cols, 1);
        (warp, Grid::row(blocks_of(blocks, 1), THREADS).with_shared(shared))
    } else {
        let threads = 32 * blocks_of(rows.cols, BACKWARD.0 * 32);
        let blocks = rows.rows.min((BACKWARD.1 / threads as usize).max(1) * multiprocessors);
        (block, Grid::row(blocks_of(blocks, 1), threads))
    }
}

/// How the columns of rows of any length and alignment are summed: the rows per part, and the grid.
pub(in crate::kernels) fn column_parts(rows: &Rows) -> (usize, Grid) {
    let each = rows.rows.div_ceil(128).max(64);
    let blocks = [blocks_of(rows.cols, COLUMNS), blocks_of(rows.rows, each), 1];
    (each, Grid { blocks, threads: COLUMN_THREADS, shared: 0 })
}

/// The same for rows of any length and alignment.
fn any(queue: &mut Queue<'_>, rows: &Rows, operands: [Option<&Operand>; 6]) -> Result<(Address, u32), Refusal> {
    let [grad, src, mean, rstd, ..] = operands;
    let (each, grid) = column_parts(rows);
    let parts = grid.blocks[1];
    let partial = room(queue, parts, rows)?;
    // Launched first, because the source's gradient may overwrite its inputs.
    let read = [grad, src, mean, rstd].into_iter().fold(Arguments::new(), Arguments::optional);
    let types = types(operands);
    let arguments = &mut read.at(partial).count(rows.rows).count(each).int(rows.width);
    queue.launch("layer_norm_columns", &types[..1], grid, arguments)?;
    let arguments = operands.into_iter().fold(Arguments::new(), Arguments::optional);
    let grid = Grid::row(rows.grid, threads_of(rows.cols));
    queue.launch("layer_norm_backward_any", &types, grid, &mut arguments.int(rows.width))?;
    Ok((partial, parts))
}
