//! What was there when a history began.

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

/// Segments that are guessed, at most: with 2 MiB each, more than any device holds.
const MOST_GUESSED: u64 = 1 << 16;

/// What was there when the history of a device began.
#[derive(Debug)]
pub struct Beginning {
    /// Where it begins.
    pub begins: Begins,
    /// Segments and held blocks.
    pub space: Space,
    /// Ranges of expandable segments, those of later too.
    pub ranges: Ranges,
    /// Sizes of blocks that are there at the end, by the entry that took them.
    pub sizes: HashMap<usize, Bytes>,
    /// Private pools of segments that are there at the end, by their first byte.
    pub pool_ids: HashMap<Address, PoolId>,
    /// Blocks, segments and entries that can't all be true.
    pub contradictions: u64,
    /// Segments that nothing tells of but the blocks in them.
    pub guessed_segments: u64,
}

impl Beginning {
    /// Concludes what was there from all entries and the end. Takes about as long as reading the entries once.
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
        // Nothing says how long the ring buffer was. People give it round lengths, and what it drops is dropped without
        // regard to what belongs together.
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

    /// Places blocks from the highest down, so that each is told where the next one begins.
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
            // Where there is memory only later, nothing can have been.
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

    /// Nothing tells of the segment around a block: one that holds just it.
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

    /// The private pool of what was taken at `address`, if that was still there at the end or the entry says so.
    pub fn pool_id(&self, entry: &TraceEntry) -> PoolId {
        entry.pool.or_else(|| self.pool_ids.get(&entry.address).copied()).unwrap_or_default()
    }

    /// Bytes of held blocks, pending ones included, and of segments.
    pub fn held(&self) -> (u64, Bytes, Bytes) {
        let (mut count, mut held) = (0, Bytes::ZERO);
        for (address, block) in self.space.blocks() {
            count += 1;
            held += block.end.distance(address);
        }
        let reserved = self.space.homes().map(|(address, home)| home.end.distance(address)).sum();
        (count, held, reserved)
    }

    /// True if something, then or later, belongs to a private pool.
    pub fn has_private_pools(&self, trace: &[TraceEntry]) -> bool {
        !self.pool_ids.is_empty()
            || self.space.homes().any(|(_, home)| home.pool_id != PoolId::DEFAULT)
            || trace.iter().any(|entry| entry.pool.is_some_and(|id| !id.is_default()))
    }
}
