//! Rows of a table by index.

use super::elementwise;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::{DType, Kernel, Operand};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Loads of a thread that are under way at once.
const UNROLL: usize = 4;
/// Positions that are kept of each table row: rows of more are crowded.
const KEPT: usize = 16;
/// Positions that one block adds for a crowded row, at least and at most.
const SEGMENT: (usize, usize) = (128, 1024);
/// Segments of a crowded row, at most.
const MOST_SEGMENTS: usize = 4096;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    let computes = |operand: Operand| matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16);
    match *kernel {
        Kernel::Embedding { weight, indices, dst, width }
            if computes(weight) && computes(dst) && indices.dtype == DType::I64 =>
        {
            forward(queue, &weight, &indices, &dst, width)
        }
        Kernel::EmbeddingBackward { grad, indices, dst, width }
            if computes(grad)
                && computes(dst)
                && indices.dtype == DType::I64
                && indices.len <= SEGMENT.1 * MOST_SEGMENTS =>
        {
            backward(queue, &grad, &indices, &dst, width)
        }
        _ => Err(Refusal::unsupported(kernel)),
    }
}

/// Four elements at once can be loaded or stored at every multiple of four of each row of `width`.
fn packed(operands: [&Operand; 2], width: usize) -> bool {
    let aligned = |operand: &Operand| operand.address.0.is_multiple_of(4 * operand.dtype.size());
    width.is_multiple_of(4) && operands.into_iter().all(aligned)
}

fn forward(
    queue: &mut Queue<'_>,
    weight: &Operand,
    indices: &Operand,
    dst: &Operand,
    width: usize,
) -> Result<(), Refusal> {
    if dst.len == 0 {
        return Ok(());
    }
    let (name, at_once) = if packed([weight, dst], width) { ("embedding", 4) } else { ("embedding_unaligned", 1) };
    let packs = dst.len / at_once;
    let grid = Grid::row(blocks_of(packs, THREADS as usize * UNROLL), THREADS);
    let arguments = Arguments::new().operand(weight).operand(indices).operand(dst);
    let arguments = arguments.count(weight.len / width).count(width).count(packs);
    queue.launch(name, &[weight.dtype, dst.dtype], grid, &mut { arguments })
}

/// What the gradient keeps in scratch: how large its parts are and where they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ScratchLayout {
    /// Positions that one block adds for a crowded row.
    segment: usize,
    /// Segments of crowded rows, at most.
    most_items: usize,
    /// Bytes of the number of items and of the counts of positions, which begin as zeros.
    zeros: usize,
    row_of: usize,
    kept: usize,
    item: usize,
    shares: usize,
    bytes: usize,
}

impl ScratchLayout {
    /// Where the counts begin; the number of items is before them.
    const COUNTS: usize = 256;

    /// For `n` positions in a table of `rows` rows of `width`.
    fn new(n: usize, rows: usize, width: usize) -> Self {
        let segment = n.div_ceil(SEGMENT.1).clamp(SEGMENT.0, SEGMENT.1);
        // A crowded row has more positions than are kept, and each segment but its first begins after a whole one.
        let most_items = n / (KEPT + 1) + n / segment;
        let mut bytes = 0;
        let mut part = |size: usize| {
            let start = bytes;
            bytes += size.next_multiple_of(256);
            start
        };
        let zeros = Self::COUNTS + 4 * rows;
        part(zeros);
        let row_of = part(4 * n.next_multiple_of(16));
        let kept = part(4 * KEPT * rows);
        let item = part(8 * most_items);
        let shares = part(4 * width * most_items);
        Self { segment, most_items, zeros, row_of, kept, item, shares, bytes }
    }
}

fn backward(
    queue: &mut Queue<'_>,
    grad: &Operand,
    indices: &Operand,
    dst: &Operand,
    width: usize,
) -> Result<(), Refusal> {
    if dst.len == 0 {
        return Ok(());
    }
    let (n, rows) = (indices.len, dst.len / width);
    let layout = ScratchLayout::new(n, rows, width);
    let scratch = queue.scratch(layout.bytes)?;
    let part = |start: usize| scratch.0 + start as u64;
    let places = [layout.row_of, ScratchLayout::COUNTS, layout.kept, layout.item, 0].map(part);
    let shares = Address(part(layout.shares));
    elementwise::zero(queue, scratch, layout.zeros)?;
    if n > 0 {
        let grid = Grid::row(blocks_of(n, THREADS as usize), THREADS);
        let arguments = Arguments::new().operand(indices).count(n).count(rows).int(layout.segment as u32);
        queue.launch("embedding_places", &[], grid, &mut arguments.structure(&places))?;
    }
    let name = if packed([grad, dst], width) { "embedding_backward" } else { "embedding_backward_unaligned" };
    let blocks = layout.most_items + rows.div_ceil(THREADS as usize / 32);
    let arguments = Arguments::new().operand(grad).operand(dst).at(shares).count(n).count(rows).count(width);
    let arguments = arguments.int(layout.segment as u32).int(layout.most_items as u32).structure(&places);
    queue.launch(name, &[grad.dtype, dst.dtype], Grid::row(blocks_of(blocks, 1), THREADS), &mut { arguments })?;
    if n <= layout.segment {
        return Ok(());
    }
    let arguments = Arguments::new().at(shares).operand(dst).count(width).int(layout.segment as u32);
    let grid = Grid::row(blocks_of(layout.most_items, 1), THREADS);
    queue.launch("embedding_shares", &[dst.dtype], grid, &mut arguments.structure(&places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_suffice_however_positions_are_crowded() {
        for n in [0, 1, 17, 128, 129, 5000, 16_384, 200_000, 4 << 20] {
            let layout = ScratchLayout::new(n, 50_257, 8);
            assert!(n.div_ceil(layout.segment) <= MOST_SEGMENTS, "{n} in one row");
            for crowd in [17, 127, 128, 129, 300, 5000] {
                let items = n / crowd * crowd.div_ceil(layout.segment);
                assert!(items <= layout.most_items, "{n} positions, {crowd} in each row");
            }
        }
    }

    #[test]
    fn parts_follow_each_other_aligned() {
        let layout = ScratchLayout::new(16_384, 50_257, 768);
        let starts = [0, layout.row_of, layout.kept, layout.item, layout.shares, layout.bytes];
        assert!(starts.is_sorted() && starts.iter().all(|start| start % 256 == 0), "{layout:?}");
        assert_eq!(layout.row_of, (256 + 4 * 50_257_usize).next_multiple_of(256));
        assert_eq!((layout.segment, layout.most_items), (128, 963 + 128));
    }
}
