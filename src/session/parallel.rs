//! How several devices train together.

use vramlab_train::Parallelism;

/// How several devices train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// How they share the work.
    pub parallelism: Parallelism,
    /// How many they are.
    pub ranks: usize,
}

impl Parallel {
    /// Ranks that one process computes at most, each on a thread.
    pub(super) const MOST_THREADS: usize = 16;
}
