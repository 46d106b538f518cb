//! Expandable segments.

use super::*;

const ON: &str = "expandable_segments:True";

fn segments(lab: &Lab) -> Vec<(u64, u64)> {
    lab.allocator.segments().iter().map(|segment| (segment.address.0, segment.size.0 / MIB)).collect()
}

#[test]
fn pages_are_mapped_at_the_low_end_as_they_are_needed() {
    let mut lab = Lab::new(ON);
    let small = lab.malloc(100);
    let a = lab.malloc(25 * MIB);
    assert_eq!(lab.history(), ["segment_map 2M", "alloc 100", "segment_map 40M", "alloc 25M"]);
    assert_eq!(small.address, Address(0x3_0200_0000));
    lab.malloc(14 * MIB);
    lab.malloc(2 * MIB);
    // 15 MiB were left: 14 of them are used, then one is left and one page more is mapped.
    assert_eq!(lab.history(), ["alloc 14M", "segment_map 20M", "alloc 2M"]);
    assert_eq!(segments(&lab), [(0x3_0200_0000, 2), (a.address.0, 60)]);
    let statistics = lab.statistics();
    assert_eq!(statistics.segment.all, Counter::default());
    assert_eq!(statistics.inactive_split.all, Counter::default());
    assert_eq!((statistics.num_device_alloc, statistics.reserved_bytes.all.current), (3, 62 * 1024 * 1024));
}

#[test]
fn ranges_span_nine_eighths_of_the_device_in_whole_pages() {
    // The H200's memory; the second range begins at the next multiple of 32 MiB behind the first, both as seen there.
    let total = 150_109_880_320;
    let mut driver = SimulatedDriver::new(Bytes(total), Bytes::ZERO);
    let pages = (total + total / 8).div_ceil(2 * MIB);
    let first = driver.reserve_range(Bytes(pages * 2 * MIB)).unwrap();
    assert_eq!(first, Address(0x3_0200_0000));
    let settings = Settings::parse(ON).unwrap();
    let mut allocator = CachingAllocator::new(SimulatedDriver::new(Bytes(total), Bytes::ZERO), settings, ());
    assert_eq!(allocator.malloc(Bytes(1), STREAM).unwrap().address, first);
    let second = allocator.malloc(Bytes::mib(2), STREAM).unwrap().address;
    assert_eq!(second.0, (first.0 + pages * 2 * MIB).next_multiple_of(32 * MIB));
}

#[test]
fn the_limit_test_uses_the_nominal_segment() {
    let mut lab = Lab::new(ON);
    lab.allocator.set_limit(Some(Bytes::mib(50)));
    let big = lab.malloc(45 * MIB);
    assert_eq!(lab.allocator.reserved(), Bytes::mib(60), "46 MiB pass, 60 are mapped");
    lab.free(big);
    lab.empty_cache();
    lab.malloc(40 * MIB);
    assert!(lab.try_malloc(5 * MIB).is_err(), "40 + 20 exceed 50");
}

#[test]
fn blocks_are_split_down_to_512_bytes_whatever_they_are() {
    let mut lab = Lab::new("");
    let [old] = lab.cache(&[20 * MIB])[..] else { unreachable!() };
    lab.allocator.apply_settings("expandable_segments:True,max_split_size_mb:20").unwrap();
    // An oversize request may reuse the cudaMalloc block, and with the setting on its rest is split off.
    let a = lab.malloc(20 * MIB - 512 - MIB);
    assert_ne!(a.address, old.address, "a smaller request leaves an oversize block alone");
    lab.allocator.apply_settings("expandable_segments:True").unwrap();
    let b = lab.malloc(20 * MIB - 512);
    assert_eq!((b.address, b.size), (old.address, Bytes(20 * MIB - 512)));
    assert_eq!(lab.statistics().inactive_split_bytes.all.current, 512);
}

#[test]
fn holes_are_preferred_to_the_growing_end() {
    let mut lab = Lab::new(ON);
    let a = lab.malloc(8 * MIB);
    let b = lab.malloc(2 * MIB);
    assert_eq!(lab.allocator.reserved(), Bytes::mib(20));
    lab.free(a);
    // The tail of 10 MiB and the hole of 8 both fit; the tail reaches further, so the hole wins when it comes after.
    let tail = lab.malloc(9 * MIB);
    assert_eq!(tail.address, b.address.offset(b.size));
    lab.free(tail);
    let c = lab.malloc(8 * MIB);
    assert_eq!(c.address, a.address);
    let first = lab.malloc(4 * MIB);
    assert_eq!(first.address, tail.address);
    lab.free(c);
    // Now the tail (6 MiB) is the smaller candidate, but the hole of 8 MiB reaches less far.
    assert_eq!(lab.malloc(3 * MIB).address, a.address);
}

#[test]
fn empty_cache_unmaps_whole_pages_and_growth_fills_the_gaps_first() {
    let mut lab = Lab::new(ON);
    let blocks: Vec<Allocation> = (0..6).map(|_| lab.malloc(10 * MIB)).collect();
    let base = blocks[0].address;
    for i in [1, 2, 3] {
        lab.free(blocks[i]);
    }
    lab.forget();
    lab.empty_cache();
    // Of [10, 40) MiB the page [20, 40) lies wholly inside.
    assert_eq!(lab.history(), ["segment_unmap 20M"]);
    assert_eq!(segments(&lab), [(base.0, 20), (base.0 + 40 * MIB, 20)]);
    assert_eq!(lab.malloc(15 * MIB).address, base.offset(Bytes::mib(10)), "the left-over and the gap behind it");
    assert_eq!(lab.history(), ["segment_map 20M", "alloc 15M"]);
    assert_eq!(lab.statistics().num_device_free, 1);
}

#[test]
fn one_request_can_fill_several_gaps() {
    let mut lab = Lab::new(ON);
    let blocks: Vec<Allocation> = (0..5).map(|_| lab.malloc(20 * MIB)).collect();
    lab.free(blocks[1]);
    lab.empty_cache();
    lab.free(blocks[2]);
    lab.free(blocks[3]);
    lab.free(blocks[4]);
    lab.forget();
    // Gap of 20, 60 MiB free, then the growing end.
    let big = lab.malloc(95 * MIB);
    assert_eq!(big.address, blocks[1].address);
    assert_eq!(lab.history(), ["segment_map 20M", "segment_map 20M", "alloc 95M"]);
}

#[test]
fn pages_mapped_before_a_failure_stay_mapped_and_free() {
    let mut lab = Lab::with_memory(ON, Bytes::mib(100));
    let blocks: Vec<Allocation> = (0..4).map(|_| lab.malloc(20 * MIB)).collect();
    lab.free(blocks[0]);
    lab.empty_cache();
    lab.free(blocks[1]);
    lab.forget();
    assert!(lab.try_malloc(90 * MIB).is_err());
    let history = lab.history();
    assert_eq!(history.last().map(String::as_str), Some("oom 90M"));
    assert_eq!(lab.statistics().num_alloc_retries, 1);
    let small = lab.malloc(35 * MIB);
    assert_eq!(small.address, blocks[0].address);
}

#[test]
fn a_range_that_is_wholly_unmapped_goes_back() {
    let mut lab = Lab::new(ON);
    let a = lab.malloc(3 * MIB);
    lab.free(a);
    lab.empty_cache();
    assert!(segments(&lab).is_empty());
    assert_eq!(lab.allocator.source().used, 0);
    assert_ne!(lab.malloc(3 * MIB).address, a.address, "the fake device never gives a range twice");
}

#[test]
fn switched_off_ranges_stay_but_serve_nobody() {
    let mut lab = Lab::new(ON);
    let [range] = lab.cache(&[5 * MIB])[..] else { unreachable!() };
    lab.allocator.apply_settings("expandable_segments:False").unwrap();
    lab.forget();
    let plain = lab.malloc(5 * MIB);
    assert_ne!(plain.address, range.address);
    assert_eq!(lab.history(), ["segment_alloc 20M", "alloc 5M"]);
    lab.free(plain);
    // Stepping over the range's block finds the cudaMalloc block behind it.
    assert_eq!(lab.malloc(6 * MIB).address, plain.address);
    lab.forget();
    lab.empty_cache();
    assert_eq!(lab.history(), ["segment_unmap 20M"]);
}

#[test]
fn pages_go_back_once_where_a_whole_segment_went_before_them() {
    let mut lab = Lab::new(ON);
    lab.malloc(5 * MIB);
    lab.cache(&[30 * MIB]);
    lab.allocator.apply_settings("expandable_segments:False").unwrap();
    lab.cache(&[60 * MIB]);
    lab.forget();
    // The range's free 35 MiB are cut before their whole page, and the rest takes the id that the segment had.
    lab.empty_cache();
    assert_eq!(lab.history(), ["segment_free 60M", "segment_unmap 20M"]);
}

#[test]
fn an_oversize_candidate_refused_by_the_slack_is_taken_without_mapping() {
    let mut lab = Lab::new("expandable_segments:True,max_split_size_mb:20");
    let big = lab.malloc(60 * MIB);
    lab.free(big);
    lab.forget();
    assert!(!lab.allocator.peek_free(Bytes::mib(30), STREAM));
    let again = lab.malloc(30 * MIB);
    assert_eq!((again.address, lab.history()), (big.address, vec!["alloc 30M".to_owned()]));
}

#[test]
fn garbage_collection_counts_expandable_blocks_but_leaves_them() {
    let mut lab = Lab::new("expandable_segments:True,garbage_collection_threshold:0.1");
    lab.allocator.set_limit(Some(Bytes::mib(200)));
    lab.cache(&[60 * MIB]);
    lab.forget();
    lab.malloc(80 * MIB);
    assert_eq!(lab.history(), ["segment_map 20M", "alloc 80M"]);
}
