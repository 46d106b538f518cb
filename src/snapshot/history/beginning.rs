//! Memory as it was when a history began.

use std::collections::HashMap;

use super::doubtful::Doubtful;
use super::evidence::{EarlyBlock, Evidence};
use super::intervals::Intervals;
use super::ranges::Ranges;
use super::space::{HeldBlock, Home, Space};
use crate::Begins;
use crate::types::{Action, Snapshot, TraceEntry};
use vramlab_allocator::units::{Address, Bytes};
use vramlab_allocator::{PoolId, Settings, pool_of, round};

/// The most segments that are guessed: with 2 MiB each, more than any device holds.
const MOST_GUESSED: u64 = 1 << 16;

/// Memory as it was when the history of a device began.
#[derive(Debug)]
pub struct Beginning {
    /// Where the history begins.
    pub begins: Begins,
    /// Segments and allocated blocks.
    pub space: Space,
    /// Ranges of expandable segments, including those of later.
    pub ranges: Ranges,
    /// Sizes of blocks that still exist at the end, by the index of the entry that allocated them.
    pub sizes: HashMap<usize, Bytes>,
    /// Private pools of segments that still exist at the end, by their first byte.
    pub pool_ids: HashMap<Address, PoolId>,
    /// How many blocks, segments and entries contradict others.
    pub contradictions: u64,
    /// How many segments were guessed, because only their blocks show that they existed.
    pub guessed_segments: u64,
}

impl Beginning {
    /// Concludes from all entries and the end what existed at the beginning. Takes about as long as reading the entries once.
    pub fn of(snapshot: &Snapshot, device: usize, settings: &Settings) -> Self {
        let trace = snapshot.device_trace(device);
        let mut evidence = Evidence::of(snapshot, device);
        let ranges = Ranges::of(trace, &evidence, settings);
        let mut beginning = Self {
            begins: Begins::First,
            space: Space::default(),
            ranges,
            sizes: std::mem::take(&mut evidence.sizes),
            pool_ids: std::mem::take(&mut evidence.pool_ids),
            contradictions: evidence.contradictions,
            guessed_segments: 0,
        };
        beginning.place_segments(&mut evidence);
        beginning.place_blocks(std::mem::take(&mut evidence.blocks), &evidence.taken, trace, settings);
        beginning.begins = beginning.kind(trace);
        beginning
    }

    fn kind(&self, trace: &[TraceEntry]) -> Begins {
        if trace.is_empty() {
            return Begins::Nowhere;
        }
        if self.space.homes().next().is_none() {
            return Begins::First;
        }
        // No file says how long the ring buffer was. People choose round lengths, and the buffer drops entries without
        // regard to which belong together.
        let round_length = trace.len() >= 100 && (trace.len().is_multiple_of(100) || trace.len().is_power_of_two());
        let cut = trace.first().is_some_and(|entry| entry.action == Action::FreeCompleted);
        if round_length || cut { Begins::Ring } else { Begins::Late }
    }

    fn place_segments(&mut self, evidence: &mut Evidence) {
        evidence.segments.sort_by_key(|segment| segment.address);
        for segment in &evidence.segments {
            let home = Home {
                end: segment.address.offset(segment.size),
                stream: segment.stream,
                pool: segment.pool,
                pool_id: segment.pool_id,
                range: None,
            };
            if !self.space.add(segment.address, home) {
                self.contradictions += 1;
            }
        }
        for (start, end, index) in &self.ranges.early {
            let Some(range) = self.ranges.get(*index) else { continue };
            let (stream, pool, pool_id) = (range.stream, range.pool, range.pool_id);
            if !self.space.map(*start, Home { end: *end, stream, pool, pool_id, range: Some(*index) }) {
                self.contradictions += 1;
            }
        }
    }

    /// Places blocks from the highest down, so that the beginning of the next block is known for each.
    fn place_blocks(
        &mut self,
        mut blocks: Vec<EarlyBlock>,
        taken: &Intervals,
        trace: &[TraceEntry],
        settings: &Settings,
    ) {
        blocks.sort_by_key(|block| block.address);
        let mut doubtful = Doubtful::default();
        for block in blocks.iter().rev() {
            let lies = self.space.home(block.address).is_some();
            // Memory that appeared only later can't have held an early block.
            let later = taken.missing(block.address.0, block.address.0 + 1).is_empty();
            if !lies && (later || !self.guess_segment(block, settings)) {
                self.contradictions += 1;
                continue;
            }
            let size = block.size.or_else(|| self.space.size(block.address, block.requested, settings));
            let room = self.space.room(block.address).map(|(room, _)| room);
            if let (None, Some(size), Some((room, home))) = (block.size, size, self.space.room(block.address)) {
                doubtful.consider(block, size, room, home, settings);
            }
            match size.filter(|size| *size >= block.requested && Some(*size) <= room && *size > Bytes::ZERO) {
                Some(size) => self.space.hold(
                    block.address,
                    HeldBlock {
                        end: block.address.offset(size),
                        requested: block.requested,
                        pending: block.pending,
                        stack: block.stack,
                    },
                ),
                None => self.contradictions += 1,
            }
        }
        for (address, end) in doubtful.settle(trace) {
            self.space.resize(address, end);
        }
    }

    /// Guesses a segment that holds just `block`, because nothing else tells of its segment.
    fn guess_segment(&mut self, block: &EarlyBlock, settings: &Settings) -> bool {
        let size = block.size.unwrap_or_else(|| round(block.requested, &settings.roundup_power2_divisions));
        let end = block.address.offset(size);
        let pool = pool_of(size);
        let added = size > Bytes::ZERO
            && self.guessed_segments < MOST_GUESSED
            && self
                .space
                .add(block.address, Home { end, stream: block.stream, pool, pool_id: PoolId::DEFAULT, range: None });
        self.guessed_segments += u64::from(added);
        added
    }

    /// The private pool of the block or segment at the entry's address, if it still existed at the end or the entry names it.
    pub fn pool_id(&self, entry: &TraceEntry) -> PoolId {
        entry.pool.or_else(|| self.pool_ids.get(&entry.address).copied()).unwrap_or_default()
    }

    /// The number of allocated and pending blocks, their bytes, and the bytes of segments.
    pub fn held(&self) -> (u64, Bytes, Bytes) {
        let (mut count, mut held) = (0, Bytes::ZERO);
        for (address, block) in self.space.blocks() {
            count += 1;
            held += block.end.distance(address);
        }
        let reserved = self.space.homes().map(|(address, home)| home.end.distance(address)).sum();
        (count, held, reserved)
    }

    /// True if something, at the beginning or later, belongs to a private pool.
    pub fn has_private_pools(&self, trace: &[TraceEntry]) -> bool {
        !self.pool_ids.is_empty()
            || self.space.homes().any(|(_, home)| home.pool_id != PoolId::DEFAULT)
            || trace.iter().any(|entry| entry.pool.is_some_and(|id| !id.is_default()))
    }
}
