//! When a block's use is over: at once, or when the events of the side streams that used it are done.

use std::collections::VecDeque;

use crate::allocator::block::{BlockId, Usage};
use crate::allocator::caching::CachingAllocator;
use crate::allocator::source::SegmentSource;
use crate::allocator::statistics::amount;
use crate::allocator::trace::{TraceEvent, TraceSink};
use crate::units::{Address, StreamId};

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
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

    /// Records one event per side stream; the block is pending until all are done.
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
