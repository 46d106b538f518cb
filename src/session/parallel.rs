//! How several devices train together.

use vramlab_train::Parallelism;

/// How several devices train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// How they share the work.
    pub parallelism: Parallelism,
    /// The number of ranks.
    pub ranks: usize,
}

impl Parallel {
    /// The most ranks that one process computes, each on a thread.
    pub(super) const MOST_THREADS: usize = 16;
}
