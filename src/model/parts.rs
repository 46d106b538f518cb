//! The parts of a segment: blocks, the holes between them, and the blocks that keep holes from being released.

use std::ops::Range;

use super::view::{BlockView, SegmentView};
use vramlab_allocator::units::{Address, Bytes};

/// A run of bytes of a segment: one allocated block, or free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPart {
    /// A block, by its index in the segment.
    Block(usize),
    /// Free bytes.
    Hole(Hole),
}

/// Free bytes between two blocks, or between a block and an end of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Bytes from the segment's start.
    pub offset: Bytes,
    /// Size.
    pub size: Bytes,
    /// The bytes of the hole that `empty_cache` would release: all of a segment without allocated blocks, otherwise
    /// whole pages of an expandable segment.
    pub releasable: Bytes,
    /// The number of blocks before it in the segment.
    pub before: usize,
}

impl Hole {
    /// Bytes that blocks keep from being released.
    #[must_use]
    pub fn stranded(&self) -> Bytes {
        self.size.saturating_sub(self.releasable)
    }

    /// Bytes from the segment's start to its end.
    #[must_use]
    pub fn end(&self) -> Bytes {
        self.offset + self.size
    }
}

/// Free bytes that a block keeps from being released to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedBytes {
    /// The number of bytes.
    pub free: Bytes,
    /// How many other blocks keep them too.
    pub others: usize,
}

impl BlockView {
    /// Bytes from the segment's start to its end.
    #[must_use]
    pub fn end(&self) -> Bytes {
        self.offset + self.size
    }

    /// Bytes beyond those requested.
    #[must_use]
    pub fn rounding(&self) -> Bytes {
        self.size.saturating_sub(self.requested)
    }
}

impl SegmentView {
    /// The address behind its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.0.saturating_add(self.size.0)
    }

    /// The index of the segment that contains an address. `segments` are in address order.
    #[must_use]
    pub fn around(segments: &[Self], address: Address) -> Option<usize> {
        let index = segments.partition_point(|segment| segment.address <= address).checked_sub(1)?;
        (address.0 < segments[index].end()).then_some(index)
    }

    /// The part at an address of the segment; `None` outside the segment.
    #[must_use]
    pub fn part_at(&self, address: Address) -> Option<SegmentPart> {
        let offset = Bytes(address.0.checked_sub(self.address.0)?);
        if offset >= self.size {
            return None;
        }
        let behind = self.blocks.partition_point(|block| block.offset <= offset);
        if let Some(index) = behind.checked_sub(1)
            && offset < self.blocks[index].end()
        {
            return Some(SegmentPart::Block(index));
        }
        self.hole_before(behind).map(SegmentPart::Hole)
    }

    /// The hole that ends where block `index` begins, or at the segment's end; `None` if there is none.
    #[must_use]
    pub fn hole_before(&self, index: usize) -> Option<Hole> {
        let offset = index.checked_sub(1).and_then(|last| self.blocks.get(last)).map_or(Bytes::ZERO, BlockView::end);
        let end = self.blocks.get(index).map_or(self.size, |block| block.offset);
        let size = end.saturating_sub(offset);
        (size > Bytes::ZERO).then(|| {
            let whole = self.whole_pages(offset.0..end.0);
            let releasable = if self.blocks.is_empty() { size } else { Bytes(whole.end.saturating_sub(whole.start)) };
            Hole { offset, size, releasable, before: index }
        })
    }

    /// The holes in address order. A segment without allocated blocks is one hole, all of it releasable.
    pub fn holes(&self) -> impl Iterator<Item = Hole> {
        (0..=self.blocks.len()).filter_map(|index| self.hole_before(index))
    }

    /// The free bytes that a block keeps from being released: those of its segment, or of the pages that it lies on.
    #[must_use]
    pub fn pinned_by(&self, index: usize) -> Option<PinnedBytes> {
        let block = self.blocks.get(index)?;
        let held = self.unit_of(block.offset.0..block.end().0);
        let holders = self.holders(held.clone());
        let inside = |block: &BlockView| block.end().0.min(held.end).saturating_sub(block.offset.0.max(held.start));
        let used: u64 = self.blocks[holders.clone()].iter().map(inside).sum();
        Some(PinnedBytes {
            free: Bytes((held.end - held.start).saturating_sub(used)),
            others: holders.len().saturating_sub(1),
        })
    }

    /// The indices of the blocks that keep a hole from being released: all blocks of the segment, or those on the pages
    /// at the hole's ends.
    #[must_use]
    pub fn holders_of(&self, hole: &Hole) -> Vec<usize> {
        let Some(page) = self.page else { return (0..self.blocks.len()).collect() };
        let whole = self.whole_pages(hole.offset.0..hole.end().0);
        if whole.is_empty() {
            return self.holders(self.unit_of(hole.offset.0..hole.end().0)).collect();
        }
        let mut all = Vec::new();
        if whole.start > hole.offset.0 {
            all.extend(self.holders(whole.start - page.0..whole.start));
        }
        if whole.end < hole.end().0 {
            all.extend(self.holders(whole.end..whole.end + page.0));
        }
        all.dedup();
        all
    }

    /// The whole pages inside a run of free bytes; empty for segments that are not expandable.
    pub fn whole_pages(&self, free: Range<u64>) -> Range<u64> {
        match self.page {
            // A run of pages begins with a page.
            Some(Bytes(page)) if page > 0 => {
                let (first, end) = (free.start.div_ceil(page) * page, free.end / page * page);
                first..end.max(first)
            }
            _ => free.start..free.start,
        }
    }

    /// The smallest unit that contains `bytes` and can be released: the segment, or the pages that the bytes lie on.
    fn unit_of(&self, bytes: Range<u64>) -> Range<u64> {
        match self.page {
            Some(Bytes(page)) if page > 0 => {
                bytes.start / page * page..(bytes.end.div_ceil(page) * page).min(self.size.0)
            }
            _ => 0..self.size.0,
        }
    }

    /// The indices of the blocks that overlap a run of bytes.
    fn holders(&self, bytes: Range<u64>) -> Range<usize> {
        let first = self.blocks.partition_point(|block| block.end().0 <= bytes.start);
        let end = self.blocks.partition_point(|block| block.offset.0 < bytes.end);
        first..end.max(first)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Category, MemoryModel, NameId, synthetic};
    use vramlab_allocator::PoolKind;
    use vramlab_allocator::units::StreamId;

    fn segment(size: u64, page: Option<u64>, blocks: &[(u64, u64)]) -> SegmentView {
        let block = |&(offset, size): &(u64, u64)| BlockView {
            offset: Bytes(offset),
            size: Bytes(size),
            requested: Bytes(size),
            pending: false,
            category: Category::Other,
            name: NameId::NONE,
            op: NameId::NONE,
            born: 0,
        };
        SegmentView {
            address: Address(1000),
            size: Bytes(size),
            pool: PoolKind::Large,
            stream: StreamId::DEFAULT,
            expandable: page.is_some(),
            page: page.map(Bytes),
            blocks: Arc::new(blocks.iter().map(block).collect()),
        }
    }

    fn hole(offset: u64, size: u64, releasable: u64, before: usize) -> Hole {
        Hole { offset: Bytes(offset), size: Bytes(size), releasable: Bytes(releasable), before }
    }

    #[test]
    fn every_byte_lies_in_a_block_or_in_a_hole() {
        let segment = segment(100, None, &[(10, 20), (30, 10), (60, 40)]);
        assert_eq!(segment.holes().collect::<Vec<_>>(), [hole(0, 10, 0, 0), hole(40, 20, 0, 2)]);
        for (at, part) in [
            (1000, SegmentPart::Hole(hole(0, 10, 0, 0))),
            (1010, SegmentPart::Block(0)),
            (1029, SegmentPart::Block(0)),
            (1030, SegmentPart::Block(1)),
            (1059, SegmentPart::Hole(hole(40, 20, 0, 2))),
            (1099, SegmentPart::Block(2)),
        ] {
            assert_eq!(segment.part_at(Address(at)), Some(part), "{at}");
        }
        assert_eq!((segment.part_at(Address(999)), segment.part_at(Address(1100))), (None, None));
        let list = [segment.clone(), SegmentView { address: Address(2000), ..segment }];
        let around = |at| SegmentView::around(&list, Address(at));
        assert_eq!([999, 1000, 1099, 1100, 2050].map(around), [None, Some(0), Some(0), None, Some(1)]);
    }

    #[test]
    fn a_block_pins_the_free_bytes_of_its_segment_and_of_its_pages_only() {
        let plain = segment(100, None, &[(10, 20), (60, 10)]);
        assert_eq!(plain.pinned_by(0), Some(PinnedBytes { free: Bytes(70), others: 1 }));
        assert_eq!(segment(100, None, &[(0, 30)]).pinned_by(0), Some(PinnedBytes { free: Bytes(70), others: 0 }));
        // Pages of 20 bytes: the first block lies on the second and third page; the second block is on the third page too.
        let paged = segment(100, Some(20), &[(30, 15), (50, 5), (90, 5)]);
        assert_eq!(paged.pinned_by(0), Some(PinnedBytes { free: Bytes(20), others: 1 }));
        assert_eq!(paged.pinned_by(2), Some(PinnedBytes { free: Bytes(15), others: 0 }));
        assert_eq!(paged.pinned_by(3), None);
    }

    #[test]
    fn of_an_expandable_segment_whole_free_pages_are_no_part_of_what_is_stranded() {
        let paged = segment(100, Some(20), &[(0, 5), (90, 5)]);
        let holes: Vec<Hole> = paged.holes().collect();
        assert_eq!(holes, [hole(5, 85, 60, 1), hole(95, 5, 0, 2)]);
        assert_eq!(holes[0].stranded(), Bytes(25));
        assert_eq!(paged.holders_of(&holes[0]), [0, 1]);
        assert_eq!(paged.holders_of(&holes[1]), [1]);
        assert_eq!(segment(100, None, &[]).holes().collect::<Vec<_>>(), [hole(0, 100, 100, 0)]);
        assert_eq!(segment(100, None, &[(10, 5), (50, 5)]).holders_of(&hole(0, 10, 0, 0)), [0, 1]);
    }

    #[test]
    fn holes_come_to_what_the_ledger_says() {
        let mut memory = MemoryModel::new();
        let mut stranded = 0;
        for event in synthetic::training_run() {
            memory.apply(&event).unwrap();
            let segments: Vec<SegmentView> = memory.segments().map(|segment| segment.view()).collect();
            let sum = |bytes: fn(&Hole) -> Bytes| -> Bytes {
                segments.iter().flat_map(SegmentView::holes).map(|hole| bytes(&hole)).sum()
            };
            let ledger = memory.ledger();
            assert_eq!((sum(Hole::stranded), sum(|hole| hole.releasable)), (ledger.stranded, ledger.releasable));
            let largest = segments.iter().filter(|segment| !segment.expandable).flat_map(SegmentView::holes);
            assert_eq!(largest.map(|hole| hole.stranded()).max().unwrap_or_default(), memory.largest_hole());
            stranded += u64::from(ledger.stranded > Bytes::ZERO);
        }
        assert!(stranded > 100, "{stranded}");
    }
}
