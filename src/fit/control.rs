//! Follows a search, and stops it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{CandidateCost, GroupProbe, Probe};

/// News from a search in progress.
#[derive(Clone, Copy, Debug)]
pub enum SearchNews<'a> {
    /// A batch is about to be tried.
    Trying {
        /// Samples per step.
        batch: usize,
    },
    /// A batch was tried.
    Tried(&'a Probe),
    /// A batch was tried on several ranks.
    GroupTried(&'a GroupProbe),
    /// A combination of switches was tried.
    Costed {
        /// The combination and its outcome.
        costed: &'a CandidateCost,
        /// How many combinations have been tried, including this one.
        done: usize,
        /// The number of combinations.
        total: usize,
    },
}

/// Follows a search and may stop it, which is checked between steps.
pub struct Control<'a> {
    stop: &'a AtomicBool,
    tell: &'a (dyn Fn(SearchNews<'_>) + Sync),
}

impl<'a> Control<'a> {
    /// `stop` may be set from any thread; `tell` may be called from several threads.
    #[must_use]
    pub const fn new(stop: &'a AtomicBool, tell: &'a (dyn Fn(SearchNews<'_>) + Sync)) -> Self {
        Self { stop, tell }
    }

    /// True if the search should stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, news: SearchNews<'_>) {
        (self.tell)(news);
    }
}
