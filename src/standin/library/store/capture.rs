//! The capture of a stream.

/// A capture, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Its number.
    pub number: u64,
    /// The graph that it makes.
    pub graph: u64,
    /// The process's launches before the capture began.
    pub launches: u64,
    /// The stream on which it began.
    pub origin: u64,
}
