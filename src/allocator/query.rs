//! Queries that change nothing: segments and blocks, statistics, and what a request would do.

use super::source::{EventToken, SegmentSource};
use crate::block::{Block, BlockId, PoolKind, Usage};
use crate::caching::CachingAllocator;
use crate::expandable::whole_pages;
use crate::pool_id::PoolId;
use crate::request::Request;
use crate::settings::Settings;
use crate::statistics::Statistics;
use crate::trace::TraceSink;
use crate::units::{Address, Bytes, StreamId};

/// What a block is used for, under PyTorch's snapshot names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Allocated.
    ActiveAllocated,
    /// Given back by the program, waiting for events of side streams.
    ActivePendingFree,
    /// Free.
    Inactive,
}

impl BlockState {
    /// The state's name in PyTorch's snapshots.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }
}

/// A block at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSnapshot {
    /// First byte.
    pub address: Address,
    /// Size.
    pub size: Bytes,
    /// Bytes asked for. For an inactive block, at its last use; zero if it was never used.
    pub requested: Bytes,
    /// The block's state.
    pub state: BlockState,
}

/// A segment at one moment. Each mapped run of an expandable range counts as a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSnapshot {
    /// First byte.
    pub address: Address,
    /// Size.
    pub size: Bytes,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// The pool it serves.
    pub pool: PoolKind,
    /// The id of that pool's owner: the default or a private one.
    pub pool_id: PoolId,
    /// True for a mapped run of an expandable range.
    pub expandable: bool,
    /// The segment's blocks in address order, without gaps.
    pub blocks: Vec<BlockSnapshot>,
}

/// A freed block that waits for an event of a side stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingBlock {
    /// First byte of the block.
    pub address: Address,
    /// The side stream. A block that waits for several streams appears once for each.
    pub stream: StreamId,
    /// The event recorded on that stream.
    pub event: EventToken,
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The statistics of `torch.cuda.memory_stats()`.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The source of the memory.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The source of the memory. Changing memory that it has already given is not supported.
    pub const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The listener.
    pub const fn sink(&self) -> &T {
        &self.sink
    }

    /// The listener.
    pub const fn sink_mut(&mut self) -> &mut T {
        &mut self.sink
    }

    /// The most that may be held from the driver; `None` if there is no limit.
    pub const fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// The number of blocks, free ones included. The cost of a fork is proportional to it.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes held from the driver.
    pub const fn reserved(&self) -> Bytes {
        self.reserved
    }

    /// True if a free block would serve a request of `size` bytes now, without completing pending blocks first.
    pub fn peek_free(&self, size: Bytes, stream: StreamId) -> bool {
        let mut request = Request::new(size, stream, &self.settings);
        request.owner = self.private.serving(stream);
        self.best_fit(&request).is_some()
    }

    /// The segments that a garbage collection for a request of `size` bytes would give back, in order, if no free block
    /// served the request. The request's own lookup is counted. Empty if garbage collection is off.
    pub fn gc_victims(&self, size: Bytes, stream: StreamId) -> Vec<(Address, Bytes)> {
        let request = Request::new(size, stream, &self.settings);
        let own = request.pool == PoolKind::Large && self.private.serving(stream).is_none();
        let own_lookup = u64::from(own);
        let victims = self.garbage(self.large.lookups + own_lookup);
        victims.into_iter().map(|id| (self.blocks[id].address, self.blocks[id].size)).collect()
    }

    /// True if the limit lets a request of `size` bytes grow the cache after `given_back` bytes went back.
    pub fn growth_allowed(&self, size: Bytes, given_back: Bytes) -> bool {
        let segment = Request::new(size, StreamId::DEFAULT, &self.settings).segment;
        self.limit.is_none_or(|limit| self.reserved.saturating_sub(given_back).0.saturating_add(segment.0) <= limit.0)
    }

    /// Bytes that the driver would still give within the limit.
    pub fn left(&self) -> Bytes {
        let free = self.source.memory().free;
        self.limit.map_or(free, |limit| limit.saturating_sub(self.reserved).min(free))
    }

    /// The rounded size of a request of `size` bytes, and the size of the segment that it would fetch.
    pub fn sizes(&self, size: Bytes) -> (Bytes, Bytes) {
        let request = Request::new(size, StreamId::DEFAULT, &self.settings);
        (request.rounded, request.segment)
    }

    /// Blocks that wait for events, by side stream, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = PendingBlock> {
        self.events.iter().flat_map(move |(&stream, queue)| {
            queue.iter().map(move |&(event, id)| PendingBlock { address: self.blocks[id].address, stream, event })
        })
    }

    /// The block allocated at `address`, as it is now.
    pub fn block(&self, address: Address) -> Option<BlockSnapshot> {
        self.live.get(address).map(|id| snapshot(&self.blocks[id]))
    }

    /// Free bytes that `empty_cache` could not return, because a block occupies part of their segment or page.
    ///
    /// Unlike `inactive_split` in the statistics, this counts expandable ranges too. Like it, it counts private pools,
    /// with or without users. Visits every free block.
    pub fn stranded(&self) -> Bytes {
        let private = self.private.iter().flat_map(|pool| [&pool.small, &pool.large]);
        let pools = [&self.small, &self.large].into_iter().chain(private);
        let free = pools.flat_map(|pool| pool.free.ids()).map(|id| &self.blocks[id]);
        let left = free.map(|block| match block.range {
            Some(range) => {
                block.size - whole_pages(block, &self.ranges.get(range)).map_or(Bytes::ZERO, |(_, pages)| pages)
            }
            None if block.is_split() => block.size,
            None => Bytes::ZERO,
        });
        left.sum()
    }

    /// The number of segments, where each run of mapped pages in an expandable range counts as one. Visits every block
    /// of such ranges.
    pub fn segment_count(&self) -> u64 {
        let count = |head: BlockId| {
            if !self.blocks[head].is_expandable() {
                return 1;
            }
            let mut before = false;
            self.chain(head).filter(|block| !std::mem::replace(&mut before, block.mapped) && block.mapped).count()
        };
        self.heads.values().map(|&head| count(head) as u64).sum()
    }

    /// All segments in address order with their blocks.
    pub fn segments(&self) -> Vec<SegmentSnapshot> {
        let mut segments: Vec<SegmentSnapshot> = Vec::new();
        for &head in self.heads.values() {
            let mut contiguous = false;
            for block in self.chain(head) {
                if block.mapped {
                    if !contiguous {
                        segments.push(SegmentSnapshot {
                            address: block.address,
                            size: Bytes::ZERO,
                            stream: block.stream,
                            pool: block.pool,
                            pool_id: self.id_of(block.owner),
                            expandable: block.is_expandable(),
                            blocks: Vec::new(),
                        });
                    }
                    if let Some(segment) = segments.last_mut() {
                        segment.size += block.size;
                        segment.blocks.push(snapshot(block));
                    }
                }
                contiguous = block.mapped;
            }
        }
        segments
    }
}

fn snapshot(block: &Block) -> BlockSnapshot {
    let state = match block.usage {
        Usage::Allocated => BlockState::ActiveAllocated,
        Usage::Pending(_) => BlockState::ActivePendingFree,
        Usage::Free => BlockState::Inactive,
    };
    BlockSnapshot { address: block.address, size: block.size, requested: block.requested, state }
}
