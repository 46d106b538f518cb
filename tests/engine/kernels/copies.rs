//! The copy stream: copies run at the same time as the compute stream, in order, and nothing sees them half done.

use std::time::{Duration, Instant};

use vramlab::device::{DType, Device, DeviceEvent, HostBuffer, Operand, kernels};
use vramlab::units::{Bytes, StreamId};

use super::harness::Bench;

const LARGE: usize = 24 << 20;

fn filled(bench: &Bench, bytes: usize, value: u8) -> HostBuffer {
    let buffer = bench.device.pinned_memory().allocate(Bytes(bytes as u64)).unwrap();
    bench.device.pinned_memory().with_bytes(buffer, |bytes| bytes.fill(value)).unwrap();
    buffer
}

#[test]
fn a_pinned_copy_returns_before_it_is_done_and_an_event_tells_when() {
    let mut bench = Bench::new();
    let buffer = filled(&bench, LARGE, 7);
    let dst = bench.empty(DType::U8, LARGE);
    let stream = bench.device.copy_stream();
    assert_ne!(stream, StreamId::DEFAULT);
    // On a busy machine the copy may be over before this thread looks, but not a hundred times in a row.
    let overlapped = (0..100).any(|_| {
        let before = bench.device.record_event(stream).unwrap();
        let started = Instant::now();
        bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
        let event = bench.device.record_event(stream).unwrap();
        let under_way = !bench.device.query_event(event);
        assert!(bench.device.query_event(before), "nothing was left to do before that event");
        bench.device.wait_event(StreamId::DEFAULT, event).unwrap();
        let waited = started.elapsed();
        assert!(bench.device.query_event(event));
        let copying = bench.device.take_copy_time();
        assert!(copying > Duration::ZERO && copying <= waited, "{copying:?} of {waited:?}");
        under_way
    });
    assert!(overlapped, "submitting a copy held the host up");
    assert_eq!(bench.device.take_copy_time(), Duration::ZERO);
    assert!(bench.bytes(dst).iter().all(|&x| x == 7));
}

#[test]
fn copies_run_in_order() {
    let mut bench = Bench::new();
    let stream = bench.device.copy_stream();
    let dst = bench.empty(DType::U8, 1 << 20);
    let buffers: Vec<HostBuffer> = (0..50).map(|i| filled(&bench, 1 << 20, i)).collect();
    let mut events: Vec<DeviceEvent> = Vec::new();
    for &buffer in &buffers {
        bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
        events.push(bench.device.record_event(stream).unwrap());
    }
    for (i, &event) in events.iter().enumerate() {
        bench.device.wait_event(StreamId::DEFAULT, event).unwrap();
        assert!(events[..=i].iter().all(|&event| bench.device.query_event(event)));
    }
    assert!(bench.bytes(dst).iter().all(|&x| x == 49));
}

#[test]
fn a_kernel_may_not_touch_what_a_copy_that_nobody_waited_for_writes() {
    let mut bench = Bench::new();
    let stream = bench.device.copy_stream();
    let buffer = filled(&bench, LARGE, 3);
    let (dst, other) = (bench.empty(DType::U8, LARGE), bench.empty(DType::U8, 100));
    bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
    let event = bench.device.record_event(stream).unwrap();
    let first = Operand { len: 1, ..dst };
    let error = bench.try_run(kernels::Elementwise::Fill { dst: first, value: 1.0 }).unwrap_err().to_string();
    assert!(error.contains("still written by a copy"), "{error}");
    bench.run(kernels::Elementwise::Fill { dst: other, value: 1.0 });
    bench.device.wait_event(StreamId::DEFAULT, event).unwrap();
    bench.run(kernels::Elementwise::Fill { dst: first, value: 1.0 });
    assert_eq!(bench.get(first), [1.0]);
    bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
    bench.device.synchronize();
    assert_eq!(bench.get(first), [3.0]);
}

#[test]
fn the_allocator_sees_the_copy_streams_events_and_memory_outlives_its_copies() {
    let mut bench = Bench::new();
    let stream = bench.device.copy_stream();
    let buffer = filled(&bench, LARGE, 3);
    let dst = bench.empty(DType::U8, LARGE);
    bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
    let (token, idle) = (bench.source.record_event(stream), bench.source.record_event(StreamId::DEFAULT));
    assert!(bench.source.event_done(idle));
    bench.source.wait_event(token);
    assert!(bench.source.event_done(token));
    // Freed on both sides while the copy is under way: the copy finishes first.
    bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
    bench.device.pinned_memory().free(buffer.address);
    let (segment, size) = (bench.segment, bench.size);
    bench.source.free(segment, size);
    assert!(bench.device.copy_pinned(buffer, dst.address, stream).is_err());
}

#[test]
fn both_ways_of_copying_arrive_and_wild_buffers_are_refused() {
    let mut bench = Bench::new();
    let dst = bench.empty(DType::U8, 1000);
    bench.device.copy_pageable(&[5; 1000], dst.address, StreamId::DEFAULT).unwrap();
    assert_eq!(bench.bytes(dst), [5; 1000]);
    assert!(bench.device.take_copy_time() > Duration::ZERO);
    let buffer = filled(&bench, 1000, 6);
    bench.device.copy_pinned(buffer, dst.address, StreamId::DEFAULT).unwrap();
    assert_eq!(bench.bytes(dst), [6; 1000]);
    let wild = HostBuffer { bytes: Bytes(100_000), ..buffer };
    assert!(bench.device.copy_pinned(wild, dst.address, StreamId::DEFAULT).is_err());
    let beyond = bench.segment.offset(bench.size);
    let stream = bench.device.copy_stream();
    assert!(bench.device.copy_pinned(buffer, beyond, stream).is_err());
}

#[test]
fn an_unknown_stream_is_an_error_and_never_the_compute_stream() {
    let mut bench = Bench::new();
    let dst = bench.empty(DType::U8, 100);
    let buffer = filled(&bench, 100, 4);
    let opened = bench.device.open_stream().unwrap();
    assert!(bench.device.has_stream(opened) && opened != bench.device.copy_stream());
    bench.device.copy_pinned(buffer, dst.address, opened).unwrap();
    let event = bench.device.record_event(opened).unwrap();
    assert!(bench.device.query_event(event));
    assert_eq!(bench.bytes(dst), [4; 100]);
    let unknown = StreamId(opened.0 + 1);
    assert!(!bench.device.has_stream(unknown));
    let fill = kernels::Elementwise::Fill { dst, value: 1.0 }.into();
    let refused = bench.device.launch(&fill, unknown).unwrap_err().to_string();
    assert!(refused.contains("has no stream"), "{refused}");
    assert!(bench.device.copy_pinned(buffer, dst.address, unknown).is_err());
    assert!(bench.device.copy_pageable(&[1; 100], dst.address, unknown).is_err());
    assert!(bench.device.record_event(unknown).is_err() && bench.device.wait_event(unknown, event).is_err());
    assert!(bench.device.mark(unknown).is_err());
    assert_eq!(bench.bytes(dst), [4; 100], "nothing ran");
}

#[test]
fn a_mark_of_the_copy_stream_is_reached_when_its_copies_are_done() {
    let mut bench = Bench::new();
    let stream = bench.device.copy_stream();
    let buffer = filled(&bench, LARGE, 9);
    let dst = bench.empty(DType::U8, LARGE);
    let idle = bench.device.mark(stream).unwrap();
    let begun = bench.device.mark(stream).unwrap();
    assert_eq!(bench.device.between(begun, idle), Duration::ZERO, "marks are set in order");
    bench.device.copy_pinned(buffer, dst.address, stream).unwrap();
    let ended = bench.device.mark(stream).unwrap();
    let elapsed = bench.device.between(begun, ended);
    let event = bench.device.record_event(stream).unwrap();
    assert!(bench.device.query_event(event), "whoever asks for the time has waited");
    assert!(elapsed >= bench.device.take_copy_time(), "{elapsed:?}");
    assert!(bench.bytes(dst).iter().all(|&x| x == 9));
}
