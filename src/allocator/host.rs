//! The caching host allocator: page-locked memory in power-of-two blocks.
//!
//! Page-locking is slow, so blocks are cached. A block may be reused once the copies that read it are done: the program
//! records the streams of those copies, and `free` records an event on each.

use std::collections::{BTreeMap, VecDeque};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use thiserror::Error;

use super::source::EventToken;
use crate::statistics::{Counter, amount, push_counter};
use crate::units::{Address, Bytes, StreamId};

/// A larger request would need a power of two that is not a size of an address space.
const LARGEST: Bytes = Bytes(1 << 62);

/// The system has no page-locked memory for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the system is out of page-locked memory")]
pub struct OutOfHostMemory;

/// A source of page-locked memory, which also knows the progress of streams.
pub trait HostMemorySource {
    /// Allocates `size` bytes of page-locked memory.
    ///
    /// # Errors
    /// [`OutOfHostMemory`].
    fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory>;

    /// Returns memory to the system.
    fn free(&mut self, address: Address, size: Bytes);

    /// Records an event at the current end of `stream`'s work.
    fn record_event(&mut self, stream: StreamId) -> EventToken;

    /// True when the work before `event` is done.
    fn event_done(&mut self, event: EventToken) -> bool;
}

impl<S: HostMemorySource + ?Sized> HostMemorySource for Box<S> {
    fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory> {
        (**self).allocate(size)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        (**self).free(address, size);
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        (**self).record_event(stream)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        (**self).event_done(event)
    }
}

/// Why the host allocator refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostAllocError {
    /// The system gave no more memory.
    #[error("no page-locked memory for {size}; use pageable memory (pinned off) or raise the locked-memory limit")]
    OutOfMemory {
        /// The size of the block that was asked for.
        size: Bytes,
    },
    /// The address is not that of an allocated block.
    #[error("{address} is not a page-locked block that is handed out; free each block once, at its first byte")]
    InvalidPointer {
        /// The address.
        address: Address,
    },
}

/// The counts of `torch.cuda.host_memory_stats()`, without its times of driver calls: there is no clock here.
///
/// Serialises as PyTorch's flat dictionary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Blocks handed out or waiting for events.
    pub active_requests: Counter,
    /// Bytes of blocks handed out or waiting for events.
    pub active_bytes: Counter,
    /// All blocks, cached ones too.
    pub allocations: Counter,
    /// Bytes of all blocks, cached ones too.
    pub allocated_bytes: Counter,
    /// Calls that took memory from the system.
    pub num_host_alloc: i64,
    /// Calls that gave memory back to the system.
    pub num_host_free: i64,
}

impl HostStatistics {
    /// All numbers under PyTorch's flattened names, in sorted order.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, i64)> {
        let mut entries = Vec::new();
        push_counter(&mut entries, "active_requests", self.active_requests);
        push_counter(&mut entries, "active_bytes", self.active_bytes);
        push_counter(&mut entries, "allocations", self.allocations);
        push_counter(&mut entries, "allocated_bytes", self.allocated_bytes);
        entries.push(("num_host_alloc".to_owned(), self.num_host_alloc));
        entries.push(("num_host_free".to_owned(), self.num_host_free));
        entries.sort();
        entries
    }
}

impl Serialize for HostStatistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.entries();
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (name, value) in &entries {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A block that is not cached.
#[derive(Clone, Debug)]
struct HostBlock {
    size: Bytes,
    /// Streams whose copies use the block.
    streams: Vec<StreamId>,
    /// How many events the block awaits since it was freed; `None` while it is handed out.
    awaited: Option<usize>,
}

/// PyTorch's caching allocator for page-locked host memory.
#[derive(Debug)]
pub struct CachingHostAllocator<S> {
    source: S,
    statistics: HostStatistics,
    /// Blocks handed out or waiting for events.
    active: BTreeMap<Address, HostBlock>,
    /// Free blocks by size. The block freed last is reused first.
    free: BTreeMap<Bytes, Vec<Address>>,
    /// Events of freed blocks, oldest first, of all streams together.
    events: VecDeque<(EventToken, Address)>,
}

impl<S: HostMemorySource> CachingHostAllocator<S> {
    /// An allocator that holds nothing yet.
    pub fn new(source: S) -> Self {
        Self {
            source,
            statistics: HostStatistics::default(),
            active: BTreeMap::new(),
            free: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Allocates a block of at least `size` bytes, rounded up to a power of two. Zero bytes get the null address.
    ///
    /// # Errors
    /// [`HostAllocError::OutOfMemory`] if no cached block serves and the system gives no more.
    pub fn malloc(&mut self, size: Bytes) -> Result<Address, HostAllocError> {
        if size == Bytes::ZERO {
            return Ok(Address(0));
        }
        if size > LARGEST {
            return Err(HostAllocError::OutOfMemory { size });
        }
        self.process_events();
        let size = Bytes(size.0.next_power_of_two());
        let address = match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(address) => address,
            None => self.grow(size)?,
        };
        self.active.insert(address, HostBlock { size, streams: Vec::new(), awaited: None });
        self.statistics.active_requests.increase(1);
        self.statistics.active_bytes.increase(amount(size));
        Ok(address)
    }

    /// Frees a block. It is reused once the work that is now on its recorded streams is done. The null address is ignored.
    ///
    /// # Errors
    /// [`HostAllocError::InvalidPointer`] if no allocated block starts at `address`.
    pub fn free(&mut self, address: Address) -> Result<(), HostAllocError> {
        if address == Address(0) {
            return Ok(());
        }
        let block = self.active.get_mut(&address).filter(|block| block.awaited.is_none());
        let block = block.ok_or(HostAllocError::InvalidPointer { address })?;
        let streams = std::mem::take(&mut block.streams);
        block.awaited = Some(streams.len());
        for &stream in &streams {
            let event = self.source.record_event(stream);
            self.events.push_back((event, address));
        }
        if streams.is_empty() {
            self.cache(address);
        }
        Ok(())
    }

    /// Records that a copy on `stream` uses the block at `address`. Returns false if no allocated block starts there.
    pub fn record_stream(&mut self, address: Address, stream: StreamId) -> bool {
        let Some(block) = self.active.get_mut(&address).filter(|block| block.awaited.is_none()) else { return false };
        if !block.streams.contains(&stream) {
            block.streams.push(stream);
        }
        true
    }

    /// Makes freed blocks reusable in the order in which their events were recorded, up to the first event that is not
    /// done. Each `malloc` begins with this.
    pub fn process_events(&mut self) {
        while let Some(&(event, address)) = self.events.front() {
            if !self.source.event_done(event) {
                return;
            }
            self.events.pop_front();
            let Some(awaited) = self.active.get_mut(&address).and_then(|block| block.awaited.as_mut()) else {
                continue;
            };
            *awaited -= 1;
            if *awaited == 0 {
                self.cache(address);
            }
        }
    }

    /// Returns all free blocks to the system. Blocks whose events are not done stay.
    pub fn empty_cache(&mut self) {
        self.process_events();
        for (size, addresses) in std::mem::take(&mut self.free) {
            for address in addresses {
                self.source.free(address, size);
                self.statistics.num_host_free += 1;
                self.statistics.allocations.decrease(1);
                self.statistics.allocated_bytes.decrease(amount(size));
            }
        }
    }

    /// The statistics of `torch.cuda.host_memory_stats()`.
    pub const fn statistics(&self) -> &HostStatistics {
        &self.statistics
    }

    /// The source of the memory.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The source of the memory.
    pub const fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    fn grow(&mut self, size: Bytes) -> Result<Address, HostAllocError> {
        let address = self.source.allocate(size).map_err(|OutOfHostMemory| HostAllocError::OutOfMemory { size })?;
        self.statistics.num_host_alloc += 1;
        self.statistics.allocations.increase(1);
        self.statistics.allocated_bytes.increase(amount(size));
        Ok(address)
    }

    fn cache(&mut self, address: Address) {
        let Some(block) = self.active.remove(&address) else { return };
        self.free.entry(block.size).or_default().push(address);
        self.statistics.active_requests.decrease(1);
        self.statistics.active_bytes.decrease(amount(block.size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake system: addresses count up, and events are done when a test says so.
    #[derive(Default)]
    struct FakeHost {
        held: u64,
        limit: Option<u64>,
        next: u64,
        events: u64,
        done: u64,
    }

    impl HostMemorySource for FakeHost {
        fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory> {
            if self.limit.is_some_and(|limit| self.held + size.0 > limit) {
                return Err(OutOfHostMemory);
            }
            self.held += size.0;
            self.next += 0x1000_0000;
            Ok(Address(self.next))
        }

        fn free(&mut self, _: Address, size: Bytes) {
            self.held -= size.0;
        }

        fn record_event(&mut self, _: StreamId) -> EventToken {
            self.events += 1;
            EventToken(self.events)
        }

        fn event_done(&mut self, event: EventToken) -> bool {
            event.0 <= self.done
        }
    }

    const COPY: StreamId = StreamId(7);

    #[test]
    fn blocks_are_powers_of_two_and_are_reused_by_size() {
        let mut host = CachingHostAllocator::new(FakeHost::default());
        let a = host.malloc(Bytes(10)).unwrap();
        let b = host.malloc(Bytes(20)).unwrap();
        assert_eq!(host.statistics().allocated_bytes.current, 16 + 32);
        host.free(a).unwrap();
        host.free(b).unwrap();
        assert_eq!(host.malloc(Bytes(32)).unwrap(), b);
        assert_ne!(host.malloc(Bytes(33)).unwrap(), a, "16 bytes serve no request for 33");
        assert_eq!(host.malloc(Bytes(16)).unwrap(), a);
        assert_eq!(host.statistics().num_host_alloc, 3);
    }

    #[test]
    fn a_block_waits_for_the_copies_that_read_it() {
        let mut host = CachingHostAllocator::new(FakeHost::default());
        let a = host.malloc(Bytes(4096)).unwrap();
        assert!(host.record_stream(a, COPY));
        assert!(host.record_stream(a, StreamId(8)));
        assert!(host.record_stream(a, COPY), "recording twice awaits once");
        host.free(a).unwrap();
        assert_eq!(host.source().events, 2);
        assert!(!host.record_stream(a, COPY), "it is not handed out any more");
        assert_eq!(host.free(a), Err(HostAllocError::InvalidPointer { address: a }));
        let b = host.malloc(Bytes(4096)).unwrap();
        assert_ne!(a, b);
        host.source_mut().done = 1;
        let c = host.malloc(Bytes(4096)).unwrap();
        assert_ne!(a, c, "one of its two events is not done");
        host.source_mut().done = 2;
        assert_eq!(host.malloc(Bytes(4096)).unwrap(), a);
        assert_eq!(host.statistics().active_requests, Counter { current: 3, peak: 3, allocated: 4, freed: 1 });
    }

    #[test]
    fn events_are_done_in_the_order_of_the_frees() {
        let mut host = CachingHostAllocator::new(FakeHost::default());
        let blocks: Vec<Address> = (0..3).map(|_| host.malloc(Bytes(64)).unwrap()).collect();
        for &block in &blocks {
            host.record_stream(block, COPY);
            host.free(block).unwrap();
        }
        host.source_mut().done = 2;
        host.process_events();
        assert_eq!(host.statistics().active_requests.current, 1);
        assert_eq!(host.malloc(Bytes(64)).unwrap(), blocks[1], "freed last, used first");
    }

    #[test]
    fn empty_cache_gives_back_what_no_copy_reads() {
        let mut host = CachingHostAllocator::new(FakeHost::default());
        let [a, b, c] = [(); 3].map(|()| host.malloc(Bytes(100)).unwrap());
        host.record_stream(b, COPY);
        host.free(a).unwrap();
        host.free(b).unwrap();
        host.empty_cache();
        assert_eq!(host.source().held, 256, "one in use, one awaited");
        host.source_mut().done = 1;
        host.free(c).unwrap();
        host.empty_cache();
        assert_eq!(host.source().held, 0);
        let statistics = host.statistics();
        assert_eq!((statistics.num_host_alloc, statistics.num_host_free), (3, 3));
        assert_eq!(statistics.allocations, Counter { current: 0, peak: 3, allocated: 3, freed: 3 });
    }

    #[test]
    fn refusals_name_size_and_remedy() {
        let mut host = CachingHostAllocator::new(FakeHost { limit: Some(100), ..FakeHost::default() });
        let error = host.malloc(Bytes(65)).unwrap_err();
        assert_eq!(error, HostAllocError::OutOfMemory { size: Bytes(128) });
        assert!(error.to_string().contains("128 B"));
        assert!(host.malloc(Bytes(u64::MAX)).is_err());
        assert_eq!(host.malloc(Bytes::ZERO), Ok(Address(0)));
        assert_eq!(host.free(Address(0)), Ok(()));
        assert!(host.free(Address(5)).is_err());
    }

    #[test]
    fn statistics_carry_pytorchs_names() {
        let json = serde_json::to_value(HostStatistics::default()).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 18);
        assert_eq!(json["active_bytes.peak"], 0);
    }
}
