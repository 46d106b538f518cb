//! What a run's allocator held when its history began.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::block_number::BlockNumber;
use super::driver::waiting_stream;
use super::pools::PrivateMemory;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockState, PoolId, RangeSeed, Seed, SegmentSnapshot, Settings, range_size, round};
use vramlab_model::{AllocatorState, Event, EventKind};

/// The state in which another allocator starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartState {
    /// Empty: it gets the program's requests from the first one on.
    #[default]
    Empty,
    /// What was held when the history began lies where the recording has it.
    Recorded,
    /// What was held when the history began is requested again, because under these settings it would lie elsewhere.
    Anew,
}

/// The approximate maximum of pieces that are assumed to have been held before.
const MOST_GONE: u64 = 1 << 16;

/// The state in which a history begins. How it arose was not recorded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    /// Blocks that were held, by address.
    pub blocks: Vec<Early>,
    /// All segments and mapped runs by address, with all their blocks.
    segments: Vec<SegmentSnapshot>,
    /// The ranges of expandable segments. Their lengths are unknown.
    ranges: Vec<RangeSeed>,
    /// The settings under which it arose.
    pub settings: Settings,
    /// Memory that was held before and left no trace except free memory.
    pub past: AssumedPast,
}

/// Memory that a program is assumed to have held at once before its history began, in addition to what it held then.
///
/// Free memory at the beginning shows that there was more, but not when, nor in which pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AssumedPast {
    /// The total bytes.
    pub bytes: Bytes,
    /// The largest piece.
    pub largest: Bytes,
}

/// A request that leads another allocator towards the state in which a history begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartRequest {
    /// A block that was held.
    Held(Early),
    /// A block that was freed before the history began.
    Gone { size: Bytes, stream: StreamId, pool: PoolId },
}

/// A block that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub block: BlockNumber,
    pub address: Address,
    pub requested: Bytes,
    pub stream: StreamId,
    pub pool: PoolId,
    /// True if it was already freed while another stream used it.
    pub pending: bool,
}

/// Collects a state from events.
#[derive(Clone, Debug, Default)]
pub(super) struct StateCollector {
    state: AllocatorState,
    ranges: BTreeMap<Address, RangeSeed>,
}

impl StateCollector {
    pub fn apply(&mut self, event: &Event) {
        self.state.apply(event);
        if let EventKind::SegmentMap { stream, pool, range, page, .. } = event.kind {
            self.ranges.entry(range).or_insert(RangeSeed { base: range, size: Bytes::ZERO, page, stream, pool });
        }
    }

    /// The state; `None` if nothing is held. Blocks are numbered consecutively.
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
        (!segments.is_empty()).then_some(Start { blocks, segments, ranges, settings, past: AssumedPast::default() })
    }
}

impl Start {
    /// The same state with another past.
    pub fn behind(&self, past: AssumedPast) -> Self {
        Self { past, ..self.clone() }
    }

    /// True if an allocator under `settings` could have reached the same segments with the same requests.
    pub fn could_be_under(&self, settings: &Settings) -> bool {
        let own = &self.settings;
        // No block in it is large enough to distinguish the two bounds.
        let split = own.max_split_size.min(settings.max_split_size);
        let same_split = (own.max_split_size, own.max_non_split_rounding)
            == (settings.max_split_size, settings.max_non_split_rounding)
            || !own.expandable_segments && self.segments.iter().all(|segment| segment.size < split);
        let sizes = || self.blocks.iter().map(|early| early.requested);
        let same_rounding = own.roundup_power2_divisions == settings.roundup_power2_divisions
            || sizes().all(|size| {
                round(size, &own.roundup_power2_divisions) == round(size, &settings.roundup_power2_divisions)
            });
        own.expandable_segments == settings.expandable_segments
            && own.large_segment_size == settings.large_segment_size
            && same_split
            && same_rounding
    }

    /// The requests for an allocator under other settings, by address, because adjacent blocks were mostly allocated
    /// one after the other. Blocks of the past are freed once everything exists.
    pub fn made(&self) -> Vec<StartRequest> {
        let mut free: Vec<(Address, Bytes, StreamId, PoolId)> = Vec::new();
        for segment in &self.segments {
            let blocks = segment.blocks.iter().filter(|block| block.state == BlockState::Inactive);
            free.extend(blocks.map(|block| (block.address, block.size, segment.stream, segment.pool_id)));
        }
        free.sort_by_key(|(address, size, ..)| (Reverse(*size), *address));
        let mut made: Vec<(Address, StartRequest)> =
            self.blocks.iter().map(|early| (early.address, StartRequest::Held(*early))).collect();
        let mut missing = self.past.bytes;
        // Smaller pieces of that much free memory would tell nothing more than larger ones.
        let largest = self.past.largest.max(Bytes(missing.0 / MOST_GONE));
        for (mut address, size, stream, pool) in free {
            let mut rest = size.min(missing);
            missing -= rest;
            while rest > Bytes::ZERO {
                let size = rest.min(largest);
                made.push((address, StartRequest::Gone { size, stream, pool }));
                address = address.offset(size);
                rest -= size;
            }
        }
        made.sort_by_key(|(address, _)| *address);
        made.into_iter().map(|(_, made)| made).collect()
    }

    /// The state as an allocator's seed on a device of `total` bytes. Every range is as long as that memory requires,
    /// or ends where something else lies.
    pub fn seed(&self, total: Bytes) -> Seed {
        let plain = self.segments.iter().filter(|segment| !segment.expandable).map(|segment| segment.address);
        let mut others: Vec<Address> = plain.chain(self.ranges.iter().map(|range| range.base)).collect();
        others.sort_unstable();
        let mut ranges = self.ranges.clone();
        for range in &mut ranges {
            let above = others.get(others.partition_point(|address| *address <= range.base));
            let room = above.map(|above| above.distance(range.base));
            let longest = range_size(total, range.page).unwrap_or(Bytes(1 << 60));
            let size = room.map_or(longest, |room| room.min(longest));
            range.size = Bytes(size.0 / range.page.0.max(1) * range.page.0);
            // The device may have more memory than was assumed.
            let first = self.segments.partition_point(|run| run.address < range.base);
            let end = room.map(|room| range.base.offset(room));
            let runs = self.segments[first..].iter().take_while(|run| end.is_none_or(|end| run.address < end));
            let reached = runs.filter(|run| run.expandable).map(|run| run.address.offset(run.size));
            let reached = reached.filter(|reached| end.is_none_or(|end| *reached <= end)).max();
            range.size = range.size.max(reached.map_or(Bytes::ZERO, |reached| reached.distance(range.base)));
        }
        let pending = self.blocks.iter().filter(|block| block.pending);
        let mut seed = Seed {
            segments: self.segments.clone(),
            ranges,
            waiting: pending.map(|block| (block.address, waiting_stream(block.block))).collect(),
        };
        for block in seed.segments.iter_mut().flat_map(|segment| &mut segment.blocks) {
            if block.state == BlockState::Inactive {
                // The last request for a free block is unknown.
                block.requested = Bytes::ZERO;
            }
        }
        seed
    }
}
