//! Where every byte of every segment is drawn: segments to rows, bytes to half cells.
//!
//! Integer arithmetic throughout: each half cell covers a range of bytes, the ranges cover the segment, and a block
//! marks every half cell that it touches, so none is ever lost.

use crate::allocator::PoolKind;
use crate::model::{BlockView, Category, SegmentView, Touched};

/// What a half cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Free, in a segment that nothing holds.
    Releasable,
    /// Free, in a segment that something holds.
    Stranded,
    /// Asked for.
    Live(Category),
    /// The rest of a live block.
    Rounding,
    /// Freed, waiting for another stream.
    Pending,
}

impl Kind {
    /// Whether bytes of this kind can be handed out.
    pub(crate) const fn is_free(self) -> bool {
        matches!(self, Self::Releasable | Self::Stranded)
    }
}

/// A half cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Half {
    /// What most of its bytes that somebody holds are; free only where nobody holds any.
    pub(crate) kind: Kind,
    /// A block ends here, and no other touches this half cell.
    pub(crate) ends: bool,
    /// The op under way took (or else gave back) a block here.
    pub(crate) lit: Option<bool>,
}

/// Bytes of a half cell by kind: categories, rounding, pending; and how many blocks touch it.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    live: [u64; Category::ALL.len()],
    rounding: u64,
    pending: u64,
    blocks: u32,
    ends: bool,
}

impl Share {
    fn half(&self, free: Kind) -> Half {
        let live = (0..Category::ALL.len()).rev().max_by_key(|&index| self.live[index]).unwrap_or(0);
        let kind = if self.blocks == 0 {
            free
        } else if self.pending > 0 {
            // Pending bytes are rare, and what somebody who sees them looks for.
            Kind::Pending
        } else if self.rounding > self.live[live] {
            Kind::Rounding
        } else {
            Kind::Live(Category::ALL[live])
        };
        Half { kind, ends: self.ends && self.blocks == 1, lit: None }
    }
}

/// `segment` as `count` half cells.
pub(crate) fn halves(segment: &SegmentView, count: usize) -> Vec<Half> {
    let size = segment.size.get().max(1);
    // The first byte of each half cell, and the end of the last one.
    let edges: Vec<u64> =
        (0..=count as u128).map(|index| (index * u128::from(size)).div_ceil((count as u128).max(1)) as u64).collect();
    let mut shares = vec![Share::default(); count];
    if count > 0 {
        // Blocks come in address order, so the half cell of one lies at or behind that of the one before.
        let mut first = 0;
        for block in segment.blocks.iter() {
            let start = block.offset.get().min(size - 1);
            if start < edges[first] {
                first = 0;
            }
            while edges[first + 1] <= start {
                first += 1;
            }
            share_out(block, start, &edges[first..], &mut shares[first..]);
        }
    }
    let free = if segment.blocks.is_empty() { Kind::Releasable } else { Kind::Stranded };
    shares.iter().map(|share| share.half(free)).collect()
}

/// Adds a block to the half cells that it touches, of which the first one given is the first.
fn share_out(block: &BlockView, start: u64, edges: &[u64], shares: &mut [Share]) {
    let end = start.saturating_add(block.size.get().max(1));
    let asked = start.saturating_add(block.requested.get()).min(end);
    let mut last = 0;
    for (index, share) in shares.iter_mut().enumerate() {
        if index > 0 && edges[index] >= end {
            break;
        }
        let (from, to) = (edges[index].max(start), edges[index + 1].min(end));
        let held = to.saturating_sub(from);
        let live = asked.min(to).saturating_sub(from);
        share.blocks += 1;
        if block.pending {
            share.pending += held.max(1);
        } else {
            share.live[block.category as usize] += live;
            share.rounding += held - live.min(held);
        }
        last = index;
    }
    shares[last].ends = true;
}

/// Where everything is drawn: one scale for all segments, in rows of so many cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes of a cell.
    pub(crate) scale: u64,
    /// Rows in all.
    pub(crate) rows: usize,
    /// Parts of segments, row by row from left to right.
    pub(crate) pieces: Vec<Piece>,
}

/// A segment, or the part of one that lies in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the segment.
    pub(crate) segment: usize,
    /// Its row.
    pub(crate) row: usize,
    /// Its first column.
    pub(crate) x: usize,
    /// Cells of the whole segment.
    pub(crate) cells: usize,
    /// The first of them that lies here.
    pub(crate) from: usize,
    /// How many of them lie here.
    pub(crate) count: usize,
    /// The first of its stream and pool.
    pub(crate) leads: bool,
}

/// The finest scale: a cell is no less than a page of the processor's.
const FINEST: u64 = 1 << 12;

/// Lays segments out by stream, pool and size on the finest scale on which they fit into `height` rows of `width` cells; on
/// the coarsest where none is fine enough.
pub(crate) fn plan(segments: &[SegmentView], width: usize, height: usize) -> Plan {
    if width == 0 || segments.is_empty() {
        return Plan::default();
    }
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|&index| {
        let segment = &segments[index];
        let pool = segment.pool == PoolKind::Small;
        (segment.stream, pool, segment.expandable, std::cmp::Reverse(segment.size), segment.address)
    });
    let largest = segments.iter().map(|segment| segment.size.get()).max().unwrap_or(1);
    let total: u128 = segments.iter().map(|segment| u128::from(segment.size.get())).sum();
    // On a finer scale there are more cells than the map has.
    let bound = total / (width as u128 * height.max(1) as u128);
    let finest = u64::try_from(bound).unwrap_or(u64::MAX >> 1).next_power_of_two().max(FINEST);
    // Where even one cell each is too much, there is no air between them.
    for air in [1, 0] {
        let mut scale = finest;
        loop {
            let plan = lay_out(segments, &order, width, scale, air);
            if plan.rows <= height || (air == 0 && scale >= largest) {
                return plan;
            }
            if scale >= largest {
                break;
            }
            scale = scale.saturating_mul(2);
        }
    }
    Plan::default()
}

fn lay_out(segments: &[SegmentView], order: &[usize], width: usize, scale: u64, air: usize) -> Plan {
    let mut pieces = Vec::with_capacity(order.len());
    let (mut row, mut x) = (0, 0);
    let mut group = None;
    for &index in order {
        let segment = &segments[index];
        let cells = usize::try_from(segment.size.get().div_ceil(scale)).unwrap_or(usize::MAX).max(1);
        let own = (segment.stream, segment.pool, segment.expandable);
        let leads = group.replace(own) != Some(own);
        if x > 0 && (leads || x + cells > width) {
            (row, x) = (row + 1, 0);
        }
        let mut from = 0;
        while from < cells {
            let count = (cells - from).min(width - x.min(width));
            pieces.push(Piece { segment: index, row, x, cells, from, count, leads: leads && from == 0 });
            from += count;
            x += count;
            if from < cells {
                (row, x) = (row + 1, 0);
            }
        }
        x += air;
        if x >= width {
            (row, x) = (row + 1, 0);
        }
    }
    let rows = pieces.last().map_or(0, |piece| piece.row + 1);
    Plan { scale, rows, pieces }
}

/// Marks the half cells of a segment that an op's blocks touch.
pub(crate) fn light(halves: &mut [Half], segment: &SegmentView, touched: &[Touched]) {
    let (start, size) = (segment.address.0, segment.size.get().max(1));
    let count = halves.len() as u128;
    for block in touched.iter().filter(|block| (start..start + size).contains(&block.address.0)) {
        let at = |offset: u64| usize::try_from(u128::from(offset) * count / u128::from(size)).unwrap_or(usize::MAX);
        let offset = block.address.0 - start;
        let (from, to) = (at(offset), at((offset + block.size.get().max(1) - 1).min(size - 1)));
        for half in halves.iter_mut().take(to.saturating_add(1)).skip(from) {
            half.lit = Some(block.taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::NameId;
    use crate::units::{Address, Bytes, MIB, StreamId};

    fn segment(size: u64, pool: PoolKind, blocks: Vec<BlockView>) -> SegmentView {
        SegmentView {
            address: Address(0),
            size: Bytes(size),
            pool,
            stream: StreamId::DEFAULT,
            expandable: false,
            blocks: Arc::new(blocks),
        }
    }

    fn block(offset: u64, size: u64, requested: u64, category: Category) -> BlockView {
        BlockView {
            offset: Bytes(offset),
            size: Bytes(size),
            requested: Bytes(requested),
            pending: false,
            category,
            name: NameId::NONE,
            op: NameId::NONE,
            born: 0,
        }
    }

    fn kinds(segment: &SegmentView, count: usize) -> Vec<Kind> {
        halves(segment, count).into_iter().map(|half| half.kind).collect()
    }

    #[test]
    fn bytes_fall_into_their_half_cells() {
        let segment = segment(
            80,
            PoolKind::Large,
            vec![block(0, 20, 20, Category::Parameter), block(40, 20, 8, Category::Gradient)],
        );
        let (parameter, gradient) = (Kind::Live(Category::Parameter), Kind::Live(Category::Gradient));
        assert_eq!(
            kinds(&segment, 8),
            [
                parameter,
                parameter,
                Kind::Stranded,
                Kind::Stranded,
                gradient,
                Kind::Rounding,
                Kind::Stranded,
                Kind::Stranded
            ]
        );
        let ends: Vec<bool> = halves(&segment, 8).into_iter().map(|half| half.ends).collect();
        assert_eq!(ends, [false, true, false, false, false, true, false, false]);
    }

    #[test]
    fn an_empty_segment_is_releasable() {
        assert_eq!(kinds(&segment(64, PoolKind::Large, vec![]), 2), [Kind::Releasable; 2]);
    }

    #[test]
    fn a_pending_block_is_seen_among_larger_ones() {
        let mut pending = block(96, 1, 1, Category::Activation);
        pending.pending = true;
        let segment = segment(128, PoolKind::Large, vec![block(0, 96, 96, Category::Parameter), pending]);
        assert_eq!(kinds(&segment, 1), [Kind::Pending]);
    }

    #[test]
    fn all_segments_are_drawn_on_one_scale() {
        let segments = [
            segment(20 * MIB, PoolKind::Large, vec![]),
            segment(40 * MIB, PoolKind::Large, vec![]),
            segment(2 * MIB, PoolKind::Small, vec![]),
        ];
        let plan = plan(&segments, 45, 3);
        assert_eq!(plan.scale, MIB);
        let places: Vec<_> = plan.pieces.iter().map(|p| (p.segment, p.row, p.x, p.count, p.leads)).collect();
        assert_eq!(places, [(1, 0, 0, 40, true), (0, 1, 0, 20, false), (2, 2, 0, 2, true)]);
        assert!(super::plan(&segments, 45, 30).scale < MIB, "more rows show more");
    }

    #[test]
    fn the_blocks_of_an_op_are_lit() {
        let segment = segment(80, PoolKind::Large, vec![]);
        let mut halves = halves(&segment, 8);
        let touched = |offset: u64, size, taken| Touched {
            address: Address(segment.address.0 + offset),
            size: Bytes(size),
            taken,
        };
        light(&mut halves, &segment, &[touched(10, 15, true), touched(79, 1, false), touched(80, 10, true)]);
        let lit: Vec<Option<bool>> = halves.iter().map(|half| half.lit).collect();
        let taken = Some(true);
        assert_eq!(lit, [None, taken, taken, None, None, None, None, Some(false)]);
    }

    prop_compose! {
        fn any_segment()(size in 1u64..1 << 32, parts in prop::collection::vec((1u64..1 << 24, 0u64..1 << 24, any::<bool>(), 0usize..8), 0..60)) -> SegmentView {
            let mut blocks = Vec::new();
            let mut offset = 0;
            for (length, gap, pending, category) in parts {
                if offset + length > size {
                    break;
                }
                blocks.push(BlockView { pending, ..block(offset, length, length.div_ceil(2), Category::ALL[category]) });
                offset += length + gap;
            }
            segment(size, PoolKind::Large, blocks)
        }
    }

    proptest! {
        #[test]
        fn no_block_is_lost(segment in any_segment(), count in 1usize..400) {
            let halves = halves(&segment, count);
            prop_assert_eq!(halves.len(), count);
            for block in segment.blocks.iter() {
                let at = |byte: u64| (u128::from(byte) * count as u128 / u128::from(segment.size.get())) as usize;
                for index in [at(block.offset.get()), at(block.offset.get() + block.size.get() - 1)] {
                    prop_assert!(!halves[index].kind.is_free(), "block {block:?} at {index}");
                }
            }
        }

        #[test]
        fn every_segment_has_its_place(sizes in prop::collection::vec((any::<bool>(), 1u64..200), 0..80), width in 1usize..200, height in 0usize..60) {
            let segments: Vec<SegmentView> = sizes
                .into_iter()
                .map(|(small, n)| if small { segment(2 * MIB, PoolKind::Small, vec![]) } else { segment(n * 2 * MIB, PoolKind::Large, vec![]) })
                .collect();
            let plan = plan(&segments, width, height);
            let mut shown = vec![0; segments.len()];
            let mut taken = std::collections::HashSet::new();
            for piece in &plan.pieces {
                prop_assert!(piece.count > 0 && piece.x + piece.count <= width && piece.row < plan.rows);
                prop_assert_eq!(piece.from, shown[piece.segment]);
                shown[piece.segment] += piece.count;
                for x in piece.x..piece.x + piece.count {
                    prop_assert!(taken.insert((piece.row, x)), "two at {} in row {}", x, piece.row);
                }
            }
            for (segment, cells) in segments.iter().zip(shown) {
                prop_assert_eq!(cells as u64, segment.size.get().div_ceil(plan.scale));
            }
        }
    }
}
