//! What differs from version to version, and private pools.

use super::*;

fn allocator(torch: TorchVersion, conf: &str, total: Bytes) -> CachingAllocator<FakeDevice, Vec<TraceEvent>> {
    CachingAllocator::new(FakeDevice::new(total), Settings::parse_for(torch, conf).unwrap(), Vec::new())
}

fn take<S: SegmentSource>(allocator: &mut CachingAllocator<S, Vec<TraceEvent>>, mib: u64) -> Address {
    allocator.malloc(Bytes::mib(mib), StreamId::DEFAULT).unwrap().address
}

#[test]
fn a_share_of_the_device_is_cut_off_or_rounded() {
    for (torch, limit) in [(TorchVersion::V2_12, 698), (TorchVersion::V2_13, 699)] {
        let mut allocator = allocator(torch, "", Bytes(998));
        allocator.set_memory_fraction(0.7).unwrap();
        assert_eq!(allocator.limit(), Some(Bytes(limit)), "{torch}");
    }
}

#[test]
fn a_policy_refuses_before_the_driver_is_asked() {
    let conf = "throw_on_cudamalloc_oom:True";
    let mut allocator = allocator(TorchVersion::V2_12, conf, Bytes::mib(100));
    let first = take(&mut allocator, 60);
    let refused = allocator.malloc(Bytes::mib(60), StreamId::DEFAULT).unwrap_err();
    assert!(matches!(refused, AllocError::Rejected { needed, .. } if needed == Bytes::mib(120)), "{refused}");
    let statistics = allocator.statistics();
    assert_eq!((statistics.num_oom_rejections, statistics.num_ooms, statistics.num_alloc_retries), (Some(1), 0, 0));
    assert!(!allocator.sink().iter().any(|event| matches!(event, TraceEvent::Oom { .. })));
    allocator.free(first).unwrap();
    assert_eq!(take(&mut allocator, 60), first);
    assert_eq!(
        Statistics::new(Bytes::ZERO, TorchVersion::V2_11).entries().len() + 1,
        allocator.statistics().entries().len()
    );
}

#[test]
fn a_private_pool_serves_nobody_else_and_stays_until_it_is_released() {
    let mut allocator = allocator(TorchVersion::V2_13, "", Bytes::gib(1));
    let pool = PoolId(0, 1);
    let cached = take(&mut allocator, 20);
    allocator.free(cached).unwrap();
    allocator.begin_diversion(Diversion { pool, stream: None, capture: false });
    let private = take(&mut allocator, 20);
    allocator.end_diversion(pool);
    assert_ne!(private, cached, "the default pool's free blocks are not used");
    allocator.free(private).unwrap();
    assert_eq!(take(&mut allocator, 20), cached, "nor those of the private one");
    let named = |allocator: &CachingAllocator<FakeDevice, Vec<TraceEvent>>, key: &str| {
        let entries = allocator.statistics().entries();
        entries.into_iter().find(|(name, _)| name.contains("by_private_pools") && name.ends_with(key)).map(|(_, n)| n)
    };
    assert_eq!(named(&allocator, "0_1.large_pool.current"), Some(20 << 20));
    allocator.empty_cache();
    assert_eq!(allocator.segments().iter().filter(|segment| segment.pool_id == pool).count(), 1, "it has a user");
    allocator.release_pool(pool);
    allocator.empty_cache();
    assert_eq!(allocator.segments().iter().filter(|segment| segment.pool_id == pool).count(), 0);
    assert_eq!((named(&allocator, "0_1.all.current"), named(&allocator, "0_1.all.peak")), (Some(0), Some(20 << 20)));
    assert_eq!(allocator.check_invariants(), Ok(()));
}

#[test]
fn nobody_waits_for_the_blocks_of_a_private_pool_that_has_users() {
    for torch in [TorchVersion::V2_11, TorchVersion::V2_13] {
        let mut allocator = allocator(torch, "", Bytes::gib(1));
        let pool = PoolId(0, 1);
        allocator.begin_diversion(Diversion { pool, stream: None, capture: false });
        let lent = take(&mut allocator, 20);
        allocator.end_diversion(pool);
        allocator.record_stream(lent, StreamId(8));
        allocator.free(lent).unwrap();
        let held = |allocator: &CachingAllocator<FakeDevice, Vec<TraceEvent>>| {
            let statistics = allocator.statistics();
            (statistics.num_sync_all_streams, statistics.active.all.current, statistics.segment.all.current)
        };
        allocator.empty_pool(pool);
        assert_eq!(held(&allocator), (0, 1, 1), "{torch}: left alone");
        allocator.release_pool(pool);
        allocator.empty_pool(pool);
        assert_eq!(held(&allocator), (1, 0, 0), "{torch}: waited for and given back");
    }
}

#[test]
fn a_capture_leaves_the_last_retry_out_and_so_did_any_diversion() {
    for (torch, capture, fits) in [
        (TorchVersion::V2_12, false, false),
        (TorchVersion::V2_12, true, false),
        (TorchVersion::V2_13, false, true),
        (TorchVersion::V2_13, true, false),
    ] {
        let mut allocator = allocator(torch, "", Bytes::mib(100));
        let cached = take(&mut allocator, 60);
        allocator.free(cached).unwrap();
        allocator.begin_diversion(Diversion { pool: PoolId(0, 1), stream: None, capture });
        let served = allocator.malloc(Bytes::mib(60), StreamId::DEFAULT).is_ok();
        assert_eq!(served, fits, "{torch}, capture: {capture}");
    }
}
