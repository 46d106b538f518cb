//! The sums of each pool of each stream, and the segments that strand most.

use std::collections::BTreeMap;

use super::{BlockView, SegmentView};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// The sums of all segments of one pool that serve one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTotals {
    /// The pool.
    pub pool: PoolKind,
    /// The stream.
    pub stream: StreamId,
    /// True if they are parts of expandable ranges.
    pub expandable: bool,
    /// The number of segments.
    pub segments: u64,
    /// Their bytes.
    pub reserved: Bytes,
    /// Requested bytes of live blocks.
    pub live: Bytes,
    /// The rest of live blocks.
    pub rounding: Bytes,
    /// Freed, but waiting for another stream.
    pub pending: Bytes,
    /// Free bytes.
    pub free: Bytes,
    /// The largest free piece.
    pub largest_free: Bytes,
}

impl PoolTotals {
    const fn none(pool: PoolKind, stream: StreamId, expandable: bool) -> Self {
        let zero = Bytes::ZERO;
        Self {
            pool,
            stream,
            expandable,
            segments: 0,
            reserved: zero,
            live: zero,
            rounding: zero,
            pending: zero,
            free: zero,
            largest_free: zero,
        }
    }

    fn add(&mut self, segment: &SegmentView) {
        self.segments += 1;
        self.reserved += segment.size;
        // Blocks are in address order. The bytes between one block's end and the next one's begin are free.
        let mut end = Bytes::ZERO;
        for block in &*segment.blocks {
            self.leave_free(block.offset.saturating_sub(end));
            end = block.offset + block.size;
            if block.pending {
                self.pending += block.size;
            } else {
                self.live += block.requested;
                self.rounding += block.size.saturating_sub(block.requested);
            }
        }
        self.leave_free(segment.size.saturating_sub(end));
    }

    fn leave_free(&mut self, piece: Bytes) {
        self.free += piece;
        self.largest_free = self.largest_free.max(piece);
    }

    /// The totals of every pool and stream that has segments: small pools before large ones, streams in order.
    #[must_use]
    pub fn of(segments: &[SegmentView]) -> Vec<Self> {
        let mut pools: BTreeMap<(PoolKind, StreamId, bool), Self> = BTreeMap::new();
        for segment in segments {
            let (pool, stream, expandable) = (segment.pool, segment.stream, segment.expandable);
            let none = || Self::none(pool, stream, expandable);
            pools.entry((pool, stream, expandable)).or_insert_with(none).add(segment);
        }
        pools.into_values().collect()
    }
}

/// A segment whose free bytes can't be released, because blocks lie between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrandingSegment {
    /// First byte.
    pub address: Address,
    /// Size.
    pub size: Bytes,
    /// Free bytes in it.
    pub free: Bytes,
    /// The number of blocks in it.
    pub blocks: usize,
    /// The largest block.
    pub holder: BlockView,
}

impl StrandingSegment {
    /// The segments that strand most, the worst first, at most `most`. Expandable ranges are left out, because their
    /// free pages can be released.
    #[must_use]
    pub fn worst(segments: &[SegmentView], most: usize) -> Vec<Self> {
        let of = |segment: &SegmentView| {
            let held: Bytes = segment.blocks.iter().map(|block| block.size).sum();
            let holder = *segment.blocks.iter().max_by_key(|block| block.size)?;
            let (address, size, blocks) = (segment.address, segment.size, segment.blocks.len());
            Some(Self { address, size, free: size.saturating_sub(held), blocks, holder })
        };
        let ranges_left_out = segments.iter().filter(|segment| !segment.expandable);
        let mut all: Vec<Self> = ranges_left_out.filter_map(of).filter(|segment| segment.free > Bytes::ZERO).collect();
        all.sort_by_key(|segment| (std::cmp::Reverse(segment.free), segment.address));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{BlockView, Category, Lab, NameId, synthetic};
    use vramlab_allocator::units::Address;

    fn block(offset: u64, size: u64, requested: u64, pending: bool) -> BlockView {
        BlockView {
            offset: Bytes(offset),
            size: Bytes(size),
            requested: Bytes(requested),
            pending,
            category: Category::Activation,
            name: NameId::default(),
            op: NameId::default(),
            born: 0,
        }
    }

    fn segment(pool: PoolKind, stream: u64, size: u64, blocks: Vec<BlockView>) -> SegmentView {
        SegmentView {
            address: Address(0x1000),
            size: Bytes(size),
            pool,
            stream: StreamId(stream),
            expandable: false,
            page: None,
            blocks: Arc::new(blocks),
        }
    }

    #[test]
    fn segments_add_up_by_pool_and_stream_and_what_lies_between_blocks_is_free() {
        let segments = [
            segment(PoolKind::Large, 7, 100, vec![block(10, 20, 18, false), block(40, 30, 30, true)]),
            segment(PoolKind::Small, 0, 50, Vec::new()),
            segment(PoolKind::Large, 0, 60, vec![block(0, 60, 60, false)]),
            segment(PoolKind::Large, 7, 40, Vec::new()),
        ];
        let all = PoolTotals::of(&segments);
        let keys: Vec<(PoolKind, u64)> = all.iter().map(|row| (row.pool, row.stream.0)).collect();
        assert_eq!(keys, [(PoolKind::Small, 0), (PoolKind::Large, 0), (PoolKind::Large, 7)]);
        let expected = PoolTotals {
            segments: 2,
            reserved: Bytes(140),
            live: Bytes(18),
            rounding: Bytes(2),
            pending: Bytes(30),
            free: Bytes(90),
            largest_free: Bytes(40),
            ..PoolTotals::none(PoolKind::Large, StreamId(7), false)
        };
        assert_eq!(all[2], expected);
        assert_eq!((all[1].free, all[1].largest_free), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn segments_that_strand_most_come_first_and_what_can_go_is_none_of_them() {
        let at = |address, segment: SegmentView| SegmentView { address: Address(address), ..segment };
        let segments = [
            at(1, segment(PoolKind::Large, 0, 100, Vec::new())),
            at(2, segment(PoolKind::Large, 0, 100, vec![block(0, 90, 90, false)])),
            at(3, segment(PoolKind::Large, 0, 100, vec![block(0, 10, 9, false), block(50, 20, 9, true)])),
            at(4, segment(PoolKind::Large, 0, 100, vec![block(0, 100, 90, false)])),
            at(5, SegmentView { expandable: true, ..segment(PoolKind::Large, 0, 90, vec![block(0, 1, 1, false)]) }),
        ];
        let worst = StrandingSegment::worst(&segments, 9);
        let told: Vec<_> = worst.iter().map(|s| (s.address.0, s.free.0, s.blocks, s.holder.size.0)).collect();
        assert_eq!(told, [(3, 70, 2, 20), (2, 10, 1, 90)]);
        assert_eq!(StrandingSegment::worst(&segments, 1), worst[..1]);
    }

    #[test]
    fn the_pools_of_a_run_come_to_its_ledger() {
        let mut lab = Lab::new();
        for (position, event) in synthetic::training_run().iter().enumerate() {
            lab.apply(event);
            if position % 500 != 0 {
                continue;
            }
            let view = lab.view();
            let sum = |of: fn(&PoolTotals) -> Bytes| PoolTotals::of(&view.segments).iter().map(of).sum::<Bytes>();
            assert_eq!(sum(|row| row.reserved), view.ledger.reserved());
            assert_eq!(sum(|row| row.live), view.ledger.live);
            assert_eq!(sum(|row| row.rounding), view.ledger.rounding);
            assert_eq!(sum(|row| row.pending), view.ledger.pending);
            assert_eq!(sum(|row| row.free), view.ledger.free());
            let largest = PoolTotals::of(&view.segments).iter().map(|row| row.largest_free).max().unwrap_or_default();
            assert_eq!(largest, view.ledger.largest_free);
        }
    }
}
