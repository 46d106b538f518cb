//! Where every byte of every segment is drawn: segments to rows, bytes to half cells.
//!
//! Integer arithmetic throughout: each half cell covers a range of bytes, the ranges cover the segment, and a block
//! marks every half cell that it touches, so none is ever lost.

use crate::model::{BlockView, Category, Pool, SegmentView};

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
        Half { kind, ends: self.ends && self.blocks == 1 }
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

/// One row of the map: segments of one pool and size side by side, or a part of one that is longer than a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Index of its first segment.
    pub(crate) first: usize,
    /// How many segments.
    pub(crate) count: usize,
    /// Cells of each.
    pub(crate) cells: usize,
    /// The first of these cells that this row shows, where a segment takes several rows.
    pub(crate) from: usize,
}

/// The narrowest segment, in cells: what is smaller can't be read.
const NARROWEST: usize = 6;
/// At most so many rows for one segment.
const TALLEST: usize = 8;

/// Lays segments out in address order in rows of `width` cells: as large as `height` rows allow, and when they do not
/// all fit, several small ones in a row.
pub(crate) fn rows(segments: &[SegmentView], width: usize, height: usize) -> Vec<Row> {
    if width == 0 {
        return Vec::new();
    }
    let smallest = small_per_row(width);
    let fits = |tall: usize, per_row: usize| {
        let rows = lay_out(segments, width, tall, per_row);
        (rows.len() <= height).then_some(rows)
    };
    let mut best = None;
    for per_row in (1..=smallest).rev().filter(|n| [1, 2, 3, 4, 6, 8].contains(n)) {
        match fits(1, per_row) {
            Some(rows) => best = Some((per_row, rows)),
            None => break,
        }
    }
    let Some((per_row, mut rows)) = best else { return lay_out(segments, width, 1, smallest) };
    for tall in 2..=TALLEST {
        match fits(tall, per_row) {
            Some(taller) => rows = taller,
            None => break,
        }
    }
    rows
}

/// How many small segments a row holds at most.
fn small_per_row(width: usize) -> usize {
    [8, 6, 4, 3, 2].into_iter().find(|n| (width + 1) / n > NARROWEST).unwrap_or(1)
}

fn lay_out(segments: &[SegmentView], width: usize, tall: usize, small_per_row: usize) -> Vec<Row> {
    let largest = segments.iter().map(|segment| segment.size.get()).max().unwrap_or(1).max(1);
    let small_cells = ((width + 1) / small_per_row).saturating_sub(1).max(1);
    let cells = |segment: &SegmentView| match segment.pool {
        Pool::Small if segment.size.get() <= 2 << 20 => small_cells,
        _ => {
            let wide = (width * tall) as u128 * u128::from(segment.size.get());
            (wide.div_ceil(u128::from(largest)) as usize).clamp(NARROWEST.min(width), width * tall)
        }
    };
    let mut rows = Vec::new();
    let mut index = 0;
    while let Some(segment) = segments.get(index) {
        let each = cells(segment);
        if each > width {
            rows.extend((0..each).step_by(width).map(|from| Row { first: index, count: 1, cells: each, from }));
            index += 1;
            continue;
        }
        let most = ((width + 1) / (each + 1)).max(1);
        let alike = |other: &&SegmentView| other.pool == segment.pool && other.size == segment.size;
        let count = segments[index..].iter().take(most).take_while(alike).count();
        rows.push(Row { first: index, count, cells: each, from: 0 });
        index += count;
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::NameId;
    use crate::units::{Address, Bytes, MIB, StreamId};

    fn segment(size: u64, pool: Pool, blocks: Vec<BlockView>) -> SegmentView {
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
        }
    }

    fn kinds(segment: &SegmentView, count: usize) -> Vec<Kind> {
        halves(segment, count).into_iter().map(|half| half.kind).collect()
    }

    #[test]
    fn bytes_fall_into_their_half_cells() {
        let segment =
            segment(80, Pool::Large, vec![block(0, 20, 20, Category::Parameter), block(40, 20, 8, Category::Gradient)]);
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
        assert_eq!(kinds(&segment(64, Pool::Large, vec![]), 2), [Kind::Releasable; 2]);
    }

    #[test]
    fn a_pending_block_is_seen_among_larger_ones() {
        let mut pending = block(96, 1, 1, Category::Activation);
        pending.pending = true;
        let segment = segment(128, Pool::Large, vec![block(0, 96, 96, Category::Parameter), pending]);
        assert_eq!(kinds(&segment, 1), [Kind::Pending]);
    }

    #[test]
    fn small_segments_share_rows_only_when_they_must() {
        let segments: Vec<SegmentView> = (0..6).map(|_| segment(2 * MIB, Pool::Small, vec![])).collect();
        assert_eq!(rows(&segments, 60, 6).len(), 6);
        let squeezed = rows(&segments, 60, 3);
        assert_eq!(squeezed.iter().map(|row| row.count).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(rows(&segments, 60, 1).iter().map(|row| row.count).sum::<usize>(), 6);
    }

    #[test]
    fn large_segments_are_as_wide_as_their_share_of_the_largest() {
        let segments = [segment(20 * MIB, Pool::Large, vec![]), segment(40 * MIB, Pool::Large, vec![])];
        let cells: Vec<usize> = rows(&segments, 60, 2).iter().map(|row| row.cells).collect();
        assert_eq!(cells, [30, 60]);
        assert_eq!(rows(&segments, 60, 3).len(), 3, "more rows show more");
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
            segment(size, Pool::Large, blocks)
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
                .map(|(small, n)| if small { segment(2 * MIB, Pool::Small, vec![]) } else { segment(n * 2 * MIB, Pool::Large, vec![]) })
                .collect();
            let mut next = 0;
            for row in rows(&segments, width, height) {
                prop_assert!(row.from < row.cells);
                prop_assert!(row.count * (row.cells.min(width) + 1) <= width + 1);
                if row.from == 0 {
                    prop_assert_eq!(row.first, next);
                    next += row.count;
                }
            }
            prop_assert_eq!(next, segments.len());
        }
    }
}
