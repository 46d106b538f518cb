//! What a run's allocator held when its history began.

use std::collections::BTreeMap;

use super::ask::BlockNumber;
use super::driver::waiting_stream;
use super::pools::PrivateMemory;
use crate::allocator::{BlockState, PoolId, RangeSeed, Seed, SegmentSnapshot, Settings, range_size};
use crate::model::{AllocatorState, Event, EventKind};
use crate::units::{Address, Bytes, StreamId};

/// The state that a history begins with, which nobody saw come to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    /// Blocks that were held, by address.
    pub blocks: Vec<Early>,
    /// All segments and runs, by address, with all their blocks.
    segments: Vec<SegmentSnapshot>,
    /// The ranges of expandable segments; how far they reach is not known.
    ranges: Vec<RangeSeed>,
    /// The settings under which it came to be.
    pub settings: Settings,
}

/// A block that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub block: BlockNumber,
    pub address: Address,
    pub requested: Bytes,
    pub stream: StreamId,
    pub pool: PoolId,
    /// Given back already, while another stream worked on it.
    pub pending: bool,
}

/// A state as events tell it.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    state: AllocatorState,
    ranges: BTreeMap<Address, RangeSeed>,
}

impl Gathering {
    pub fn apply(&mut self, event: &Event) {
        self.state.apply(event);
        if let EventKind::SegmentMap { stream, pool, range, page, .. } = event.kind {
            self.ranges.entry(range).or_insert(RangeSeed { base: range, size: Bytes::ZERO, page, stream, pool });
        }
    }

    /// The state; `None` where nothing is held. Blocks are numbered one after the other.
    pub fn finish(self, private: &PrivateMemory) -> Option<Start> {
        let mut segments: Vec<SegmentSnapshot> = self.state.segments().collect();
        let mut blocks = Vec::new();
        for segment in &mut segments {
            segment.pool_id = private.pool_of(segment.address);
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
                blocks.push(Early {
                    block: BlockNumber::try_from(blocks.len()).ok()?,
                    address: block.address,
                    requested: block.requested,
                    stream: segment.stream,
                    pool: segment.pool_id,
                    pending: block.state == BlockState::ActivePendingFree,
                });
            }
        }
        let settings = self.state.settings().clone();
        let ranges = self.ranges.into_values().collect();
        (!segments.is_empty()).then_some(Start { blocks, segments, ranges, settings })
    }
}

impl Start {
    /// Free stretches of segments, each with the stream and the pool that it serves.
    pub fn free(&self) -> impl Iterator<Item = (Address, Bytes, StreamId, PoolId)> {
        self.segments.iter().flat_map(|segment| {
            let free = segment.blocks.iter().filter(|block| block.state == BlockState::Inactive);
            free.map(|block| (block.address, block.size, segment.stream, segment.pool_id))
        })
    }

    /// As an allocator can begin with it on a device of `total` bytes: every range is as long as that asks for, or ends where
    /// something else lies.
    pub fn seed(&self, total: Bytes) -> Seed {
        let mut ranges = self.ranges.clone();
        for range in &mut ranges {
            let is_above = |address: &Address| *address > range.base;
            let others = self.ranges.iter().map(|other| other.base);
            let plain = self.segments.iter().filter(|segment| !segment.expandable).map(|segment| segment.address);
            let room = others.chain(plain).filter(is_above).min().map(|above| above.distance(range.base));
            let longest = range_size(total, range.page).unwrap_or(Bytes(1 << 60));
            let size = room.map_or(longest, |room| room.min(longest));
            range.size = Bytes(size.0 / range.page.0.max(1) * range.page.0);
            // The device may be larger than was thought.
            let runs = self.segments.iter().filter(|run| run.expandable && run.address >= range.base);
            let end = runs.map(|run| run.address.offset(run.size)).filter(|end| {
                room.is_none_or(|room| *end <= range.base.offset(room))
            });
            range.size = range.size.max(end.max().map_or(Bytes::ZERO, |end| end.distance(range.base)));
        }
        let pending = self.blocks.iter().filter(|block| block.pending);
        let mut seed = Seed {
            segments: self.segments.clone(),
            ranges,
            waiting: pending.map(|block| (block.address, waiting_stream(block.block))).collect(),
        };
        for block in seed.segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            if block.state == BlockState::Inactive {
                // What it was asked for last, nothing tells.
                block.requested = Bytes::ZERO;
            }
        }
        seed
    }
}
