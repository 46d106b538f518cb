//! Serving requests and freeing blocks.

use thiserror::Error;

use super::source::SegmentSource;
use crate::attempt::{Attempt, Refusal};
use crate::block::{Block, BlockId, PoolKind, Usage};
use crate::caching::CachingAllocator;
use crate::free_set::FreeKey;
use crate::oom::OutOfMemory;
use crate::request::Request;
use crate::rounding::{MIN_BLOCK, SMALL_SIZE};
use crate::statistics::amount;
use crate::trace::{TraceEvent, TraceSink};
use crate::units::{Address, Bytes, StreamId};

/// Requests from this size on fail before the allocator is asked, as PyTorch's do.
const UNREPRESENTABLE: Bytes = Bytes(1 << 60);

/// An allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// First byte; the null address for a request of zero bytes.
    pub address: Address,
    /// Size of the block: the rounded size, or more if the rest was not split off.
    pub size: Bytes,
    /// Bytes asked for.
    pub requested: Bytes,
}

/// Why the allocator refused a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocError {
    /// Everything was tried.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// `throw_on_cudamalloc_oom` refused the request before the driver was asked. It leaves no event.
    #[error(
        "the allocator would hold {needed} with {segment} more, and {allowed} are allowed (throw_on_cudamalloc_oom); ask for \
         less, or set throw_on_cudamalloc_oom:False"
    )]
    Rejected {
        /// The size of the segment that the driver would have been asked for.
        segment: Bytes,
        /// Bytes that would be held with this segment.
        needed: Bytes,
        /// The most that may be held.
        allowed: Bytes,
    },
    /// More bytes than any device will ever have.
    #[error("{requested} can't be allocated on any device; check the shape of the tensor")]
    TooLarge {
        /// Bytes asked for.
        requested: Bytes,
    },
    /// The address is not that of an allocated block.
    #[error("{address} is not a block that is handed out; free each block once, at its first byte")]
    InvalidPointer {
        /// The address.
        address: Address,
    },
}

/// Where the block for a request comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The set of free blocks, in which it still is.
    FreeBlocks,
    /// The driver. It is in no set yet.
    Driver,
}

/// Why no memory was found for a request.
enum Failure {
    /// Everything was tried.
    Exhausted(Vec<Attempt>),
    /// The driver was not asked: bytes that would have been held, and bytes that may be held.
    Rejected(Bytes, Bytes),
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the device's memory")]
const fn share_in_bytes(share: f64) -> Bytes {
    Bytes(share as u64)
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Allocates a block of at least `size` bytes that work on `stream` may use at once.
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
        if !self.holds_events() {
            self.process_events();
        }
        let mut request = Request::new(size, stream, &self.settings);
        request.owner = self.private.serving(stream);
        let (id, origin) = match self.find_free(&request) {
            Some(id) => (id, Origin::FreeBlocks),
            None => match self.obtain(&request) {
                Ok(id) => (id, Origin::Driver),
                Err(Failure::Exhausted(attempts)) => {
                    return Err(AllocError::OutOfMemory(Box::new(self.out_of_memory(&request, attempts))));
                }
                Err(Failure::Rejected(needed, allowed)) => {
                    return Err(AllocError::Rejected { segment: request.segment, needed, allowed });
                }
            },
        };
        let allocation = self.hand_out(id, origin, &request);
        self.verify(Some(allocation.address));
        Ok(allocation)
    }

    /// Frees a block. It can be reused at once, unless streams other than its own were recorded for it; then once the
    /// work that is now on these streams is done. The null address is ignored.
    ///
    /// # Errors
    /// [`AllocError::InvalidPointer`] if no allocated block starts at `address`.
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
            Some(streams) if self.holds_events() => self.defer(id, streams),
            Some(streams) => self.await_streams(id, &streams),
        }
        self.verify(None);
        Ok(())
    }

    /// The free block that serves `request`, if there is one. It stays in its set until it is handed out.
    #[inline]
    fn find_free(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pool_mut(request.home()).lookups += 1;
        }
        self.best_fit(request)
    }

    /// The free block that serves `request`. Only the first candidate is tested against the oversize rules.
    #[inline]
    pub(super) fn best_fit(&self, request: &Request) -> Option<BlockId> {
        let pool = self.pool(request.home());
        let mut found = pool.first_from(FreeKey::at_least(request.stream, request.rounded))?;
        if self.blocks[found].is_expandable() {
            found = if request.expandable { self.prefer_hole(pool, found) } else { self.skip_expandable(pool, found)? };
        }
        let (size, settings) = (self.blocks[found].size, &self.settings);
        let refused = if request.rounded < settings.max_split_size {
            size >= settings.max_split_size
        } else {
            size.0 >= request.rounded.0.saturating_add(settings.max_non_split_rounding.0)
        };
        (!refused).then_some(found)
    }

    /// Tries everything that can bring memory for a request that no free block serves.
    ///
    /// # Errors
    /// The attempts that were made.
    fn obtain(&mut self, request: &Request) -> Result<BlockId, Failure> {
        let held = self.reserved;
        if self.collects_garbage() {
            self.collect_garbage();
        }
        let collected = held - self.reserved;
        if let Some(id) = self.grow(request)? {
            return Ok(id);
        }
        let mut attempts = vec![self.search(request)];
        if collected > Bytes::ZERO {
            attempts.push(Attempt::CollectGarbage { released: collected });
        }
        attempts.push(self.refusal(request));
        let held = self.reserved;
        let enough = self.release_oversize(request);
        let released = held - self.reserved;
        if released > Bytes::ZERO {
            attempts.push(Attempt::ReleaseOversize { released });
        }
        if enough {
            if let Some(id) = self.grow(request)? {
                return Ok(id);
            }
            attempts.push(self.refusal(request));
        }
        if self.holds_events() {
            return Err(Failure::Exhausted(attempts));
        }
        let held = self.reserved;
        self.release_cached();
        attempts.push(Attempt::ReleaseCached { released: held - self.reserved });
        self.statistics.num_alloc_retries += 1;
        match self.grow(request)? {
            Some(id) => Ok(id),
            None => {
                attempts.push(self.refusal(request));
                Err(Failure::Exhausted(attempts))
            }
        }
    }

    /// The unsuccessful search, as an attempt.
    fn search(&self, request: &Request) -> Attempt {
        let (blocks, largest) = self.pool(request.home()).free.extent(request.stream);
        Attempt::Search { blocks, largest }
    }

    /// Why the driver refused `request`, as an attempt.
    fn refusal(&self, request: &Request) -> Attempt {
        let refusal = if self.within_limit(request.segment) { Refusal::Driver } else { Refusal::Limit };
        Attempt::Grow { segment: request.segment, refusal }
    }

    /// Tries once to get memory from the driver; `None` if it gave none. The block is not entered in a set.
    ///
    /// # Errors
    /// [`Failure::Rejected`] if nothing else may be tried.
    fn grow(&mut self, request: &Request) -> Result<Option<BlockId>, Failure> {
        if !self.within_limit(request.segment) {
            return Ok(None);
        }
        self.reject(request)?;
        Ok(if request.expandable { self.grow_expandable(request) } else { self.grow_segment(request) })
    }

    /// Refuses a request that `throw_on_cudamalloc_oom` does not allow the driver to be asked for.
    #[expect(clippy::cast_precision_loss, reason = "PyTorch compares in floating point")]
    fn reject(&mut self, request: &Request) -> Result<(), Failure> {
        if !self.settings.throw_on_cudamalloc_oom {
            return Ok(());
        }
        let needed = Bytes(self.reserved.0.saturating_add(request.segment.0));
        let share = self.settings.per_process_memory_fraction * self.device_total.0 as f64;
        if needed.0 as f64 <= share {
            return Ok(());
        }
        if let Some(count) = &mut self.statistics.num_oom_rejections {
            *count += 1;
        }
        Err(Failure::Rejected(needed, share_in_bytes(share)))
    }

    fn grow_segment(&mut self, request: &Request) -> Option<BlockId> {
        let address = self.source.malloc(request.segment).ok()?;
        let Request { segment: size, stream, pool, .. } = *request;
        let mut block = Block::new(address, size, stream, pool, None);
        block.owner = request.owner;
        let id = self.blocks.begin(block);
        self.count_segment(request.home(), true);
        self.count_private(request.home(), size, Bytes::ZERO);
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

    /// Splits a block if the rules say so, and allocates it to the program.
    fn hand_out(&mut self, id: BlockId, origin: Origin, request: &Request) -> Allocation {
        let block = &self.blocks[id];
        let key = FreeKey::of(block);
        let (was_split, plain, rest) = (block.is_split(), !block.is_expandable(), block.size - request.rounded);
        let pool = request.pool;
        if self.splits(request, rest) {
            let rest_id = self.blocks.split(id, request.rounded);
            match origin {
                Origin::FreeBlocks => self.replace_free(&key, rest_id),
                Origin::Driver => self.insert_free(rest_id),
            }
            if plain && was_split {
                self.statistics.inactive_split_bytes.decrease(pool, amount(request.rounded));
            } else if plain {
                self.statistics.inactive_split.increase(pool, 1);
                self.statistics.inactive_split_bytes.increase(pool, amount(rest));
            }
        } else {
            if origin == Origin::FreeBlocks {
                self.pool_mut(request.home()).free.remove(&key);
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

    /// True if the `rest` bytes behind the request become a block of their own.
    fn splits(&self, request: &Request, rest: Bytes) -> bool {
        if request.pool == PoolKind::Small || request.expandable {
            rest.0 >= MIN_BLOCK
        } else {
            request.rounded < self.settings.max_split_size && rest.0 > SMALL_SIZE
        }
    }
}
