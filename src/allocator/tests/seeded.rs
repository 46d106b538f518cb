//! Allocators that begin in the middle of a program's life.

use super::*;

fn segment(start: u64, pool_id: PoolId) -> SegmentSnapshot {
    let block = |at: u64, size: u64, state| BlockSnapshot {
        address: Address(start + at * MIB),
        size: Bytes::mib(size),
        requested: Bytes::ZERO,
        state,
    };
    SegmentSnapshot {
        address: Address(start),
        size: Bytes::mib(20),
        stream: StreamId::DEFAULT,
        pool: PoolKind::Large,
        pool_id,
        expandable: false,
        blocks: vec![block(0, 4, BlockState::ActiveAllocated), block(4, 16, BlockState::Inactive)],
    }
}

#[test]
fn private_pools_serve_nobody_else_and_keep_their_segments() {
    let (pool, private) = (PoolId(1, 0), Address(0x2_0000_0000));
    let seed =
        Seed { segments: vec![segment(0x1_0000_0000, PoolId::DEFAULT), segment(private.0, pool)], ..Seed::default() };
    let device = FakeDevice::new(Bytes::gib(1));
    let mut allocator = CachingAllocator::seeded(device, Settings::default(), (), &seed).unwrap();
    assert_eq!((allocator.reserved(), allocator.stranded()), (Bytes::mib(40), Bytes::mib(32)));
    let mut malloc = |mib: u64, diverted: bool| {
        if diverted {
            allocator.begin_diversion(Diversion { pool, stream: None, capture: true });
        }
        let address = allocator.malloc(Bytes::mib(mib), StreamId::DEFAULT).unwrap().address;
        allocator.end_diversion(pool);
        address
    };
    assert_eq!(malloc(12, false), Address(0x1_0040_0000));
    // The default pools have no room for it, and must grow.
    let grown = malloc(12, false);
    assert!(grown > private.offset(Bytes::mib(20)), "{grown}");
    assert_eq!(malloc(12, true), private.offset(Bytes::mib(4)));
    assert_eq!(allocator.segments().iter().filter(|segment| segment.pool_id == pool).count(), 1);
}
