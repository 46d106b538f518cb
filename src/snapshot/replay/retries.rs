//! Runs of releases that two readings explain alike.
//!
//! A request that had to retry gives back all it can and grows. A program that calls `empty_cache()` just before a
//! request that would have had to retry leaves the same entries: the call gives back the same memory in the same order,
//! and the request then grows at once. Events, blocks and all statistics but `num_alloc_retries` are the same
//! (`num_sync_all_streams` too: the call and the retry both synchronise). Nor do entries tell whether the blocks that a run
//! begins with had become free before, so that one of them would have served the request, or were what the retry waited for;
//! nor, where garbage is collected or blocks can be oversize, whether a block that had become free was given back by that, or
//! by a retry that waited for it.
//!
//! The replay takes the likelier reading: a retry where the request had to retry, else a call. Whether it had to depends on
//! what the driver had, of which a history may say nothing: then its calls, too, can be retries. Recorded statistics tell how
//! many of the runs were the other thing, though not which.

use serde::Serialize;

use super::conditions::{SYNCHRONISATIONS, Statistics};
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::MIB;

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
    /// Read as `empty_cache()`, as by all that is known the driver had memory: a retry would look the same if it refused.
    pub calls_unless_refused: u64,
    /// Read as a garbage collection or a release of oversize blocks; a retry, and what it waited for, would look the same.
    pub read_as_searches: u64,
}

/// What became of the runs that could be read either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettledRetries {
    /// Runs of releases before a request that its retry explains, and alike a call of `empty_cache()` or what had become free
    /// before.
    pub spots: u64,
    /// Those that count as retries: as many as the recorded `num_alloc_retries` asks for, where there is one that they
    /// allow; else those that the replay took for retries.
    pub read_as_retries: u64,
}

impl AmbiguousRetries {
    /// Without statistics: as the replay read them.
    pub const fn unsettled(self) -> SettledRetries {
        let spots = self.read_as_retries + self.read_as_calls + self.read_as_searches;
        SettledRetries { spots, read_as_retries: self.read_as_retries }
    }

    /// Lets the recorded number of retries decide, if the runs allow it; our statistics then have it too.
    pub fn settle(self, ours: &mut [(String, i64)], recorded: &Statistics) -> SettledRetries {
        let unsettled = self.unsettled();
        // What is recorded beyond ours.
        let more = |ours: &[(String, i64)], name: &str| {
            let (_, mine) = ours.iter().find(|(key, _)| key == name)?;
            recorded.0.get(name)?.checked_sub(*mine)
        };
        let Some(retries) = more(ours, RETRIES) else { return unsettled };
        let Some(read_as_retries) = self.read_as_retries.checked_add_signed(retries) else { return unsettled };
        // A retry waits for all streams; a collection of garbage does not.
        let waits = more(ours, SYNCHRONISATIONS).unwrap_or(0).min(retries).max(0).unsigned_abs();
        let from_calls = self.read_as_calls + self.calls_unless_refused;
        let added = retries.max(0).unsigned_abs();
        let searches = waits.max(added.saturating_sub(from_calls)).min(self.read_as_searches);
        let calls = added - searches.min(added);
        if calls > from_calls {
            return unsettled;
        }
        for (key, mine) in ours {
            match &**key {
                RETRIES => *mine += retries,
                SYNCHRONISATIONS => *mine += i64::try_from(searches).unwrap_or(0),
                _ => {}
            }
        }
        // More of them than there can be otherwise: the driver did refuse.
        let refused = if calls > self.read_as_calls { self.calls_unless_refused } else { 0 };
        SettledRetries { spots: unsettled.spots + refused, read_as_retries }
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
