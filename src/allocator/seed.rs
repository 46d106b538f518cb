//! An allocator that starts in the middle of a program's life.

use thiserror::Error;

use super::source::SegmentSource;
use crate::block::{Block, BlockId, Usage};
use crate::caching::CachingAllocator;
use crate::home::{Home, OwnerId, PoolKind};
use crate::pool_id::PoolId;
use crate::query::{BlockState, SegmentSnapshot};
use crate::range::{Range, RangeId};
use crate::settings::Settings;
use crate::statistics::amount;
use crate::trace::TraceSink;
use crate::units::{Address, Bytes, StreamId};

/// The state that an allocator starts with.
///
/// Two things are unknown and so not in it: how long free blocks have been unused, which garbage collection needs, and
/// the bytes that free blocks were last asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// Segments and mapped runs by address, each with all its blocks in address order. Free neighbours are one block.
    ///
    /// A private pool that a segment names gets one user.
    pub segments: Vec<SegmentSnapshot>,
    /// The address ranges of expandable segments, by address.
    pub ranges: Vec<RangeSeed>,
    /// The side stream that each pending block waits for, by the block's first byte.
    pub waiting: Vec<(Address, StreamId)>,
}

/// The address range of an expandable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSeed {
    /// First byte.
    pub base: Address,
    /// Bytes reserved.
    pub size: Bytes,
    /// Mapping unit.
    pub page: Bytes,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// The pool that the range serves.
    pub pool: PoolKind,
}

/// A seed that describes an impossible state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no allocator can hold what lies at {address}; pass segments that do not overlap, each covered by its blocks")]
pub struct SeedError {
    /// Where the error is.
    pub address: Address,
}

/// The blocks of a segment or range, as far as they have been stored.
struct Chain {
    range: Option<RangeId>,
    size: Bytes,
    owner: Option<OwnerId>,
    last: Option<BlockId>,
}

impl Chain {
    const fn new(range: Option<RangeId>, size: Bytes, owner: Option<OwnerId>) -> Self {
        Self { range, size, owner, last: None }
    }
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// An allocator that holds what `seed` says, counted in its statistics. The source is not asked for this memory,
    /// and the sink does not hear of it. The order in which segments were taken is unknown, so they count as taken in
    /// address order.
    ///
    /// # Errors
    /// [`SeedError`] when segments overlap or blocks don't cover their segment.
    pub fn seeded(source: S, settings: Settings, sink: T, seed: &Seed) -> Result<Self, SeedError> {
        let mut allocator = Self::new(source, settings, sink);
        let mut end = Address(0);
        let plain = seed.segments.iter().filter(|segment| !segment.expandable).map(|of| (of.address, of.size));
        let mut places: Vec<(Address, Bytes)> =
            plain.chain(seed.ranges.iter().map(|range| (range.base, range.size))).collect();
        places.sort_unstable();
        for (address, size) in places {
            let error = SeedError { address };
            if address < end || size == Bytes::ZERO {
                return Err(error);
            }
            end = address.0.checked_add(size.0).map(Address).ok_or(error)?;
        }
        for segment in seed.segments.iter().filter(|segment| !segment.expandable) {
            let owner = allocator.seed_owner(segment.pool_id);
            allocator.seed_blocks(segment, &mut Chain::new(None, segment.size, owner))?;
            allocator.count_seeded(segment, owner);
        }
        let mut runs = seed.segments.iter().filter(|segment| segment.expandable).peekable();
        for range in &seed.ranges {
            let mut mapped = Vec::new();
            while let Some(run) = runs.next_if(|run| run.address < range.base.offset(range.size)) {
                mapped.push(run);
            }
            allocator.seed_range(range, &mapped)?;
        }
        if let Some(run) = runs.next() {
            return Err(SeedError { address: run.address });
        }
        let pending = allocator.seeded_pending();
        for (address, stream) in &seed.waiting {
            let error = SeedError { address: *address };
            // A pending block waits for one event of a side stream.
            let at = pending.binary_search_by_key(address, |(of, _)| *of).map_err(|_| error)?;
            allocator.await_streams(pending[at].1, &[*stream]);
        }
        allocator.count_split();
        allocator.statistics.reset_peak();
        Ok(allocator)
    }

    fn seed_range(&mut self, range: &RangeSeed, runs: &[&SegmentSnapshot]) -> Result<(), SeedError> {
        let RangeSeed { base, size, page, stream, pool } = *range;
        if page == Bytes::ZERO || runs.is_empty() {
            return Err(SeedError { address: base });
        }
        let pool_id = runs[0].pool_id;
        let home = Home { owner: self.seed_owner(pool_id), kind: pool };
        let mut chain = Chain::new(Some(self.ranges.insert(Range { base, size, page })), size, home.owner);
        self.count_segment(home, true);
        let mut at = base;
        for run in runs {
            if run.address < at || (run.stream, run.pool, run.pool_id) != (stream, pool, pool_id) {
                return Err(SeedError { address: run.address });
            }
            if run.address > at {
                self.seed_gap(range, at, run.address, &mut chain);
            }
            self.seed_blocks(run, &mut chain)?;
            at = run.address.offset(run.size);
            self.statistics.reserved_bytes.increase(pool, amount(run.size));
            self.count_private(home, run.size, Bytes::ZERO);
            self.reserved += run.size;
        }
        let end = base.offset(size);
        if at > end {
            return Err(SeedError { address: base });
        }
        if at < end {
            self.seed_gap(range, at, end, &mut chain);
        }
        Ok(())
    }

    /// Stores unmapped address space of a range.
    fn seed_gap(&mut self, range: &RangeSeed, start: Address, end: Address, chain: &mut Chain) {
        let mut block = Block::new(start, end.distance(start), range.stream, range.pool, chain.range);
        block.mapped = false;
        block.owner = chain.owner;
        let gap = self.seed_block(block, chain);
        self.insert_space(self.blocks[gap].home(), gap);
    }

    /// Stores the blocks of a segment or run.
    fn seed_blocks(&mut self, segment: &SegmentSnapshot, chain: &mut Chain) -> Result<(), SeedError> {
        let mut at = segment.address;
        for seed in &segment.blocks {
            if seed.address != at || seed.size == Bytes::ZERO {
                return Err(SeedError { address: seed.address });
            }
            at = at.0.checked_add(seed.size.0).map(Address).ok_or(SeedError { address: seed.address })?;
            let mut block = Block::new(seed.address, seed.size, segment.stream, segment.pool, chain.range);
            block.requested = seed.requested;
            block.owner = chain.owner;
            let (pool, size) = (segment.pool, amount(seed.size));
            let id = self.seed_block(block, chain);
            match seed.state {
                BlockState::Inactive => self.insert_free(id),
                state => {
                    self.statistics.active.increase(pool, 1);
                    self.statistics.active_bytes.increase(pool, size);
                    self.statistics.requested_bytes.increase(pool, amount(seed.requested));
                    if state == BlockState::ActiveAllocated {
                        self.blocks[id].usage = Usage::Allocated;
                        self.live.insert(seed.address, id);
                        self.statistics.allocation.increase(pool, 1);
                        self.statistics.allocated_bytes.increase(pool, size);
                        if seed.size >= self.settings.max_split_size {
                            self.statistics.oversize_allocations.increase(1);
                        }
                    } else {
                        self.blocks[id].usage = Usage::Pending(0);
                    }
                }
            }
        }
        if at != segment.address.offset(segment.size) {
            return Err(SeedError { address: segment.address });
        }
        Ok(())
    }

    /// Stores a block behind the last block of a chain, or as its head.
    fn seed_block(&mut self, block: Block, chain: &mut Chain) -> BlockId {
        let id = self.blocks.found(block, chain.last, chain.size);
        if chain.last.replace(id).is_none() {
            self.heads.insert(block.address, id);
        }
        id
    }

    /// The private pool named `pool`, which is created if there is none; `None` for the default pools.
    fn seed_owner(&mut self, pool: PoolId) -> Option<OwnerId> {
        if pool.is_default() {
            return None;
        }
        if self.private.find(pool).is_none() {
            self.create_pool(pool);
        }
        self.private.find(pool)
    }

    fn count_seeded(&mut self, segment: &SegmentSnapshot, owner: Option<OwnerId>) {
        let home = Home { owner, kind: segment.pool };
        self.count_segment(home, true);
        self.count_private(home, segment.size, Bytes::ZERO);
        self.reserved += segment.size;
        self.statistics.segment.increase(segment.pool, 1);
        self.statistics.reserved_bytes.increase(segment.pool, amount(segment.size));
        if segment.size >= self.settings.max_split_size {
            self.statistics.oversize_segments.increase(1);
        }
    }

    /// Pending blocks, by address.
    fn seeded_pending(&self) -> Vec<(Address, BlockId)> {
        let chains = self.heads.values().flat_map(|&head| {
            std::iter::successors(Some(head), |&id| self.blocks[id].next).map(|id| (self.blocks[id].address, id))
        });
        chains.filter(|(_, id)| matches!(self.blocks[*id].usage, Usage::Pending(_))).collect()
    }

    /// Counts free blocks in segments that are partly held.
    fn count_split(&mut self) {
        let split: Vec<(PoolKind, Bytes)> = self
            .heads
            .values()
            .flat_map(|&head| self.chain(head))
            .filter(|block| block.is_free() && block.is_split() && !block.is_expandable())
            .map(|block| (block.pool, block.size))
            .collect();
        for (pool, size) in split {
            self.statistics.inactive_split.increase(pool, 1);
            self.statistics.inactive_split_bytes.increase(pool, amount(size));
        }
    }
}
