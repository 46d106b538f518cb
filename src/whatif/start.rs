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

/// Where another allocator starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StartState {
    /// Nothing was held: it is asked from the program's first request on.
    #[default]
    Empty,
    /// What was held when the history began lies where the recording has it.
    Recorded,
    /// What was held when the history began is requested again: under these settings it would lie elsewhere.
    Anew,
}

/// Pieces that are thought to have been held before, at most about.
const MOST_GONE: u64 = 1 << 16;

/// The state that a history begins with. How it arose was not recorded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    /// Blocks that were held, by address.
    pub blocks: Vec<Early>,
    /// All segments and runs, by address, with all their blocks.
    segments: Vec<SegmentSnapshot>,
    /// The ranges of expandable segments; how far they reach is not known.
    ranges: Vec<RangeSeed>,
    /// The settings under which it arose.
    pub settings: Settings,
    /// What was asked for before that left no trace but free memory.
    pub past: AssumedPast,
}

/// What a program is thought to have held at once before its history began, beside what it held then.
///
/// Free memory at the beginning tells that there was more, and not when, nor in what pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AssumedPast {
    /// Bytes in all.
    pub bytes: Bytes,
    /// The largest piece.
    pub largest: Bytes,
}

/// One request that leads another allocator towards the state in which a history begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartRequest {
    /// A block that was held.
    Held(Early),
    /// One that was given back before.
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
    /// Given back already, while another stream worked on it.
    pub pending: bool,
}

/// A state as events tell it.
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
        (!segments.is_empty()).then_some(Start { blocks, segments, ranges, settings, past: AssumedPast::default() })
    }
}

impl Start {
    /// The same behind another past.
    pub fn behind(&self, past: AssumedPast) -> Self {
        Self { past, ..self.clone() }
    }

    /// Whether an allocator under `settings` could have reached the same segments by the same requests.
    pub fn could_be_under(&self, settings: &Settings) -> bool {
        let own = &self.settings;
        // Nothing in it is large enough to tell the two bounds apart.
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

    /// What to ask an allocator under other settings, by address: blocks that lie side by side were mostly taken one after the
    /// other. What is gone is given back when all is there.
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
        // So much free memory in small pieces tells nothing more than in larger ones.
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

    /// As an allocator can begin with it on a device of `total` bytes: every range is as long as that asks for, or ends where
    /// something else lies.
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
            // The device may be larger than was thought.
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
                // What it was asked for last, nothing tells.
                block.requested = Bytes::ZERO;
            }
        }
        seed
    }
}
