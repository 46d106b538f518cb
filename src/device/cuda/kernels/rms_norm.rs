//! The norm by the root of the mean square.

use super::layer_norm::{column_parts, vectors};
use super::rows::{Rows, threads_of};
use super::sums::add_shares;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::{DType, Kernel, Operand};

/// Threads of a block where each warp has a row of its own.
const THREADS: u32 = 256;
/// The longest row that a warp takes.
const WARP_ROW: usize = 1024;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    let launched = match kernel {
        Kernel::RmsNorm { .. } => forward(queue, kernel),
        Kernel::RmsNormBackward { .. } => backward(queue, kernel),
        Kernel::RowNorm { .. } => row_norm(queue, kernel),
        _ => None,
    };
    launched.unwrap_or_else(|| Err(Refusal::unsupported(kernel)))
}

/// Which of three forms goes through these rows: by warps, by blocks, or for rows of any length and place.
fn form(rows: &Rows, vectors: bool, [warp, block, any]: [&'static str; 3]) -> (&'static str, Grid) {
    if !vectors {
        (any, Grid::row(rows.grid, threads_of(rows.cols)))
    } else if rows.cols <= WARP_ROW {
        (warp, Grid::row(blocks_of(rows.rows, THREADS as usize / 32), THREADS))
    } else {
        (block, Grid::row(rows.grid, threads_of(rows.cols / rows.vector)))
    }
}

/// `None` where there is no kernel for these operands.
fn forward(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Option<Result<(), Refusal>> {
    let Kernel::RmsNorm { src, weight, dst, rstd, cols, eps } = kernel else { return None };
    let rows = Rows::of(src, *cols)?;
    let fits = dst == &(Operand { address: dst.address, ..*src })
        && weight.len == rows.cols
        && (rstd.dtype, rstd.len) == (DType::F32, rows.rows);
    if !fits {
        return None;
    }
    if rows.rows == 0 {
        return Some(Ok(()));
    }
    let vectors = vectors(&rows, &[src, weight, dst]);
    let (name, grid) = form(&rows, vectors, ["rms_norm_warp", "rms_norm_block", "rms_norm_any"]);
    let operands = [src, weight, dst, rstd];
    let arguments = operands.iter().fold(Arguments::new(), |arguments, operand| arguments.operand(operand));
    let arguments = &mut arguments.count(rows.rows).int(rows.width).float(*eps);
    Some(queue.launch(name, &[src.dtype, weight.dtype], grid, arguments))
}

/// `None` where there is no kernel for these operands.
fn row_norm(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Option<Result<(), Refusal>> {
    let Kernel::RowNorm { src, dst, cols } = kernel else { return None };
    let rows = Rows::of(src, *cols)?;
    if dst.len != rows.rows || !(src.dtype == dst.dtype || [src.dtype, dst.dtype].contains(&DType::F32)) {
        return None;
    }
    if rows.rows == 0 {
        return Some(Ok(()));
    }
    let (name, grid) = form(&rows, vectors(&rows, &[src]), ["row_norm_warp", "row_norm_block", "row_norm_any"]);
    let arguments = &mut Arguments::new().operand(src).operand(dst).count(rows.rows).int(rows.width);
    Some(queue.launch(name, &[src.dtype, dst.dtype], grid, arguments))
}

/// `None` where there is no kernel for these operands.
fn backward(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Option<Result<(), Refusal>> {
    let Kernel::RmsNormBackward { grad, src, rstd, weight, dsrc, dweight, cols } = kernel else { return None };
    let rows = Rows::of(src, *cols)?;
    let fits = [grad, dsrc].iter().all(|x| (x.dtype, x.len) == (src.dtype, src.len))
        && [weight, dweight].iter().all(|x| (x.dtype, x.len) == (weight.dtype, rows.cols))
        && (rstd.dtype, rstd.len) == (DType::F32, rows.rows);
    if !fits || rows.rows == 0 {
        return None;
    }
    // First the weight's: the source's gradient may take the place of what both are made of.
    let summed = to_weight(queue, &rows, [grad, src, rstd], dweight);
    Some(summed.and_then(|()| to_source(queue, &rows, [grad, src, rstd, weight, dsrc])))
}

fn to_weight(
    queue: &mut Queue<'_>,
    rows: &Rows,
    [grad, src, rstd]: [&Operand; 3],
    dweight: &Operand,
) -> Result<(), Refusal> {
    let (each, grid) = column_parts(rows);
    let parts = grid.blocks[1] as usize;
    let len = parts * rows.cols;
    let partial = Operand { address: queue.scratch(4 * len)?, dtype: DType::F32, len };
    let arguments = Arguments::new().operand(grad).operand(src).operand(rstd).operand(&partial);
    let arguments = &mut arguments.count(rows.rows).count(each).int(rows.width);
    queue.launch("rms_norm_columns", &[src.dtype], grid, arguments)?;
    add_shares(queue, &partial, dweight, parts, 1.0)
}

fn to_source(queue: &mut Queue<'_>, rows: &Rows, operands: [&Operand; 5]) -> Result<(), Refusal> {
    let [grad, src, _, weight, dsrc] = operands;
    let names = ["rms_norm_backward_warp", "rms_norm_backward_block", "rms_norm_backward_any"];
    let (name, grid) = form(rows, vectors(rows, &[grad, src, weight, dsrc]), names);
    let arguments = operands.iter().fold(Arguments::new(), |arguments, operand| arguments.operand(operand));
    let arguments = &mut arguments.count(rows.rows).int(rows.width);
    queue.launch(name, &[src.dtype, weight.dtype], grid, arguments)
}
