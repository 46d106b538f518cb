//! Bounds for what is followed: a hostile stream could otherwise ask for any amount of the follower's memory.

/// The most segments of a device that are followed in a recorded history of PyTorch: two terabytes of the smallest
/// segments. A file has at least a hundred bytes for each.
pub const MOST_SEGMENTS: usize = 1 << 20;
/// The most segments that are followed in a run of the lab's own, whose recordings have a few bytes for each.
pub const MOST_SEGMENTS_OF_A_RUN: usize = 1 << 19;
/// The most pieces, held or free, that a device's memory may be divided into.
pub const MOST_PIECES: usize = 1 << 22;

/// The most segments that are followed in a history, or in a run.
pub const fn most_segments(of_history: bool) -> usize {
    if of_history { MOST_SEGMENTS } else { MOST_SEGMENTS_OF_A_RUN }
}
