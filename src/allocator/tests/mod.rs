//! The allocator's behaviour as a program sees it: rule by rule, with the specification's numbers.

mod expandable;
mod growth;
mod requests;
mod seeded;
mod streams;
mod versions;

use super::*;
use crate::units::{Address, Bytes, MIB, StreamId};

/// A device that hands out ascending addresses and completes events when a test says so.
#[derive(Debug)]
struct FakeDevice {
    total: u64,
    used: u64,
    next: u64,
    next_range: u64,
    events: u64,
    /// Events up to this one are done.
    done: u64,
    waits: u64,
}

impl FakeDevice {
    fn new(total: Bytes) -> Self {
        Self { total: total.0, used: 0, next: 0x10_0000_0000, next_range: 0x3_0200_0000, events: 0, done: 0, waits: 0 }
    }
}

impl SegmentSource for FakeDevice {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.map(Address(0), size, size)?;
        self.next += size.0;
        Ok(Address(self.next - size.0))
    }

    fn free(&mut self, _: Address, size: Bytes) {
        self.used -= size.0;
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.next_range += size.0.next_multiple_of(32 * MIB);
        Ok(Address(self.next_range - size.0.next_multiple_of(32 * MIB)))
    }

    fn release_range(&mut self, _: Address, _: Bytes) {}

    fn map(&mut self, _: Address, size: Bytes, _: Bytes) -> Result<(), OutOfDeviceMemory> {
        if size.0 > self.total - self.used {
            return Err(OutOfDeviceMemory);
        }
        self.used += size.0;
        Ok(())
    }

    fn unmap(&mut self, _: Address, size: Bytes) {
        self.used -= size.0;
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { free: Bytes(self.total - self.used), total: Bytes(self.total) }
    }

    fn record_event(&mut self, _: StreamId) -> EventToken {
        self.events += 1;
        EventToken(self.events)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        event.0 <= self.done
    }

    fn wait_event(&mut self, event: EventToken) {
        self.waits += 1;
        self.done = self.done.max(event.0);
    }
}

/// An allocator on the fake device whose history is kept.
struct Lab {
    allocator: CachingAllocator<FakeDevice, Vec<TraceEvent>>,
}

const STREAM: StreamId = StreamId::DEFAULT;

impl Lab {
    /// 16 GiB under `conf`.
    fn new(conf: &str) -> Self {
        Self::with_memory(conf, Bytes::gib(16))
    }

    fn with_memory(conf: &str, total: Bytes) -> Self {
        let settings = Settings::parse(conf).unwrap();
        Self { allocator: CachingAllocator::new(FakeDevice::new(total), settings, Vec::new()) }
    }

    fn malloc(&mut self, size: u64) -> Allocation {
        self.malloc_on(size, STREAM)
    }

    fn malloc_on(&mut self, size: u64, stream: StreamId) -> Allocation {
        let allocation = self.try_malloc_on(size, stream).unwrap();
        assert_eq!(allocation.requested, Bytes(size));
        allocation
    }

    fn try_malloc(&mut self, size: u64) -> Result<Allocation, AllocError> {
        self.try_malloc_on(size, STREAM)
    }

    fn try_malloc_on(&mut self, size: u64, stream: StreamId) -> Result<Allocation, AllocError> {
        let result = self.allocator.malloc(Bytes(size), stream);
        self.allocator.check_invariants().unwrap();
        result
    }

    fn free(&mut self, allocation: Allocation) {
        self.allocator.free(allocation.address).unwrap();
        self.allocator.check_invariants().unwrap();
    }

    fn empty_cache(&mut self) {
        self.allocator.empty_cache();
        self.allocator.check_invariants().unwrap();
    }

    /// A block of each size, all of them free: whole segments for sizes from 10 MiB on.
    fn cache(&mut self, sizes: &[u64]) -> Vec<Allocation> {
        let blocks: Vec<Allocation> = sizes.iter().map(|&size| self.malloc(size)).collect();
        for &block in &blocks {
            self.free(block);
        }
        blocks
    }

    /// What happened since the last call: one word and a size in MiB (or the address's low bytes) each.
    fn history(&mut self) -> Vec<String> {
        std::mem::take(self.allocator.sink_mut()).iter().map(describe).collect()
    }

    fn forget(&mut self) {
        self.allocator.sink_mut().clear();
    }

    fn statistics(&self) -> &Statistics {
        self.allocator.statistics()
    }
}

fn describe(event: &TraceEvent) -> String {
    let size = |bytes: &Bytes| {
        if bytes.0.is_multiple_of(MIB) { format!("{}M", bytes.0 / MIB) } else { bytes.0.to_string() }
    };
    match event {
        TraceEvent::Alloc { requested, .. } => format!("alloc {}", size(requested)),
        TraceEvent::FreeRequested { requested, .. } => format!("free_requested {}", size(requested)),
        TraceEvent::FreeCompleted { requested, .. } => format!("free_completed {}", size(requested)),
        TraceEvent::SegmentAlloc { size: bytes, .. } => format!("segment_alloc {}", size(bytes)),
        TraceEvent::SegmentFree { size: bytes, .. } => format!("segment_free {}", size(bytes)),
        TraceEvent::SegmentMap { size: bytes, .. } => format!("segment_map {}", size(bytes)),
        TraceEvent::SegmentUnmap { size: bytes, .. } => format!("segment_unmap {}", size(bytes)),
        TraceEvent::Oom { rounded, .. } => format!("oom {}", size(rounded)),
    }
}
