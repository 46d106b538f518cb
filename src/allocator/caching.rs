//! The caching allocator: requests, frees and the events of side streams.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use crate::allocator::block::{Block, BlockId, Blocks, Usage};
use crate::allocator::expandable::Ranges;
use crate::allocator::live::LiveBlocks;
use crate::allocator::pool::{Candidate, FreeKey, Pool, Position, Replaced};
use crate::allocator::rounding::{self, MIN_BLOCK, SMALL_SIZE};
use crate::allocator::statistics::amount;
use crate::allocator::{
    EventToken, OutOfMemory, PoolKind, SegmentSource, Settings, SettingsError, Statistics, TraceEvent, TraceSink,
};
use crate::units::{Address, Bytes, StreamId};

/// Requests from this size on fail before the allocator is asked, as PyTorch's do.
const UNREPRESENTABLE: Bytes = Bytes(1 << 60);

/// A block that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// First byte; the null address for a request of zero bytes.
    pub address: Address,
    /// Bytes of the block: the rounded size, or more where the rest was not split off.
    pub size: Bytes,
    /// Bytes asked for.
    pub requested: Bytes,
}

/// Why the allocator refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocError {
    /// Everything was tried.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// No device will ever have that much.
    #[error("{requested} can't be allocated on any device; check the shape of the tensor")]
    TooLarge {
        /// Bytes asked for.
        requested: Bytes,
    },
    /// The address is not that of a block that is handed out.
    #[error("{address} is not a block that is handed out; free each block once, at its first byte")]
    InvalidPointer {
        /// The address.
        address: Address,
    },
}

/// A memory fraction outside 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("a memory fraction of {fraction} is not possible; give a number from 0 to 1")]
pub struct InvalidFraction {
    /// The fraction.
    pub fraction: f64,
}

/// A request on its way through the allocator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub requested: Bytes,
    pub rounded: Bytes,
    pub segment: Bytes,
    pub stream: StreamId,
    pub pool: PoolKind,
    /// Expandable segments are on: decides how blocks are split, whatever they are.
    pub expandable: bool,
}

impl Request {
    pub fn new(requested: Bytes, stream: StreamId, settings: &Settings) -> Self {
        let rounded = rounding::round(requested, &settings.roundup_power2_divisions);
        Self {
            requested,
            rounded,
            segment: rounding::segment_size(rounded, settings.large_segment_size),
            stream,
            pool: rounding::pool_of(rounded),
            expandable: settings.expandable_segments,
        }
    }
}

/// PyTorch's native CUDA caching allocator for one device, without private pools.
///
/// Generic over where memory comes from (`S`) and who listens to its history (`T`). The rules are those of PyTorch
/// 2.11; every decision, statistic and trace event is meant to be the same.
#[derive(Debug)]
pub struct CachingAllocator<S, T = ()> {
    pub(super) source: S,
    pub(super) sink: T,
    pub(super) settings: Settings,
    pub(super) statistics: Statistics,
    pub(super) blocks: Blocks,
    pub(super) small: Pool,
    pub(super) large: Pool,
    /// Blocks that are handed out.
    pub(super) live: LiveBlocks,
    /// First blocks of all segments and ranges.
    pub(super) heads: BTreeMap<Address, BlockId>,
    pub(super) ranges: Ranges,
    /// Streams other than its own that use a live block (`record_stream`), by its address.
    pub(super) side_streams: BTreeMap<Address, Vec<StreamId>>,
    /// Events that pending blocks wait for, oldest first, by side stream.
    pub(super) events: BTreeMap<StreamId, VecDeque<(EventToken, BlockId)>>,
    pub(super) limit: Option<Bytes>,
    /// Bytes held from the driver.
    pub(super) reserved: Bytes,
    /// Memory of the device when the allocator was created.
    pub(super) device_total: Bytes,
    /// Counted in debug builds, which check everything now and then.
    pub(super) operations: u64,
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// An allocator that holds nothing yet. The settings' `per_process_memory_fraction` becomes its limit.
    pub fn new(source: S, settings: Settings, sink: T) -> Self {
        let device_total = source.memory().total;
        Self {
            statistics: Statistics::new(settings.max_split_size),
            limit: limit_of(settings.per_process_memory_fraction, device_total),
            source,
            sink,
            settings,
            blocks: Blocks::default(),
            small: Pool::default(),
            large: Pool::default(),
            live: LiveBlocks::default(),
            heads: BTreeMap::new(),
            ranges: Ranges::default(),
            side_streams: BTreeMap::new(),
            events: BTreeMap::new(),
            reserved: Bytes::ZERO,
            device_total,
            operations: 0,
        }
    }

    /// Hands out a block for `size` bytes that work on `stream` may use at once.
    ///
    /// Zero bytes get the null address and leave no trace.
    ///
    /// # Errors
    /// [`AllocError::OutOfMemory`] when neither the cache nor the driver nor giving back all cached memory could serve
    /// the request; [`AllocError::TooLarge`] from 2⁶⁰ bytes on.
    pub fn malloc(&mut self, size: Bytes, stream: StreamId) -> Result<Allocation, AllocError> {
        if size == Bytes::ZERO {
            return Ok(Allocation { address: Address(0), size, requested: size });
        }
        if size >= UNREPRESENTABLE {
            return Err(AllocError::TooLarge { requested: size });
        }
        self.process_events();
        let request = Request::new(size, stream, &self.settings);
        let (id, position) = match self.find_free(&request) {
            Some(Candidate { id, position }) => (id, Some(position)),
            None => match self.obtain(&request) {
                Some(id) => (id, None),
                None => return Err(AllocError::OutOfMemory(Box::new(self.out_of_memory(&request)))),
            },
        };
        let allocation = self.hand_out(id, position, &request);
        self.verify(Some(allocation.address));
        Ok(allocation)
    }

    /// Takes a block back. It can be used again at once, unless streams other than its own were recorded for it:
    /// then when their present work is done. The null address is ignored.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] if no block that is handed out starts at `address`.
    pub fn free(&mut self, address: Address) -> Result<(), AllocError> {
        if address == Address(0) {
            return Ok(());
        }
        let id = self.live.remove(address).ok_or(AllocError::InvalidPointer { address })?;
        let side_streams = if self.side_streams.is_empty() { None } else { self.side_streams.remove(&address) };
        let block = &mut self.blocks[id];
        block.usage = Usage::Pending(0);
        let (pool, size, requested, stream) = (block.pool, block.size, block.requested, block.stream);
        self.statistics.allocation.decrease(pool, 1);
        self.statistics.allocated_bytes.decrease(pool, amount(size));
        self.sink.trace(&TraceEvent::FreeRequested { address, requested, stream });
        if size >= self.settings.max_split_size {
            self.statistics.oversize_allocations.decrease(1);
        }
        match side_streams {
            None => self.free_block(id),
            Some(streams) => self.await_streams(id, &streams),
        }
        self.verify(None);
        Ok(())
    }

    /// Tells that work on `stream` uses the block at `address`: after `free` it is pending until that work is done.
    /// The block's own stream, and addresses that are not handed out, are ignored.
    pub fn record_stream(&mut self, address: Address, stream: StreamId) {
        let Some(id) = self.live.get(address) else { return };
        if stream != self.blocks[id].stream {
            let streams = self.side_streams.entry(address).or_default();
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
    }

    /// Completes pending blocks whose events are done, first in first out per side stream. Each `malloc` begins so.
    pub fn process_events(&mut self) {
        if !self.events.is_empty() {
            self.complete_events(false);
        }
    }

    /// The most that may be held from the driver; `None`: all there is. Lowering it gives nothing back.
    pub const fn set_limit(&mut self, limit: Option<Bytes>) {
        self.limit = limit;
    }

    /// The limit as a share of the device's memory (`set_per_process_memory_fraction`); 1 removes it.
    ///
    /// # Errors
    /// [`InvalidFraction`] outside 0 to 1.
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), InvalidFraction> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(InvalidFraction { fraction });
        }
        self.limit = limit_of(fraction, self.device_total);
        Ok(())
    }

    /// Reads a configuration string at run time, as [`Settings::apply`]. What was handed out stays as it is.
    ///
    /// # Errors
    /// [`SettingsError`]; settings before the one refused are applied.
    pub fn apply_settings(&mut self, text: &str) -> Result<(), SettingsError> {
        self.settings.apply(text)
    }

    /// Makes every peak the current value.
    pub fn reset_peak_statistics(&mut self) {
        self.statistics.reset_peak();
    }

    /// Starts all accumulated counts from zero.
    pub fn reset_accumulated_statistics(&mut self) {
        self.statistics.reset_accumulated();
    }

    pub(super) const fn pool(&self, kind: PoolKind) -> &Pool {
        match kind {
            PoolKind::Small => &self.small,
            PoolKind::Large => &self.large,
        }
    }

    pub(super) const fn pool_mut(&mut self, kind: PoolKind) -> &mut Pool {
        match kind {
            PoolKind::Small => &mut self.small,
            PoolKind::Large => &mut self.large,
        }
    }

    /// Garbage is collected, and free blocks age, only under a limit.
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// The free block that serves `request`, if one does. It stays where it is until it is handed out.
    #[inline]
    fn find_free(&mut self, request: &Request) -> Option<Candidate> {
        if self.collects_garbage() {
            self.pool_mut(request.pool).lookups += 1;
        }
        self.best_fit(request)
    }

    /// The free block that serves `request`. Only one candidate is held against the oversize rules.
    #[inline]
    pub(super) fn best_fit(&self, request: &Request) -> Option<Candidate> {
        let pool = self.pool(request.pool);
        let mut found = pool.first_from(FreeKey::at_least(request.stream, request.rounded))?;
        if self.blocks[found.id].is_expandable() {
            found = if request.expandable { self.prefer_hole(pool, found) } else { self.skip_expandable(pool, found)? };
        }
        let (size, settings) = (self.blocks[found.id].size, &self.settings);
        let refused = if request.rounded < settings.max_split_size {
            size >= settings.max_split_size
        } else {
            size.0 >= request.rounded.0.saturating_add(settings.max_non_split_rounding.0)
        };
        (!refused).then_some(found)
    }

    /// Everything that can bring memory for a request that no free block serves.
    fn obtain(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if let Some(id) = self.grow(request) {
            return Some(id);
        }
        if self.release_oversize(request)
            && let Some(id) = self.grow(request)
        {
            return Some(id);
        }
        self.release_cached();
        self.statistics.num_alloc_retries += 1;
        self.grow(request)
    }

    /// One attempt to get memory from the driver. The block is not entered among the free ones.
    fn grow(&mut self, request: &Request) -> Option<BlockId> {
        if !self.within_limit(request.segment) {
            return None;
        }
        if request.expandable {
            return self.grow_expandable(request);
        }
        let address = self.source.malloc(request.segment).ok()?;
        let Request { segment: size, stream, pool, .. } = *request;
        let id = self.blocks.insert(Block::new(address, size, stream, pool, None));
        self.heads.insert(address, id);
        self.reserved += size;
        self.statistics.segment.increase(pool, 1);
        self.statistics.reserved_bytes.increase(pool, amount(size));
        self.statistics.num_device_alloc += 1;
        if size >= self.settings.max_split_size {
            self.statistics.oversize_segments.increase(1);
        }
        self.sink.trace(&TraceEvent::SegmentAlloc { address, size, stream, pool });
        Some(id)
    }

    /// The limit allows `segment` bytes more, all that is nominally fetched even where less will be mapped.
    pub(super) fn within_limit(&self, segment: Bytes) -> bool {
        self.limit.is_none_or(|limit| self.reserved.0.saturating_add(segment.0) <= limit.0)
    }

    /// Splits a block where the rules say so, and gives it to the program. It stands at `position` among the free
    /// blocks, or is in no set.
    fn hand_out(&mut self, id: BlockId, position: Option<Position>, request: &Request) -> Allocation {
        let block = &self.blocks[id];
        let (was_split, plain, rest) = (block.is_split(), !block.is_expandable(), block.size - request.rounded);
        let pool = request.pool;
        if self.splits(request, rest) {
            let rest_id = self.blocks.split(id, request.rounded);
            self.insert_free(rest_id, position.map(Replaced::At));
            if plain && was_split {
                self.statistics.inactive_split_bytes.decrease(pool, amount(request.rounded));
            } else if plain {
                self.statistics.inactive_split.increase(pool, 1);
                self.statistics.inactive_split_bytes.increase(pool, amount(rest));
            }
        } else {
            if let Some(position) = position {
                self.pool_mut(pool).free.remove_at(position);
            }
            if plain && was_split {
                self.statistics.inactive_split.decrease(pool, 1);
                self.statistics.inactive_split_bytes.decrease(pool, amount(self.blocks[id].size));
            }
        }

        let block = &mut self.blocks[id];
        block.usage = Usage::Allocated;
        block.requested = request.requested;
        let (address, size, requested) = (block.address, block.size, block.requested);
        self.live.insert(address, id);
        self.statistics.allocation.increase(pool, 1);
        self.statistics.allocated_bytes.increase(pool, amount(size));
        self.statistics.active.increase(pool, 1);
        self.statistics.active_bytes.increase(pool, amount(size));
        self.statistics.requested_bytes.increase(pool, amount(requested));
        if size >= self.settings.max_split_size {
            self.statistics.oversize_allocations.increase(1);
        }
        self.sink.trace(&TraceEvent::Alloc { address, requested, size, stream: request.stream, pool });
        Allocation { address, size, requested }
    }

    /// True if `rest` bytes behind the request become a block of their own.
    fn splits(&self, request: &Request, rest: Bytes) -> bool {
        if request.pool == PoolKind::Small || request.expandable {
            rest.0 >= MIN_BLOCK
        } else {
            request.rounded < self.settings.max_split_size && rest.0 > SMALL_SIZE
        }
    }

    /// Enters a free block in its set, in place of an entry that leaves.
    #[inline]
    pub(super) fn insert_free(&mut self, id: BlockId, replaced: Option<Replaced>) {
        let block = &mut self.blocks[id];
        let pool = match block.pool {
            PoolKind::Small => &mut self.small,
            PoolKind::Large => &mut self.large,
        };
        pool.insert(id, block, replaced);
    }

    /// Makes a block usable again: merges it with its free neighbours and enters the result among the free blocks.
    fn free_block(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.usage = Usage::Free;
        let (address, size, requested) = (block.address, block.size, block.requested);
        let (pool, stream, plain) = (block.pool, block.stream, !block.is_expandable());
        self.sink.trace(&TraceEvent::FreeCompleted { address, requested, stream });
        let merged = self.insert_merged(id);
        self.statistics.active.decrease(pool, 1);
        self.statistics.active_bytes.decrease(pool, amount(size));
        self.statistics.requested_bytes.decrease(pool, amount(requested));
        if plain {
            let block = &self.blocks[merged.id];
            let (mut count, mut bytes) = (-merged.neighbours, -amount(merged.absorbed));
            if block.is_split() {
                count += 1;
                bytes += amount(block.size);
            }
            self.statistics.inactive_split.change(pool, count);
            self.statistics.inactive_split_bytes.change(pool, bytes);
        }
    }

    /// Joins a free block that is in no set with free neighbours of its kind, and enters the result in their set in
    /// place of them. It keeps the requested size of `id`, as in PyTorch.
    pub(super) fn insert_merged(&mut self, id: BlockId) -> Merged {
        let block = &self.blocks[id];
        let (previous, next, requested, mapped) = (block.previous, block.next, block.requested, block.mapped);
        let pool = block.pool;
        let mut merged = Merged { id, neighbours: 0, absorbed: Bytes::ZERO };
        let mut replaced = None;
        if let Some(lower) = self.mergeable(previous, mapped) {
            let key = FreeKey::of(&self.blocks[lower]);
            replaced = Some(key);
            self.blocks.join(lower, id);
            self.blocks[lower].requested = requested;
            merged = Merged { id: lower, neighbours: 1, absorbed: key.size };
        }
        if let Some(upper) = self.mergeable(next, mapped) {
            let key = FreeKey::of(&self.blocks[upper]);
            if let Some(lower) = replaced.replace(key) {
                self.pool_mut(pool).remove(&lower, mapped);
            }
            self.blocks.join(merged.id, upper);
            merged.neighbours += 1;
            merged.absorbed += key.size;
        }
        self.insert_free(merged.id, replaced.map(Replaced::Key));
        merged
    }

    fn mergeable(&self, neighbour: Option<BlockId>, mapped: bool) -> Option<BlockId> {
        neighbour.filter(|&id| self.blocks[id].is_free() && self.blocks[id].mapped == mapped)
    }

    /// Records one event per side stream; the block is pending until all are done.
    fn await_streams(&mut self, id: BlockId, side_streams: &[StreamId]) {
        let mut count = 0;
        for &stream in side_streams {
            let event = self.source.record_event(stream);
            self.events.entry(stream).or_default().push_back((event, id));
            count += 1;
        }
        self.blocks[id].usage = Usage::Pending(count);
    }

    /// Waits for the events of all streams and completes their blocks.
    pub(super) fn synchronize_events(&mut self) {
        self.statistics.num_sync_all_streams += 1;
        if !self.events.is_empty() {
            self.complete_events(true);
        }
    }

    fn complete_events(&mut self, wait: bool) {
        let mut streams: Vec<StreamId> = self.events.keys().copied().collect();
        if streams.len() > 1 {
            self.source.order_streams(&mut streams);
        }
        for stream in streams {
            while let Some(&(event, id)) = self.events.get(&stream).and_then(VecDeque::front) {
                if wait {
                    self.source.wait_event(event);
                } else if !self.source.event_done(event) {
                    break;
                }
                if let Some(queue) = self.events.get_mut(&stream) {
                    queue.pop_front();
                    if queue.is_empty() {
                        self.events.remove(&stream);
                    }
                }
                self.complete_event(id);
            }
        }
    }

    fn complete_event(&mut self, id: BlockId) {
        let Usage::Pending(count) = &mut self.blocks[id].usage else { return };
        *count -= 1;
        if *count == 0 {
            self.free_block(id);
        }
    }
}

/// What a merge left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merged {
    pub id: BlockId,
    /// Neighbours absorbed.
    pub neighbours: i64,
    /// Their bytes.
    pub absorbed: Bytes,
}

/// The limit for a share of the device's memory: none for all of it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "PyTorch computes the limit in floating point and cuts it off"
)]
fn limit_of(fraction: f64, total: Bytes) -> Option<Bytes> {
    (fraction < 1.0).then_some(Bytes((fraction * total.0 as f64) as u64))
}
