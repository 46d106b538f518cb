//! The names of the settings.

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

/// Every key, without the HIP spellings of two.
pub(super) const ALL: [&str; 14] = [
    LARGE_SEGMENT,
    MAX_SPLIT,
    MAX_NON_SPLIT,
    GC_THRESHOLD,
    ROUNDUP,
    EXPANDABLE,
    FRACTION,
    BACKEND,
    RELEASE_LOCK,
    CAPTURE_REUSE,
    HOST_REGISTER,
    BACKGROUND_THREADS,
    REGISTER_THREADS,
    RESERVE_SEGMENT,
];
