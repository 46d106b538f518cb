//! When a freed block becomes usable: at once, or when the events of its side streams are done.

use std::collections::{BTreeMap, VecDeque};

use super::source::SegmentSource;
use crate::block::{BlockId, Usage};
use crate::caching::CachingAllocator;
use crate::pool_id::PoolId;
use crate::statistics::amount;
use crate::trace::{TraceEvent, TraceSink};
use crate::units::{Address, StreamId};

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Records that work on `stream` uses the block at `address`. After `free` the block is pending until that work is done.
    /// The block's own stream is ignored, and so are addresses that are not allocated.
    pub fn record_stream(&mut self, address: Address, stream: StreamId) {
        let Some(id) = self.live.get(address) else { return };
        if stream != self.blocks[id].stream {
            let streams = self.side_streams.entry(address).or_default();
            if !streams.contains(&stream) {
                streams.push(stream);
            }
            if self.holds_events() {
                self.captured_streams.entry(address).or_default().push(stream);
            }
        }
    }

    /// Completes pending blocks whose events are done, first in, first out, per side stream. Each `malloc` begins with this.
    pub fn process_events(&mut self) {
        if !self.deferred.is_empty() {
            self.record_deferred();
        }
        if !self.events.is_empty() {
            self.complete_events(false, None);
        }
    }

    /// True while events are neither recorded nor queried.
    #[inline]
    pub(super) fn holds_events(&self) -> bool {
        self.private.hold_events(self.settings.torch())
    }

    /// Puts off a freed block with side streams while events are held back.
    pub(super) fn defer(&mut self, id: BlockId, side_streams: Vec<StreamId>) {
        self.side_streams.insert(self.blocks[id].address, side_streams);
        self.deferred.push(id);
    }

    /// Records the events of blocks that were freed while events were held back. Uses on side streams that were
    /// recorded during a graph capture don't count: the graph runs later.
    #[cold]
    fn record_deferred(&mut self) {
        let deferred: BTreeMap<Address, BlockId> =
            std::mem::take(&mut self.deferred).into_iter().map(|id| (self.blocks[id].address, id)).collect();
        let mut order: Vec<Address> = deferred.keys().copied().collect();
        if order.len() > 1 {
            self.source.order_deferred(&mut order);
        }
        for (address, id) in order.into_iter().filter_map(|address| Some((address, *deferred.get(&address)?))) {
            let mut streams = self.side_streams.remove(&address).unwrap_or_default();
            if let Some(captured) = self.captured_streams.remove(&address) {
                streams.retain(|stream| !captured.contains(stream));
            }
            if streams.is_empty() { self.free_block(id) } else { self.await_streams(id, &streams) }
        }
    }

    /// Makes a block usable again: merges it with its free neighbours and enters the result among the free blocks.
    #[inline]
    pub(super) fn free_block(&mut self, id: BlockId) {
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

    /// Records one event per side stream. The block is pending until all of them are done.
    pub(super) fn await_streams(&mut self, id: BlockId, side_streams: &[StreamId]) {
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
        self.synchronize_events_of(None);
    }

    /// Like [`CachingAllocator::synchronize_events`], for the blocks of one private pool.
    pub(super) fn synchronize_events_of(&mut self, pool: Option<PoolId>) {
        self.statistics.num_sync_all_streams += 1;
        self.record_deferred();
        if !self.events.is_empty() {
            self.complete_events(true, pool);
        }
    }

    fn complete_events(&mut self, wait: bool, only: Option<PoolId>) {
        let done = if wait { None } else { self.source.streams_done() };
        let streams = done.unwrap_or_else(|| {
            let mut streams: Vec<StreamId> = self.events.keys().copied().collect();
            if streams.len() > 1 {
                self.source.order_streams(&mut streams);
            }
            streams
        });
        for stream in streams {
            let mut others = VecDeque::new();
            while let Some(&(event, id)) = self.events.get(&stream).and_then(VecDeque::front) {
                let skipped = only.is_some_and(|only| self.id_of(self.blocks[id].owner) != only);
                if skipped {
                    others.push_back((event, id));
                } else if wait {
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
                if !skipped {
                    self.complete_event(id);
                }
            }
            if !others.is_empty() {
                self.events.insert(stream, others);
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
