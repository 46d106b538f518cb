//! What happens when no free block serves: garbage collection, growth, releases, the last retry, out of memory.

use super::*;

fn limited(conf: &str, limit: u64) -> Lab {
    let mut lab = Lab::new(conf);
    lab.allocator.set_limit(Some(Bytes::mib(limit)));
    lab
}

#[test]
fn the_limit_counts_the_nominal_segment_and_passes_equality() {
    let mut lab = limited("", 40);
    lab.malloc(20 * MIB);
    assert!(lab.allocator.growth_allowed(Bytes(5 * MIB), Bytes::ZERO));
    lab.malloc(5 * MIB);
    assert!(!lab.allocator.growth_allowed(Bytes(1), Bytes::ZERO));
    assert!(lab.allocator.growth_allowed(Bytes(1), Bytes::mib(2)));
    assert!(lab.try_malloc(1).is_err());
}

#[test]
fn the_last_retry_gives_everything_back_in_pytorchs_order() {
    let mut lab = limited("", 64);
    let small = lab.malloc(100);
    lab.cache(&[14 * MIB, 12 * MIB, 10 * MIB]);
    let split = lab.malloc(4 * MIB);
    lab.free(small);
    lab.forget();
    lab.malloc(40 * MIB);
    assert_eq!(
        lab.history(),
        ["segment_free 12M", "segment_free 14M", "segment_free 2M", "segment_alloc 40M", "alloc 40M"]
    );
    assert_eq!((lab.statistics().num_alloc_retries, lab.statistics().num_sync_all_streams), (1, 1));
    lab.free(split);
}

#[test]
fn out_of_memory_tells_its_figures() {
    let mut lab = limited("", 50);
    let live = lab.malloc(4 * MIB);
    lab.cache(&[18 * MIB]);
    lab.forget();
    let Err(AllocError::OutOfMemory(oom)) = lab.try_malloc(35 * MIB + 1) else { panic!("it fits the limit") };
    assert_eq!(lab.history(), ["segment_free 18M", "oom 36700672"]);
    assert_eq!((oom.requested, oom.rounded), (Bytes(35 * MIB + 1), Bytes(35 * MIB + 512)));
    assert_eq!((oom.segment, oom.limit), (Bytes::mib(36), Some(Bytes::mib(50))));
    assert_eq!((oom.allocated, oom.reserved_but_unallocated()), (Bytes::mib(4), Bytes::mib(16)));
    assert_eq!((oom.device_free, oom.device_total), (Bytes(16 * 1024 * MIB - 20 * MIB), Bytes::gib(16)));
    let message = oom.to_string();
    for figure in ["36.00 MiB", "16.00 GiB", "15.98 GiB", "50.00 MiB", "4.00 MiB"] {
        assert!(message.contains(figure), "{message}");
    }
    lab.free(live);
}

#[test]
fn a_refusing_driver_is_asked_again_after_everything_went_back() {
    let mut lab = Lab::with_memory("", Bytes::mib(50));
    lab.cache(&[30 * MIB]);
    lab.forget();
    lab.malloc(40 * MIB);
    assert_eq!(lab.history(), ["segment_free 30M", "segment_alloc 40M", "alloc 40M"]);
    assert!(lab.try_malloc(20 * MIB).is_err());
    assert_eq!(lab.history(), ["oom 20M"]);
    let statistics = lab.statistics();
    assert_eq!((statistics.num_alloc_retries, statistics.num_ooms, statistics.num_sync_all_streams), (2, 1, 2));
}

#[test]
fn the_fraction_is_cut_off_to_whole_bytes_and_one_means_no_limit() {
    let mut lab = Lab::with_memory("per_process_memory_fraction:0.3", Bytes(1001));
    assert_eq!(lab.allocator.limit(), Some(Bytes(300)));
    lab.allocator.set_memory_fraction(1.0).unwrap();
    assert_eq!(lab.allocator.limit(), None);
    lab.allocator.set_memory_fraction(0.0).unwrap();
    assert_eq!(lab.allocator.limit(), Some(Bytes::ZERO));
    assert!(lab.try_malloc(1).is_err());
    for fraction in [-0.1, 1.1, f64::NAN] {
        assert!(lab.allocator.set_memory_fraction(fraction).is_err());
    }
    lab.allocator.apply_settings("per_process_memory_fraction:0.5").unwrap();
    assert_eq!(lab.allocator.limit(), Some(Bytes::ZERO), "the string's fraction is read at creation only");
}

#[test]
fn oversize_blocks_serve_oversize_requests_only() {
    let mut lab = Lab::new("max_split_size_mb:40");
    let [big] = lab.cache(&[60 * MIB])[..] else { unreachable!() };
    assert_ne!(lab.malloc(30 * MIB).address, big.address, "smaller requests leave it alone");
    // Slack below large_segment_size: 60 < 41 + 20, but 60 >= 40 + 20.
    assert!(!lab.allocator.peek_free(Bytes::mib(40), STREAM));
    assert!(lab.allocator.peek_free(Bytes(40 * MIB + 1), STREAM));
    let reused = lab.malloc(40 * MIB + 1);
    assert_eq!((reused.address, reused.size), (big.address, Bytes::mib(60)), "never split");
    assert_eq!(lab.statistics().oversize_allocations, Counter { current: 1, peak: 1, allocated: 2, freed: 1 });
    assert_eq!(lab.statistics().oversize_segments.current, 1);
    assert_eq!(lab.statistics().max_split_size, 40 * 1024 * 1024);
}

#[test]
fn only_one_candidate_is_held_against_the_oversize_rules() {
    let mut lab = Lab::new("max_split_size_mb:40,max_non_split_rounding_mb:30");
    lab.cache(&[70 * MIB, 100 * MIB]);
    assert!(!lab.allocator.peek_free(Bytes::mib(40), STREAM), "70 = 40 + 30 is refused");
    assert!(lab.allocator.peek_free(Bytes(40 * MIB + 512), STREAM));
    assert!(lab.allocator.peek_free(Bytes::mib(71), STREAM));
    assert!(!lab.allocator.peek_free(Bytes::mib(70 - 30), STREAM));
}

#[test]
fn an_oversize_request_first_gives_back_one_block_that_is_large_enough() {
    let mut lab = limited("max_split_size_mb:40", 200);
    lab.cache(&[50 * MIB, 100 * MIB, 20 * MIB]);
    lab.forget();
    lab.malloc(70 * MIB);
    assert_eq!(lab.history(), ["segment_free 100M", "segment_alloc 70M", "alloc 70M"]);
    assert_eq!(lab.statistics().num_alloc_retries, 0);
}

#[test]
fn or_the_largest_ones_until_they_are_enough() {
    let mut lab = limited("max_split_size_mb:40", 200);
    lab.cache(&[50 * MIB, 60 * MIB, 40 * MIB, 20 * MIB]);
    lab.forget();
    lab.malloc(100 * MIB);
    assert_eq!(lab.history(), ["segment_free 60M", "segment_free 50M", "segment_alloc 100M", "alloc 100M"]);
}

#[test]
fn what_was_given_back_on_the_way_stays_so() {
    let mut lab = limited("max_split_size_mb:40", 200);
    lab.cache(&[50 * MIB, 40 * MIB, 20 * MIB]);
    let live = lab.malloc(10 * MIB);
    lab.forget();
    assert!(lab.try_malloc(195 * MIB).is_err());
    // Oversize blocks do not add up to it: they go first, then the rest goes by the last retry.
    assert_eq!(lab.history(), ["segment_free 50M", "segment_free 40M", "oom 195M"]);
    lab.free(live);
}

#[test]
fn small_requests_release_oversize_blocks_of_their_own_pool_only() {
    let mut lab = limited("max_split_size_mb:20", 22);
    lab.cache(&[22 * MIB]);
    lab.forget();
    lab.malloc(100);
    assert_eq!(lab.history(), ["segment_free 22M", "segment_alloc 2M", "alloc 100"]);
    assert_eq!(lab.statistics().num_alloc_retries, 1, "the large pool's block went by the last retry");
}

#[test]
fn garbage_collection_needs_a_limit() {
    let mut lab = Lab::new("garbage_collection_threshold:0.1");
    lab.cache(&[100 * MIB]);
    lab.forget();
    lab.malloc(200 * MIB);
    assert_eq!(lab.history(), ["segment_alloc 200M", "alloc 200M"]);
}

#[test]
fn the_oldest_segments_are_collected_above_the_threshold() {
    let mut lab = limited("garbage_collection_threshold:0.5", 100);
    let old = lab.malloc(30 * MIB);
    let used = lab.malloc(26 * MIB);
    lab.free(old);
    lab.free(used);
    for _ in 0..8 {
        lab.cache(&[26 * MIB]);
    }
    assert_eq!(lab.allocator.reserved(), Bytes::mib(56));
    lab.forget();
    let victims = lab.allocator.gc_victims(Bytes::mib(40), STREAM);
    assert_eq!(victims.iter().map(|(_, size)| size.0 / MIB).collect::<Vec<_>>(), [30]);
    lab.malloc(40 * MIB);
    assert_eq!(lab.history(), ["segment_free 30M", "segment_alloc 40M", "alloc 40M"]);
    assert_eq!((lab.statistics().num_alloc_retries, lab.statistics().num_sync_all_streams), (0, 0));
}

#[test]
fn segments_of_one_age_go_together_even_beyond_the_target() {
    let mut lab = limited("garbage_collection_threshold:0.5", 100);
    let blocks: Vec<Allocation> = [20, 24, 28].iter().map(|n| lab.malloc(n * MIB)).collect();
    for block in blocks {
        lab.free(block);
    }
    lab.forget();
    lab.malloc(512); // a miss of the small pool collects too, but does not age large segments
    assert_eq!(
        lab.history(),
        ["segment_free 20M", "segment_free 24M", "segment_free 28M", "segment_alloc 2M", "alloc 512"]
    );
}

#[test]
fn split_segments_are_never_collected() {
    let mut lab = limited("garbage_collection_threshold:0.1", 100);
    let a = lab.malloc(4 * MIB);
    let b = lab.malloc(4 * MIB);
    lab.free(a);
    lab.forget();
    lab.malloc(30 * MIB);
    assert_eq!(lab.history(), ["segment_alloc 30M", "alloc 30M"]);
    lab.free(b);
}
