//! The names of the settings, and the versions that introduced them.

use crate::version::TorchVersion;

pub(super) const LARGE_SEGMENT: &str = "large_segment_size_mb";
pub(super) const MAX_SPLIT: &str = "max_split_size_mb";
pub(super) const MAX_NON_SPLIT: &str = "max_non_split_rounding_mb";
pub(super) const GC_THRESHOLD: &str = "garbage_collection_threshold";
pub(super) const ROUNDUP: &str = "roundup_power2_divisions";
pub(super) const EXPANDABLE: &str = "expandable_segments";
pub(super) const BACKGROUND_THREADS: &str = "pinned_use_background_threads";
pub(super) const FRACTION: &str = "per_process_memory_fraction";
pub(super) const BACKEND: &str = "backend";
pub(super) const RELEASE_LOCK: &str = "release_lock_on_cudamalloc";
pub(super) const CAPTURE_REUSE: &str = "graph_capture_record_stream_reuse";
pub(super) const HOST_REGISTER: &str = "pinned_use_cuda_host_register";
pub(super) const REGISTER_THREADS: &str = "pinned_num_register_threads";
pub(super) const RESERVE_SEGMENT: &str = "pinned_reserve_segment_size_mb";

pub(super) const THROW_ON_OOM: &str = "throw_on_cudamalloc_oom";
pub(super) const FREE_CATCH_ALL: &str = "pinned_free_catch_all";
pub(super) const MAX_ROUND_THRESHOLD: &str = "pinned_max_round_threshold_mb";
pub(super) const MAX_CACHED_SIZE: &str = "pinned_max_cached_size_mb";
pub(super) const RESERVE: &str = "expandable_segments_reserve";
pub(super) const RESERVE_BY_CLASS: &str = "expandable_segments_reserve_by_class";

/// Every key, without the HIP spellings that two of them have, and the first version that knows it, according to the
/// releases' own parsers: `release_lock_on_cudamalloc` missed the branch of 2.1, and the settings that 2.9 was to share
/// between back ends came with 2.10.
const ALL: [(&str, TorchVersion); 20] = [
    (LARGE_SEGMENT, TorchVersion::V2_11),
    (MAX_SPLIT, TorchVersion::V2_1),
    (MAX_NON_SPLIT, TorchVersion::V2_6),
    (GC_THRESHOLD, TorchVersion::V2_1),
    (ROUNDUP, TorchVersion::V2_1),
    (EXPANDABLE, TorchVersion::V2_1),
    (FRACTION, TorchVersion::V2_10),
    (BACKEND, TorchVersion::V2_1),
    (RELEASE_LOCK, TorchVersion::V2_2),
    (CAPTURE_REUSE, TorchVersion::V2_9),
    (HOST_REGISTER, TorchVersion::V2_2),
    (BACKGROUND_THREADS, TorchVersion::V2_6),
    (REGISTER_THREADS, TorchVersion::V2_2),
    (RESERVE_SEGMENT, TorchVersion::V2_10),
    (THROW_ON_OOM, TorchVersion::V2_12),
    (FREE_CATCH_ALL, TorchVersion::V2_12),
    (MAX_ROUND_THRESHOLD, TorchVersion::V2_13),
    (MAX_CACHED_SIZE, TorchVersion::V2_13),
    (RESERVE, TorchVersion::V2_15),
    (RESERVE_BY_CLASS, TorchVersion::V2_15),
];

/// The keys that a version knows.
pub(super) fn of(torch: TorchVersion) -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter(move |(_, since)| torch >= *since).map(|(key, _)| key)
}
