//! Runs of releases that two readings explain alike.
//!
//! A request that had to retry releases all it can and grows. A program that calls `empty_cache()` just before a
//! request that would have had to retry leaves the same entries: the call releases the same memory in the same order,
//! and the request then grows at once. Events, blocks and all statistics but `num_alloc_retries` are the same,
//! `num_sync_all_streams` too: the call and the retry both synchronise.
//!
//! A run may also begin with completions. The entries don't tell whether these blocks had become free before, so that
//! one of them would have served the request, or whether the retry waited for them. Nor do they tell, with garbage
//! collection or oversize blocks, whether a block that had become free was released by these or by a retry that waited
//! for it.
//!
//! The replay takes the likelier reading: a retry if the request had to retry, otherwise a call. Whether it had to
//! depends on the driver's free memory, which a history may not show; then runs read as calls can also be retries.
//! Recorded statistics reveal how many of the runs were the other thing, but not which.

use serde::Serialize;

use super::conditions::{SYNCHRONISATIONS, Statistics};
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::MIB;

/// The statistic in which the two readings differ.
const RETRIES: &str = "num_alloc_retries";
/// The size of every segment in the small pool, and of no segment in the large pool.
const SMALL_SEGMENT: u64 = 2 * MIB;

/// How many runs could be read either way, by the reading that the replay chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmbiguousRetries {
    /// Read as a request's retry; `empty_cache()` just before the request would look the same.
    pub read_as_retries: u64,
    /// Read as `empty_cache()`; a retry would look the same.
    pub read_as_calls: u64,
    /// Read as `empty_cache()`, as the driver is believed to have had memory. A retry would look the same if the driver refused.
    pub calls_unless_refused: u64,
    /// Read as garbage collection or a release of oversize blocks; a retry that waited for the completions would look the same.
    pub read_as_searches: u64,
}

/// The decision about the runs that could be read either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SettledRetries {
    /// Runs of releases before a request that can be explained by the request's retry, and also by a call of
    /// `empty_cache()` or by blocks that had become free before.
    pub spots: u64,
    /// How many of them count as retries: the number that makes `num_alloc_retries` as recorded, if such a number is
    /// possible; otherwise the number that the replay took for retries.
    pub read_as_retries: u64,
}

impl AmbiguousRetries {
    /// The result without recorded statistics: as the replay read the runs.
    pub const fn unsettled(self) -> SettledRetries {
        let spots = self.read_as_retries + self.read_as_calls + self.read_as_searches;
        SettledRetries { spots, read_as_retries: self.read_as_retries }
    }

    /// Lets the recorded number of retries decide, if the runs allow it. Our statistics then get that number too.
    pub fn settle(self, ours: &mut [(String, i64)], recorded: &Statistics) -> SettledRetries {
        let unsettled = self.unsettled();
        // By how much a recorded number exceeds ours.
        let more = |ours: &[(String, i64)], name: &str| {
            let (_, mine) = ours.iter().find(|(key, _)| key == name)?;
            recorded.0.get(name)?.checked_sub(*mine)
        };
        let Some(retries) = more(ours, RETRIES) else { return unsettled };
        let Some(read_as_retries) = self.read_as_retries.checked_add_signed(retries) else { return unsettled };
        // A retry waits for all streams; a garbage collection does not.
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
        // There are more retries than the other runs allow, so the driver did refuse.
        let refused = if calls > self.read_as_calls { self.calls_unless_refused } else { 0 };
        SettledRetries { spots: unsettled.spots + refused, read_as_retries }
    }
}

/// True if the releases of a run are in the order of `empty_cache()`: after all completions, segments of the large pool
/// before those of the small pool, in each pool by stream, size and address. If garbage collection or the release of
/// oversize blocks precede a request's retry, their releases come first and so mostly break this order.
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
