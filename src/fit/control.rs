//! How a search is followed, and stopped.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{CandidateCost, GroupProbe, Probe};

/// What a search reports while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum SearchNews<'a> {
    /// A batch is about to be tried.
    Trying {
        /// Samples of a step.
        batch: usize,
    },
    /// A batch was tried.
    Tried(&'a Probe),
    /// Ranks were tried.
    GroupTried(&'a GroupProbe),
    /// A combination of switches was tried.
    Costed {
        /// Its outcome.
        costed: &'a CandidateCost,
        /// Combinations tried so far, this one included.
        done: usize,
        /// Combinations that there are.
        total: usize,
    },
}

/// Follows a search and may stop it: between steps it looks whether it is to go on.
pub struct Control<'a> {
    stop: &'a AtomicBool,
    tell: &'a (dyn Fn(SearchNews<'_>) + Sync),
}

impl<'a> Control<'a> {
    /// `stop` may be set from anywhere; `tell` may be called from several threads.
    #[must_use]
    pub const fn new(stop: &'a AtomicBool, tell: &'a (dyn Fn(SearchNews<'_>) + Sync)) -> Self {
        Self { stop, tell }
    }

    /// Whether to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, news: SearchNews<'_>) {
        (self.tell)(news);
    }
}
