//! What a stream records.

/// What is recorded, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Its number.
    pub number: u64,
    /// The graph under way.
    pub graph: u64,
    /// Launches of the process before it began.
    pub launches: u64,
    /// The stream on which it began.
    pub origin: u64,
}
