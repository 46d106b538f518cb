//! Rounding, segments, splitting, merging and what the statistics make of them.

use super::*;
use crate::units::KIB;

#[test]
fn requests_round_to_512_by_default() {
    let table = RoundupTable::default();
    for (asked, rounded) in
        [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512), (20_000_000, 20_000_256)]
    {
        assert_eq!(round(Bytes(asked), &table), Bytes(rounded));
    }
}

#[test]
fn four_divisions_round_large_requests_to_quarters() {
    let settings = Settings::parse("roundup_power2_divisions:4").unwrap();
    for (asked, rounded) in [
        (1200, 1536),
        (2048, 2048),
        (2049, 2560),
        (2560, 2560),
        (1_048_577, 5 * MIB / 4),
        (MIB - 1, MIB),
        (MIB, MIB),
        (3 * MIB, 3 * MIB),
        (3 * MIB + 1, 7 * MIB / 2),
        (100 << 30, 112 << 30),
    ] {
        assert_eq!(round(Bytes(asked), &settings.roundup_power2_divisions), Bytes(rounded), "{asked}");
    }
}

/// As the released allocator does.
#[test]
fn divisions_that_overflow_round_to_powers_of_two() {
    for (divisions, rounded) in
        [(1_u64 << 63, [1024, MIB, 4 * MIB]), (1 << 55, [1024, MIB, 4 * MIB]), (1 << 54, [1024, 700_416, 3_000_320])]
    {
        let table = Settings::parse(&format!("roundup_power2_divisions:{divisions}")).unwrap().roundup_power2_divisions;
        for (asked, rounded) in [(1000, rounded[0]), (700_000, rounded[1]), (3_000_000, rounded[2]), (512, 512)] {
            assert_eq!(round(Bytes(asked), &table), Bytes(rounded), "{asked} under {divisions}");
        }
    }
}

#[test]
fn segments_follow_the_rounded_size() {
    let large = Bytes::mib(20);
    for (rounded, segment) in [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (20_000_256, 20 * MIB),
        (12 * MIB, 12 * MIB),
    ] {
        assert_eq!(segment_size(Bytes(rounded), large), Bytes(segment), "{rounded}");
    }
    assert_eq!(segment_size(Bytes(2 * MIB), Bytes::mib(64)), Bytes::mib(64));
}

#[test]
fn first_requests_get_the_blocks_of_the_table() {
    for (asked, segment, block) in [
        (1, 2 * MIB, 512),
        (MIB, 2 * MIB, MIB),
        (MIB + 1, 20 * MIB, MIB + 512),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB, 10 * MIB + 512),
        (20_000_000, 20 * MIB, 20 * MIB),
    ] {
        let mut lab = Lab::new("");
        assert_eq!(lab.malloc(asked).size, Bytes(block), "{asked}");
        assert_eq!(lab.allocator.reserved(), Bytes(segment), "{asked}");
    }
}

#[test]
fn a_rest_of_exactly_one_mib_is_not_split_off() {
    let mut lab = Lab::new("");
    lab.cache(&[20 * MIB]);
    let whole = lab.malloc(19 * MIB);
    assert_eq!(whole.size, Bytes::mib(20));
    assert_eq!(lab.statistics().requested_bytes.all.current, 19 * 1024 * 1024);
    lab.free(whole);
    assert_eq!(lab.malloc(19 * MIB - 512).size, Bytes(19 * MIB - 512));
}

#[test]
fn small_blocks_are_split_down_to_512() {
    let mut lab = Lab::new("");
    let first = lab.malloc(MIB - 512);
    let second = lab.malloc(512);
    assert_eq!(second.address, first.address.offset(first.size));
    lab.malloc(MIB);
    assert_eq!(lab.allocator.reserved(), Bytes::mib(2), "the segment is full to the last byte");
    assert_eq!(lab.statistics().inactive_split.all.current, 0);
}

#[test]
fn the_smallest_block_that_fits_serves_and_among_equals_the_lowest() {
    let mut lab = Lab::new("");
    let blocks = lab.cache(&[30 * MIB, 14 * MIB, 20 * MIB, 14 * MIB]);
    assert_eq!(lab.malloc(14 * MIB).address, blocks[1].address);
    assert_eq!(lab.malloc(14 * MIB).address, blocks[3].address);
    assert_eq!(lab.malloc(14 * MIB).address, blocks[2].address);
    assert!(!lab.allocator.peek_free(Bytes(30 * MIB + 1), STREAM));
    assert!(lab.allocator.peek_free(Bytes(30 * MIB), STREAM));
}

#[test]
fn each_stream_has_its_own_blocks() {
    let mut lab = Lab::new("");
    lab.cache(&[KIB]);
    let other = lab.malloc_on(KIB, StreamId(8));
    assert_eq!(lab.statistics().segment.small_pool.current, 2);
    lab.free(other);
    assert_eq!(lab.malloc_on(KIB, StreamId(8)).address, other.address);
}

#[test]
fn freed_neighbours_merge_and_the_segment_becomes_releasable() {
    let mut lab = Lab::new("");
    let [a, b, c] = [(); 3].map(|()| lab.malloc(4 * MIB));
    lab.free(a);
    lab.free(c);
    let split = lab.statistics().inactive_split;
    assert_eq!((split.all.current, split.all.allocated, split.all.freed), (2, 2, 0));
    assert_eq!(lab.statistics().inactive_split_bytes.all.current, 16 * 1024 * 1024);
    lab.empty_cache();
    assert_eq!(lab.allocator.reserved(), Bytes::mib(20), "a split segment stays");
    lab.free(b);
    let split = lab.statistics().inactive_split;
    assert_eq!((split.all.current, split.all.allocated, split.all.freed), (0, 2, 2));
    assert_eq!(lab.allocator.segments()[0].blocks.len(), 1);
    lab.empty_cache();
    assert_eq!(lab.allocator.reserved(), Bytes::ZERO);
}

#[test]
fn inactive_split_counts_one_net_change_for_each_free() {
    let mut lab = Lab::new("");
    let a = lab.malloc(512);
    let b = lab.malloc(512);
    // First split: +1 and the rest; the second takes 512 bytes off the rest and leaves the count.
    let bytes = lab.statistics().inactive_split_bytes.all;
    assert_eq!((bytes.current, bytes.allocated, bytes.freed), (2 * 1024 * 1024 - 1024, 2 * 1024 * 1024 - 512, 512));
    lab.free(a);
    assert_eq!(lab.statistics().inactive_split.all, Counter { current: 2, peak: 2, allocated: 2, freed: 0 });
    lab.free(b);
    // Both neighbours absorbed, the result is whole: one decrease by two.
    assert_eq!(lab.statistics().inactive_split.all, Counter { current: 0, peak: 2, allocated: 2, freed: 2 });
    // A block of a split segment that is used whole leaves the account.
    let [x, _y] = [(); 2].map(|()| lab.malloc(MIB));
    assert_eq!(lab.statistics().inactive_split.all.current, 0);
    assert_eq!(lab.statistics().inactive_split_bytes.all.current, 0);
    lab.free(x);
    assert_eq!(lab.statistics().inactive_split.all.current, 1);
}

#[test]
fn stale_requested_sizes_stay_as_pytorch_shows_them() {
    let mut lab = Lab::new("");
    let a = lab.malloc(1000);
    let _b = lab.malloc(2000);
    lab.free(a);
    let requested =
        |lab: &Lab| -> Vec<u64> { lab.allocator.segments()[0].blocks.iter().map(|block| block.requested.0).collect() };
    assert_eq!(requested(&lab), [1000, 2000, 0], "freed, live, never used");
    lab.malloc(100);
    assert_eq!(requested(&lab), [100, 1000, 2000, 0], "the remainder is the old block");
}

#[test]
fn a_block_tells_its_three_sizes_apart() {
    let mut lab = Lab::new("");
    let block = lab.malloc(20_000_000);
    let statistics = lab.statistics();
    assert_eq!(statistics.requested_bytes.all.current, 20_000_000);
    assert_eq!(statistics.allocated_bytes.large_pool.current, 20 * 1024 * 1024);
    assert_eq!(lab.history(), ["segment_alloc 20M", "alloc 20000000"]);
    lab.free(block);
    assert_eq!(lab.history(), ["free_requested 20000000", "free_completed 20000000"]);
}

#[test]
fn wrong_addresses_and_absurd_sizes_are_refused() {
    let mut lab = Lab::new("");
    let block = lab.malloc(100);
    let inside = Address(block.address.0 + 8);
    assert_eq!(lab.allocator.free(inside), Err(AllocError::InvalidPointer { address: inside }));
    lab.free(block);
    assert!(lab.allocator.free(block.address).is_err(), "freed twice");
    assert_eq!(lab.allocator.free(Address(0)), Ok(()));
    lab.forget();
    assert_eq!(lab.try_malloc(0).unwrap().address, Address(0));
    assert_eq!(lab.try_malloc(1 << 60), Err(AllocError::TooLarge { requested: Bytes(1 << 60) }));
    assert!(lab.history().is_empty());
}
