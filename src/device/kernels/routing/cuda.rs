//! The choice of experts for each row, and the products of each expert's rows.

use super::Routing;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use crate::{DType, Operand};

const THREADS: u32 = 256;
/// Rows and columns of the part of a product that one thread block computes.
const TILE: usize = 16;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Routing) -> Result<(), Refusal> {
    let is_float = |operand: &Operand| matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16);
    let grid = |threads: usize| Grid::row(blocks_of(threads, THREADS as usize), THREADS);
    let tile = Grid { blocks: [1; 3], threads: (TILE * TILE) as u32, shared: 0 };
    match kernel {
        Routing::TopK { src, values, indices, cols, k } if is_float(src) && src.dtype == values.dtype => {
            let rows = src.len.checked_div(*cols).unwrap_or(0);
            let arguments = Arguments::new().operand(src).operand(values).operand(indices);
            let mut arguments = arguments.count(rows).count(*cols).count(*k);
            queue.launch("top_k", &[src.dtype], grid(rows), &mut arguments)
        }
        Routing::TopKBackward { grad, indices, dst, cols, k } if is_float(grad) && grad.dtype == dst.dtype => {
            let rows = dst.len.checked_div(*cols).unwrap_or(0);
            let arguments = Arguments::new().operand(grad).operand(indices).operand(dst);
            let mut arguments = arguments.count(rows).count(*cols).count(*k);
            queue.launch("top_k_backward", &[dst.dtype], grid(rows), &mut arguments)
        }
        Routing::Gather { src, indices, dst, cols, k } if is_float(src) && src.dtype == dst.dtype => {
            let rows = src.len.checked_div(*cols).unwrap_or(0);
            let arguments = Arguments::new().operand(src).operand(indices).operand(dst);
            let mut arguments = arguments.count(rows).count(*cols).count(*k);
            queue.launch("gather", &[dst.dtype], grid(rows), &mut arguments)
        }
        Routing::GroupRows { groups, sorted, order, rows, count, each } => {
            let arguments = Arguments::new().operand(groups).operand(sorted).operand(order).operand(rows);
            let mut arguments = arguments.count(groups.len).count(*each);
            queue.launch("group_rows", &[], Grid::row(blocks_of(*count, 1), THREADS), &mut arguments)
        }
        Routing::GroupEnds { groups, ends } => {
            let mut arguments = Arguments::new().operand(groups).operand(ends).count(groups.len);
            queue.launch("group_ends", &[], Grid::row(blocks_of(ends.len, 1), THREADS), &mut arguments)
        }
        Routing::Invert { order, dst } => {
            let mut arguments = Arguments::new().operand(order).operand(dst).count(order.len);
            queue.launch("invert", &[], grid(order.len), &mut arguments)
        }
        Routing::GroupedGemm { n, k, a, b, dst, ends } if is_float(a) && a.dtype == b.dtype && a.dtype == dst.dtype => {
            let rows = a.len.checked_div(*k).unwrap_or(0);
            // Each group starts a new tile.
            let blocks = [blocks_of(*n, TILE), blocks_of(rows / TILE + ends.len, 1), 1];
            let arguments = Arguments::new().operand(a).at(b.address).operand(dst).operand(ends);
            let arguments = arguments.count(b.row_stride).count(b.col_stride).count(b.batch_stride);
            let mut arguments = arguments.count(ends.len).count(*n).count(*k);
            queue.launch("grouped_gemm", &[a.dtype], Grid { blocks, ..tile }, &mut arguments)
        }
        Routing::GroupedGemmOuter { m, n, a, b, dst, ends }
            if is_float(a) && a.dtype == b.dtype && a.dtype == dst.dtype =>
        {
            let blocks = [blocks_of(*n, TILE), blocks_of(*m, TILE), blocks_of(ends.len, 1)];
            let arguments = Arguments::new().operand(a).operand(b).operand(dst).operand(ends);
            let mut arguments = arguments.count(*m).count(*n);
            queue.launch("grouped_gemm_outer", &[a.dtype], Grid { blocks, ..tile }, &mut arguments)
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}
