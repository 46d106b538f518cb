//! Compares the state concluded from events with the allocator itself.

use std::collections::BTreeMap;

use super::*;
use crate::{Category, MemoryModel, Micros, NameId, Setting};
use vramlab_allocator::{
    CachingAllocator, DeviceMemory, EventToken, OutOfDeviceMemory, SegmentSource, Settings, SimulatedDriver, TraceEvent,
};

/// A driver whose side streams finish only when they are waited for.
#[derive(Debug)]
struct Driver(SimulatedDriver);

impl SegmentSource for Driver {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.0.malloc(size)
    }
    fn free(&mut self, address: Address, size: Bytes) {
        self.0.free(address, size);
    }
    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.0.reserve_range(size)
    }
    fn release_range(&mut self, address: Address, size: Bytes) {
        self.0.release_range(address, size);
    }
    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.0.map(address, size, page)
    }
    fn unmap(&mut self, address: Address, size: Bytes) {
        self.0.unmap(address, size);
    }
    fn memory(&self) -> DeviceMemory {
        self.0.memory()
    }
    fn record_event(&mut self, stream: StreamId) -> EventToken {
        EventToken(stream.0)
    }
    fn event_done(&mut self, event: EventToken) -> bool {
        event.0.is_multiple_of(2)
    }
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn settings_event(conf: &str) -> Event {
    let setting = Setting { switch: "alloc-conf".into(), value: conf.into(), wanted: None, idle: None };
    Event::new(Micros(0), EventKind::Settings(crate::RunSettings(vec![setting]).into()))
}

/// Makes thousands of requests, frees, waits and calls of `empty_cache`, in `memory` under `limit`, and checks after
/// each that statistics and blocks are the allocator's, except for the number of retries.
fn agrees(conf: &str, memory: Bytes, limit: Option<Bytes>, largest: u64) -> (Statistics, Statistics) {
    let driver = Driver(SimulatedDriver::new(memory, Bytes::ZERO));
    let mut allocator = CachingAllocator::new(driver, Settings::parse(conf).unwrap(), Vec::<TraceEvent>::new());
    allocator.set_limit(limit);
    let mut state = AllocatorState::new();
    // The other reducer of memory knows three of these figures too.
    let mut memory = MemoryModel::new();
    let mut tell = |state: &mut AllocatorState, event: Event| {
        state.apply(&event);
        memory.apply(&event).unwrap();
        let told = [memory.traffic().retries, memory.peak_requested().0, memory.inactive_split().0];
        let statistics = state.statistics();
        let counted = [
            statistics.num_alloc_retries,
            statistics.requested_bytes.all.peak,
            statistics.inactive_split_bytes.all.current,
        ];
        assert_eq!(told.map(amount), counted, "{conf}: {event:?}");
    };
    tell(&mut state, settings_event(conf));
    tell(&mut state, Event::new(Micros(0), EventKind::Limit { limit }));
    let mut numbers = Numbers(7);
    let mut live: BTreeMap<Address, u64> = BTreeMap::new();
    for round in 0..6000 {
        let grows = if round / 1500 % 2 == 0 { 6 } else { 4 };
        match numbers.below(10) {
            choice if choice < grows => {
                let size = Bytes(1 + numbers.below(largest) * numbers.below(7) * numbers.below(7) / 36);
                let stream = StreamId(if numbers.below(5) == 0 { 2 } else { 0 });
                if let Ok(allocation) = allocator.malloc(size, stream) {
                    live.insert(allocation.address, round);
                }
            }
            9 if numbers.below(60) == 0 => {
                tell(&mut state, Event::new(Micros(0), EventKind::EmptyCache));
                allocator.empty_cache();
            }
            _ => {
                let at = numbers.below(live.len().max(1) as u64) as usize;
                if let Some(address) = live.keys().nth(at).copied() {
                    live.remove(&address);
                    if numbers.below(8) == 0 {
                        allocator.record_stream(address, StreamId(4 + numbers.below(2)));
                    }
                    allocator.free(address).unwrap();
                }
            }
        }
        for event in std::mem::take(allocator.sink_mut()) {
            let kind = EventKind::of_trace(&event, Category::Other, NameId::NONE);
            tell(&mut state, Event::new(Micros(0), kind));
        }
        if round % 97 == 0 || round == 5999 {
            assert_eq!(state.segments().collect::<Vec<_>>(), allocator.segments(), "{conf} after {round}");
        }
        let (retries, synchronised) = (state.statistics().num_alloc_retries, state.statistics().num_sync_all_streams);
        let expected = Statistics {
            num_alloc_retries: retries,
            num_sync_all_streams: synchronised,
            ..allocator.statistics().clone()
        };
        assert_eq!(*state.statistics(), expected, "{conf} after {round}");
    }
    (state.statistics().clone(), allocator.statistics().clone())
}

/// The same, including the number of retries.
fn agrees_exactly(conf: &str, memory: Bytes, limit: Option<Bytes>, largest: u64) -> Statistics {
    let (ours, theirs) = agrees(conf, memory, limit, largest);
    assert_eq!(ours.entries(), theirs.entries(), "{conf}");
    ours
}

#[test]
fn statistics_and_blocks_are_the_allocators_after_every_event() {
    let statistics = agrees_exactly("", Bytes::gib(8), None, 32 << 20);
    assert!(statistics.inactive_split.all.peak > 20 && statistics.active.all.peak > statistics.allocation.all.peak);
}

#[test]
fn retries_are_counted_where_memory_runs_out() {
    let statistics = agrees_exactly("", Bytes::gib(8), Some(Bytes::mib(900)), 48 << 20);
    assert!(statistics.num_ooms > 0 && statistics.num_alloc_retries > statistics.num_ooms, "{statistics:?}");
}

#[test]
fn expandable_segments_are_the_allocators_too() {
    let statistics = agrees_exactly("expandable_segments:True", Bytes::gib(8), Some(Bytes::mib(700)), 48 << 20);
    assert!(statistics.num_ooms > 0 && statistics.num_alloc_retries > statistics.num_ooms, "{statistics:?}");
}

#[test]
fn oversize_blocks_are_counted_under_the_settings_in_force() {
    let statistics = agrees_exactly("max_split_size_mb:32", Bytes::gib(8), None, 96 << 20);
    assert!(statistics.oversize_allocations.allocated > 0 && statistics.oversize_segments.allocated > 0);
}

#[test]
fn retries_are_told_from_garbage_and_oversize_segments_as_a_rule() {
    for conf in ["garbage_collection_threshold:0.6", "garbage_collection_threshold:0.8", "max_split_size_mb:32"] {
        let (ours, theirs) = agrees(conf, Bytes::gib(8), Some(Bytes::mib(900)), 48 << 20);
        let (ours, retries) = (ours.num_alloc_retries, theirs.num_alloc_retries);
        assert!(retries > 20 && (ours - retries).abs() * 10 <= retries, "{conf}: {ours} for {retries}");
    }
}

#[test]
fn what_contradicts_is_left_out() {
    let mut state = AllocatorState::new();
    let mut apply = |kind| {
        state.apply(&Event::new(Micros(0), kind));
        state.statistics().clone()
    };
    let (address, stream, pool) = (Address(1 << 40), StreamId::DEFAULT, PoolKind::Large);
    let size = Bytes::mib(20);
    let before = apply(EventKind::SegmentAlloc { address, size, stream, pool });
    let (requested, category, name) = (Bytes(100), Category::Other, NameId::NONE);
    for kind in [
        EventKind::SegmentAlloc { address, size, stream, pool },
        EventKind::SegmentAlloc { address: Address(u64::MAX - 5), size, stream, pool },
        EventKind::SegmentAlloc { address: Address(1 << 30), size: Bytes(u64::MAX), stream, pool },
        EventKind::SegmentFree { address, size: Bytes(1) },
        EventKind::FreeRequested { address },
        EventKind::FreeCompleted { address },
        EventKind::Alloc { address: Address(5), size, requested, stream, category, name },
        EventKind::Alloc { address, size: Bytes(u64::MAX), requested, stream, category, name },
        EventKind::Alloc { address, size: Bytes::mib(21), requested, stream, category, name },
        EventKind::Alloc { address, size: Bytes(0), requested, stream, category, name },
        EventKind::SegmentUnmap { address, size },
        EventKind::SegmentMap { address, size, stream, pool, range: address, page: Bytes::mib(2) },
        EventKind::SegmentMap { address, size, stream, pool, range: Address(u64::MAX), page: Bytes(0) },
    ] {
        assert_eq!(apply(kind.clone()), before, "{kind:?}");
    }
}
