//! How much is followed at most: a stream that was made to harm could ask for any amount of the memory that follows it.

/// Segments of a device in a history of PyTorch's that are followed: two terabytes of the smallest ones. A file has a hundred bytes
/// and more for each.
pub const MOST_SEGMENTS: usize = 1 << 20;
/// The same in a run of the lab's own: a recording has a few bytes for each.
pub const MOST_SEGMENTS_OF_A_RUN: usize = 1 << 19;
/// Pieces that a device's memory is divided in, held or free.
pub const MOST_PIECES: usize = 1 << 22;

/// The most segments that are followed in a history, or in a run.
pub const fn most_segments(of_history: bool) -> usize {
    if of_history { MOST_SEGMENTS } else { MOST_SEGMENTS_OF_A_RUN }
}
