//! Side streams: pending blocks, their events, synchronisation.

use super::*;

const SIDE: StreamId = StreamId(0x40);
const OTHER: StreamId = StreamId(0x20);

#[test]
fn a_block_used_by_a_side_stream_is_pending_until_its_event_is_done() {
    let mut lab = Lab::new("");
    let a = lab.malloc(1000);
    lab.allocator.record_stream(a.address, STREAM);
    lab.allocator.record_stream(a.address, SIDE);
    lab.allocator.record_stream(a.address, SIDE);
    lab.forget();
    lab.free(a);
    assert_eq!(lab.history(), ["free_requested 1000"]);
    let statistics = lab.statistics();
    assert_eq!((statistics.allocation.all.current, statistics.active.all.current), (0, 1));
    assert_eq!((statistics.allocated_bytes.all.current, statistics.active_bytes.all.current), (0, 1024));
    assert_eq!(statistics.requested_bytes.all.current, 1000);
    assert_eq!(lab.allocator.segments()[0].blocks[0].state, BlockState::ActivePendingFree);
    let pending: Vec<PendingBlock> = lab.allocator.pending().collect();
    assert_eq!(pending, [PendingBlock { address: a.address, stream: SIDE, event: EventToken(1) }]);
    assert!(lab.allocator.free(a.address).is_err(), "it is the program's no longer");
    assert_ne!(lab.malloc(1000).address, a.address);
    lab.allocator.source_mut().done = 1;
    lab.forget();
    assert_eq!(lab.malloc(1000).address, a.address, "this very request can be served by it");
    assert_eq!(lab.history(), ["free_completed 1000", "alloc 1000"]);
}

#[test]
fn pending_blocks_do_not_merge() {
    let mut lab = Lab::new("");
    let [a, b] = [(); 2].map(|()| lab.malloc(512));
    lab.allocator.record_stream(a.address, SIDE);
    lab.free(a);
    lab.free(b);
    assert_eq!(lab.allocator.segments()[0].blocks.len(), 2);
    lab.allocator.source_mut().done = 1;
    lab.allocator.process_events();
    assert_eq!(lab.allocator.segments()[0].blocks.len(), 1);
}

#[test]
fn queues_are_first_in_first_out_and_a_block_waits_for_all_its_streams() {
    let mut lab = Lab::new("");
    let [a, b] = [(); 2].map(|()| lab.malloc(512));
    lab.allocator.record_stream(a.address, SIDE);
    lab.allocator.record_stream(a.address, OTHER);
    lab.allocator.record_stream(b.address, OTHER);
    lab.free(a); // events 1 on SIDE, 2 on OTHER
    lab.free(b); // event 3 on OTHER
    lab.allocator.source_mut().done = 1;
    lab.allocator.process_events();
    assert_eq!(lab.allocator.pending().count(), 2, "one of a's two is done");
    lab.allocator.source_mut().done = 3;
    lab.forget();
    lab.allocator.process_events();
    assert_eq!(lab.history().len(), 2);
    assert_eq!(lab.allocator.pending().count(), 0);
}

#[test]
fn empty_cache_waits_for_pending_blocks() {
    let mut lab = Lab::new("");
    let a = lab.malloc(30 * MIB);
    lab.allocator.record_stream(a.address, SIDE);
    lab.free(a);
    lab.forget();
    lab.empty_cache();
    assert_eq!(lab.history(), ["free_completed 30M", "segment_free 30M"]);
    assert_eq!(lab.allocator.source().waits, 1);
    lab.empty_cache();
    assert_eq!(lab.statistics().num_sync_all_streams, 2, "each call counts, also with nothing to do");
}

#[test]
fn the_last_retry_waits_for_pending_blocks_too() {
    let mut lab = Lab::new("");
    lab.allocator.set_limit(Some(Bytes::mib(40)));
    let a = lab.malloc(30 * MIB);
    lab.allocator.record_stream(a.address, SIDE);
    lab.free(a);
    lab.forget();
    lab.malloc(20 * MIB);
    assert_eq!(lab.history(), ["free_completed 30M", "segment_free 30M", "segment_alloc 20M", "alloc 20M"]);
}

#[test]
fn strangers_cannot_be_recorded() {
    let mut lab = Lab::new("");
    lab.allocator.record_stream(Address(0x1234), SIDE);
    let a = lab.malloc(512);
    lab.allocator.record_stream(a.address, SIDE);
    lab.free(a);
    lab.allocator.record_stream(a.address, OTHER);
    assert_eq!(lab.allocator.source().events, 1);
}
