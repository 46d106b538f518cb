//! Runs of releases that two readings explain alike.
//!
//! A request that had to retry gives back all it can and grows. A program that calls `empty_cache()` just before a
//! request that would have had to retry leaves the same entries: the call gives back the same memory in the same order,
//! and the request then grows at once. Events, blocks and all statistics but `num_alloc_retries` are the same
//! (`num_sync_all_streams` too: the call and the retry both synchronise). The other way round, a run that looks like a
//! call, as a free block serves the request once the run's completions are done, can be a retry whose synchronisation
//! waited for just these.
//!
//! The replay takes the likelier reading: a retry where the request had to retry, else a call. Recorded statistics tell
//! how many of the runs were the other thing, though not which.

use serde::Serialize;

use super::conditions::Statistics;
use crate::snapshot::types::{Action, TraceEntry};
use crate::units::MIB;

/// The statistic in which the two readings differ.
const RETRIES: &str = "num_alloc_retries";
/// The size of every segment of the small pool, and of none of the large one.
const SMALL_SEGMENT: u64 = 2 * MIB;

/// How many runs could be read either way, as the replay read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmbiguousRetries {
    /// Read as a request's retry; `empty_cache()` just before the request would look the same.
    pub read_as_retries: u64,
    /// Read as `empty_cache()`; a retry would look the same.
    pub read_as_calls: u64,
}

/// What became of the runs that could be read either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettledRetries {
    /// Runs of releases before a request that its retry and a call of `empty_cache()` explain alike.
    pub spots: u64,
    /// Those that count as retries: as many as the recorded `num_alloc_retries` asks for, where there is one that they
    /// allow; else those that the replay took for retries.
    pub read_as_retries: u64,
}

impl AmbiguousRetries {
    /// Without statistics: as the replay read them.
    pub const fn unsettled(self) -> SettledRetries {
        SettledRetries { spots: self.read_as_retries + self.read_as_calls, read_as_retries: self.read_as_retries }
    }

    /// Lets the recorded number of retries decide, if the runs allow it; our statistics then have it too.
    pub fn settle(self, ours: &mut [(String, i64)], recorded: &Statistics) -> SettledRetries {
        let unsettled = self.unsettled();
        let Some((_, mine)) = ours.iter_mut().find(|(key, _)| key == RETRIES) else { return unsettled };
        let Some(theirs) = recorded.0.get(RETRIES).copied() else { return unsettled };
        let read_as_retries = theirs
            .checked_sub(*mine)
            .and_then(|more| self.read_as_retries.checked_add_signed(more))
            .filter(|retries| *retries <= unsettled.spots);
        let Some(read_as_retries) = read_as_retries else { return unsettled };
        *mine = theirs;
        SettledRetries { read_as_retries, ..unsettled }
    }
}

/// True if the releases of a run stand as `empty_cache()` would make them: after all completions; segments of the large
/// pool before the small one's, in each by stream, size and address. Garbage collection and the release of oversize
/// blocks, if a request's retry comes after them, go first and so mostly out of this order.
pub fn in_release_order(run: &[TraceEntry]) -> bool {
    let completions = run.iter().take_while(|entry| entry.action == Action::FreeCompleted).count();
    let releases = &run[completions..];
    releases.iter().all(|entry| entry.action != Action::FreeCompleted)
        && releases
            .iter()
            .filter(|entry| entry.action == Action::SegmentFree)
            .map(|entry| (entry.size.0 == SMALL_SEGMENT, entry.stream, entry.size, entry.address))
            .is_sorted()
}
