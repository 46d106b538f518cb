//! The half cells of a segment, or of several that share a strip, or of some of their cells.
//!
//! All arithmetic is in integers. Each half cell covers a range of bytes, the ranges cover the segments, and a block
//! marks every half cell that it touches, so no block is ever lost.

use std::ops::Range;

use super::coloring::Tone;
use vramlab_model::{BlockView, SegmentView, TouchedBlock};

/// What a half cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// Free, in an empty segment or in empty pages.
    Releasable,
    /// Free, in a segment that contains allocated blocks.
    Stranded,
    /// Requested bytes of an allocated block with this tone.
    Live(Tone),
    /// The rest of an allocated block.
    Rounding,
    /// Freed, but waiting for another stream.
    Pending,
    /// Allocated, in blocks that the filter excludes.
    Aside,
}

impl CellKind {
    /// True if bytes of this kind can be allocated.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Releasable | Self::Stranded)
    }
}

/// A half cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// The kind of most of its allocated bytes; free only if none are allocated.
    pub kind: CellKind,
    /// True if a block ends here and at most one other begins, so that an edge is visible.
    pub ends: bool,
    /// True if the current op allocated a block here, false if it freed one.
    pub lit: Option<bool>,
    /// True if it belongs to the selection.
    pub picked: bool,
}

/// Bytes of a half cell by kind (tones, rounding, pending), and how many blocks touch it.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    live: [u64; Tone::COUNT],
    rounding: u64,
    pending: u64,
    /// Free bytes in empty segments or empty pages.
    releasable: u64,
    blocks: u32,
    aside: bool,
    ends: u32,
}

impl Share {
    fn half(&self, size: u64) -> Half {
        let free = if self.releasable.saturating_mul(2) >= size { CellKind::Releasable } else { CellKind::Stranded };
        let live = (0..Tone::COUNT).rev().max_by_key(|&index| self.live[index]).unwrap_or(0);
        let kind = match self.blocks {
            0 if self.aside => CellKind::Aside,
            0 => free,
            // Pending bytes are rare, and the reason for looking at this map.
            _ if self.pending > 0 => CellKind::Pending,
            _ if self.rounding > self.live[live] => CellKind::Rounding,
            _ => CellKind::Live(Tone(live as u8)),
        };
        Half { kind, ends: self.ends == 1 && self.blocks <= 2, lit: None, picked: false }
    }
}

/// A segment of a strip: its first byte, its size, and its first byte in the strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    start: u64,
    size: u64,
    base: u64,
}

/// Some cells of a segment, or of several that share a strip: two halves each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strip {
    members: Vec<Member>,
    size: u64,
    /// The number of halves in the whole, and the index of the first half here.
    count: usize,
    from: usize,
    halves: Vec<Half>,
}

impl Strip {
    /// The given `cells` of segments that are `count` half cells long. `tone` gives a block's tone, or `None` for a
    /// block that the filter excludes.
    pub fn new<'a>(
        segments: impl IntoIterator<Item = &'a SegmentView>,
        count: usize,
        cells: Range<usize>,
        tone: impl Fn(&SegmentView, &BlockView) -> Option<Tone>,
    ) -> Self {
        let mut size = 0u64;
        let segments: Vec<(&SegmentView, Member)> = segments
            .into_iter()
            .map(|segment| {
                let member = Member { start: segment.address.0, size: segment.size.get().max(1), base: size };
                size = size.saturating_add(member.size);
                (segment, member)
            })
            .collect();
        let size = size.max(1);
        let (from, to) = ((cells.start * 2).min(count), (cells.end * 2).min(count));
        // The first byte of each half cell, and the end of the last one.
        let edge = |index: usize| (index as u128 * u128::from(size)).div_ceil((count as u128).max(1)) as u64;
        let edges: Vec<u64> = (from..=to).map(edge).collect();
        let mut shares = vec![Share::default(); edges.len() - 1];
        let (begin, end) = (edges[0], edges[edges.len() - 1]);
        let mut first = 0;
        for (segment, member) in &segments {
            if member.base >= end || shares.is_empty() {
                break;
            }
            let within = begin.saturating_sub(member.base);
            let blocks = &segment.blocks[segment.blocks.partition_point(|block| block.end().get() <= within)..];
            for block in blocks {
                let start = member.base + block.offset.get().min(member.size - 1);
                if start >= end {
                    break;
                }
                while edges[first + 1] <= start {
                    first += 1;
                }
                share_out(block, start, tone(segment, block), &edges[first..], &mut shares[first..]);
            }
            release(segment, *member, &edges, &mut shares);
        }
        let sizes = edges.windows(2).map(|pair| pair[1] - pair[0]);
        let halves = shares.iter().zip(sizes).map(|(share, size)| share.half(size)).collect();
        let members = segments.into_iter().map(|(_, member)| member).collect();
        Self { members, size, count, from, halves }
    }

    /// The halves of the given cells, as far as they are here.
    pub fn cells(&self, from: usize, count: usize) -> &[Half] {
        let from = (from * 2).saturating_sub(self.from);
        self.halves.get(from..(from + count * 2).min(self.halves.len())).unwrap_or_default()
    }

    /// The halves that `size` bytes from `address` on touch.
    fn touching(&mut self, address: u64, size: u64) -> &mut [Half] {
        let holds = |member: &&Member| (member.start..member.start.saturating_add(member.size)).contains(&address);
        let Some(member) = self.members.iter().find(holds) else { return &mut [] };
        let at = |offset: u64| {
            usize::try_from(u128::from(offset) * self.count as u128 / u128::from(self.size)).unwrap_or(usize::MAX)
        };
        let begin = address - member.start;
        let last = begin.saturating_add(size.max(1)).min(member.size) - 1;
        let length = self.halves.len();
        let from = at(member.base + begin.min(last)).saturating_sub(self.from).min(length);
        let to = (at(member.base + last) + 1).saturating_sub(self.from).clamp(from, length);
        &mut self.halves[from..to]
    }

    /// Marks the halves that an op's blocks touch.
    pub fn light(&mut self, touched: &[TouchedBlock]) {
        for block in touched {
            for half in self.touching(block.address.0, block.size.get()) {
                half.lit = Some(block.taken.is_some());
            }
        }
    }

    /// Marks the selection: `size` bytes from `address` on.
    pub fn pick(&mut self, address: u64, size: u64) {
        for half in self.touching(address, size) {
            half.picked = true;
        }
    }
}

/// Adds a segment's releasable bytes: all of an empty segment, otherwise whole empty pages.
fn release(segment: &SegmentView, member: Member, edges: &[u64], shares: &mut [Share]) {
    let mut add = |bytes: Range<u64>| {
        let (begin, end) = (member.base + bytes.start, member.base + bytes.end);
        let first = edges.partition_point(|edge| *edge <= begin).saturating_sub(1);
        for (share, edge) in shares.iter_mut().zip(edges.windows(2)).skip(first) {
            if edge[0] >= end {
                break;
            }
            share.releasable += edge[1].min(end).saturating_sub(edge[0].max(begin));
        }
    };
    if segment.blocks.is_empty() {
        add(0..member.size);
    } else if segment.page.is_some() {
        let (begin, end) = (edges[0], edges[edges.len() - 1]);
        let first = segment.blocks.partition_point(|block| member.base + block.end().get() <= begin);
        let behind = segment.blocks.partition_point(|block| member.base + block.offset.get() < end);
        for hole in (first..=behind).filter_map(|index| segment.hole_before(index)) {
            add(segment.whole_pages(hole.offset.get()..hole.end().get()));
        }
    }
}

/// Adds a block to the half cells that it touches, starting with the first one given.
fn share_out(block: &BlockView, start: u64, tone: Option<Tone>, edges: &[u64], shares: &mut [Share]) {
    let end = start.saturating_add(block.size.get().max(1));
    let asked = start.saturating_add(block.requested.get()).min(end);
    let mut last = 0;
    for (index, share) in shares.iter_mut().enumerate() {
        if index > 0 && edges[index] >= end {
            break;
        }
        last = index;
        let Some(tone) = tone else {
            share.aside = true;
            continue;
        };
        let (from, to) = (edges[index].max(start), edges[index + 1].min(end));
        let held = to.saturating_sub(from);
        let live = asked.min(to).saturating_sub(from);
        share.blocks += 1;
        if block.pending {
            share.pending += held.max(1);
        } else {
            share.live[usize::from(tone.0) % Tone::COUNT] += live;
            share.rounding += held - live.min(held);
        }
    }
    // A block that continues beyond these half cells ends elsewhere.
    if edges.get(last + 1).is_none_or(|edge| *edge >= end) {
        shares[last].ends += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use vramlab_allocator::PoolKind;
    use vramlab_allocator::units::{Address, Bytes, StreamId};
    use vramlab_model::{Category, NameId};

    fn segment(size: u64, blocks: Vec<BlockView>) -> SegmentView {
        SegmentView {
            address: Address(0),
            size: Bytes(size),
            pool: PoolKind::Large,
            stream: StreamId::DEFAULT,
            expandable: false,
            page: None,
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

    fn halves(segment: &SegmentView, cells: usize) -> Vec<Half> {
        Strip::new([segment], 2 * cells, 0..cells, |_, block| Some(Tone::of(block.category))).halves
    }

    fn kinds(segment: &SegmentView, cells: usize) -> Vec<CellKind> {
        halves(segment, cells).into_iter().map(|half| half.kind).collect()
    }

    fn live(category: Category) -> CellKind {
        CellKind::Live(Tone::of(category))
    }

    #[test]
    fn bytes_fall_into_their_half_cells() {
        let blocks = vec![block(0, 20, 20, Category::Parameter), block(40, 20, 8, Category::Gradient)];
        let segment = segment(80, blocks);
        let (parameter, gradient, free) = (live(Category::Parameter), live(Category::Gradient), CellKind::Stranded);
        assert_eq!(kinds(&segment, 4), [parameter, parameter, free, free, gradient, CellKind::Rounding, free, free]);
        let ends: Vec<bool> = halves(&segment, 4).into_iter().map(|half| half.ends).collect();
        assert_eq!(ends, [false, true, false, false, false, true, false, false]);
    }

    #[test]
    fn an_edge_is_seen_where_one_block_follows_another_and_not_in_a_crowd() {
        let follow = |sizes: &[u64]| {
            let mut offset = 0;
            let blocks = sizes.iter().map(|&size| {
                offset += size;
                block(offset - size, size, size, Category::Input)
            });
            segment(80, blocks.collect())
        };
        let ends =
            |sizes: &[u64]| -> Vec<bool> { halves(&follow(sizes), 2).into_iter().map(|half| half.ends).collect() };
        assert_eq!(ends(&[30, 50]), [false, true, false, true]);
        assert_eq!(ends(&[22, 5, 5, 48]), [false, false, false, true]);
    }

    #[test]
    fn an_empty_segment_is_releasable_and_so_are_whole_free_pages() {
        assert_eq!(kinds(&segment(64, vec![]), 1), [CellKind::Releasable; 2]);
        let paged = SegmentView { page: Some(Bytes(20)), ..segment(80, vec![block(0, 10, 10, Category::Input)]) };
        let (free, back) = (CellKind::Stranded, CellKind::Releasable);
        assert_eq!(kinds(&paged, 4), [live(Category::Input), free, back, back, back, back, back, back]);
    }

    #[test]
    fn a_pending_block_is_seen_among_larger_ones() {
        let mut pending = block(126, 1, 1, Category::Activation);
        pending.pending = true;
        let segment = segment(128, vec![block(0, 126, 126, Category::Parameter), pending]);
        assert_eq!(kinds(&segment, 1), [live(Category::Parameter), CellKind::Pending]);
    }

    #[test]
    fn what_is_not_looked_for_is_set_aside_and_what_is_stays_among_it() {
        let blocks = vec![
            block(0, 38, 38, Category::Parameter),
            block(38, 2, 2, Category::Gradient),
            block(40, 40, 40, Category::Input),
        ];
        let segment = segment(80, blocks);
        let only = |_: &SegmentView, block: &BlockView| (block.category == Category::Gradient).then_some(Tone(1));
        let strip = Strip::new([&segment], 4, 0..2, only);
        let kinds: Vec<CellKind> = strip.halves.iter().map(|half| half.kind).collect();
        assert_eq!(kinds, [CellKind::Aside, CellKind::Live(Tone(1)), CellKind::Aside, CellKind::Aside]);
    }

    #[test]
    fn the_blocks_of_an_op_are_lit_and_what_is_selected_is_marked() {
        let segment = segment(80, vec![]);
        let mut strip = Strip::new([&segment], 8, 0..4, |_, _| None);
        let touched = |offset: u64, size, taken: bool| TouchedBlock {
            address: Address(offset),
            size: Bytes(size),
            taken: taken.then_some(Category::Activation),
        };
        strip.light(&[touched(10, 15, true), touched(79, 1, false), touched(80, 10, true)]);
        strip.pick(35, 6);
        let lit: Vec<Option<bool>> = strip.halves.iter().map(|half| half.lit).collect();
        let taken = Some(true);
        assert_eq!(lit, [None, taken, taken, None, None, None, None, Some(false)]);
        let picked: Vec<bool> = strip.halves.iter().map(|half| half.picked).collect();
        assert_eq!(picked, [false, false, false, true, true, false, false, false]);
    }

    #[test]
    fn segments_that_share_a_strip_lie_in_it_one_after_the_other() {
        let at = |address, blocks| SegmentView { address: Address(address), ..segment(20, blocks) };
        let segments = [
            at(1000, vec![block(0, 10, 10, Category::Parameter)]),
            at(500, vec![]),
            at(2000, vec![block(10, 10, 10, Category::Gradient)]),
        ];
        let mut strip = Strip::new(&segments, 6, 0..3, |_, block| Some(Tone::of(block.category)));
        strip.pick(2010, 10);
        strip.light(&[TouchedBlock { address: Address(505), size: Bytes(1), taken: Some(Category::Activation) }]);
        let kinds: Vec<CellKind> = strip.halves.iter().map(|half| half.kind).collect();
        let (free, back) = (CellKind::Stranded, CellKind::Releasable);
        assert_eq!(kinds, [live(Category::Parameter), free, back, back, free, live(Category::Gradient)]);
        assert!(strip.halves.iter().map(|half| half.picked).eq([false, false, false, false, false, true]));
        assert!(strip.halves.iter().map(|half| half.lit.is_some()).eq([false, false, true, false, false, false]));
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
            segment(size, blocks)
        }
    }

    proptest! {
        #[test]
        fn no_block_is_lost(segment in any_segment(), cells in 1usize..200) {
            let halves = halves(&segment, cells);
            prop_assert_eq!(halves.len(), cells * 2);
            for block in segment.blocks.iter() {
                let at = |byte: u64| (u128::from(byte) * halves.len() as u128 / u128::from(segment.size.get())) as usize;
                for index in [at(block.offset.get()), at(block.offset.get() + block.size.get() - 1)] {
                    prop_assert!(!halves[index].kind.is_free(), "block {block:?} at {index}");
                }
            }
        }

        #[test]
        fn some_cells_are_what_they_are_among_all(segment in any_segment(), cells in 1usize..200, from in 0usize..200, to in 0usize..200) {
            let (from, to) = (from.min(cells), to.clamp(from.min(cells), cells));
            let tone = |_: &SegmentView, block: &BlockView| Some(Tone::of(block.category));
            let (mut all, mut some) = (Strip::new([&segment], 2 * cells, 0..cells, tone), Strip::new([&segment], 2 * cells, from..to, tone));
            let (third, sixth) = (segment.size.get() / 3, segment.size.get() / 6);
            all.pick(third, sixth);
            some.pick(third, sixth);
            let kinds = |halves: &[Half]| halves.iter().map(|half| (half.kind, half.picked)).collect::<Vec<_>>();
            prop_assert_eq!(kinds(&some.halves), kinds(all.cells(from, to - from)));
        }
    }
}
