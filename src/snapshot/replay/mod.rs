//! Replaying a recorded history through our allocator, and holding every answer against PyTorch's.
//!
//! A history says what was asked (`alloc`, `free_requested`, `oom`) and what the allocator did. The replay asks our
//! allocator the same, from what was there when it began, and takes from the history only what no allocator can know: where the driver put
//! new segments, and whether it had memory. Everything else (which block serves a request, splits, merges, segment
//! sizes, the order in which memory goes back) is predicted, and compared with the next entry.
//!
//! * [`tape`]: the history with a position in it, as the allocator's driver and as the judge of its events.
//! * [`player`]: what to ask next; whose a run of releases is (`empty_cache()` leaves no entry of its own).
//! * [`course`]: a history from its beginning to its end, begun again where the allocator left it.
//! * [`aside`]: entries of private pools, which are left out.
//! * [`seed`]: what an allocator begins with.
//! * [`card`]: how much memory the device can have, where nothing says how much it has.
//! * [`supply`]: what the driver had, as requests that failed tell.
//! * [`compare`]: blocks and statistics at the end.
//! * [`retries`]: where a retry and a call of `empty_cache()` leave the same entries.
//! * [`peaks`]: when the program reset the peak statistics, which leaves no entry.
//! * [`diagnose`]: when an event does not fit, why.

mod aside;
mod card;
mod compare;
mod conditions;
mod course;
mod diagnose;
mod mismatch;
mod observer;
mod peaks;
mod player;
mod report;
mod retries;
mod seed;
mod supply;
mod tape;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::history::Beginning;
use crate::types::{Action, Snapshot};
use card::RangeFacts;

pub use conditions::{ConditionError, Conditions, Overrides, Statistics};
pub use mismatch::Mismatch;
pub use observer::Observer;
pub use report::{DeviceReport, HistoryReport, Report, Tally};
pub use retries::SettledRetries;

/// Replays the history of every device that has one.
#[must_use]
pub fn verify(snapshot: &Snapshot, conditions: &Conditions) -> Report {
    verify_observed(snapshot, conditions, &mut ())
}

/// As [`verify`]; `observer` hears every event that agreed.
pub fn verify_observed(snapshot: &Snapshot, conditions: &Conditions, observer: &mut impl Observer) -> Report {
    let mut report = Report::new(conditions);
    let mut statistics = conditions.statistics.as_ref();
    for device in (0..snapshot.device_count()).filter(|device| !snapshot.device_trace(*device).is_empty()) {
        // A statistics file is about one device; without a name for it, the first that was used.
        let beginning = Beginning::of(snapshot, device, &conditions.settings);
        let device = verify_from(snapshot, device, &beginning, conditions, statistics.take(), observer);
        if device.expandable && conditions.device_bytes.is_none() {
            report.notes.push(match device.largest_device {
                Some(largest) => format!(
                    "the memory of device {} is not in the file; by the addresses of its expandable segments it is at most \
                     {largest}, and so much is assumed",
                    device.device
                ),
                None => format!(
                    "the memory of device {} is not in the file, and no addresses bound it: {} are assumed for its \
                     expandable segments",
                    device.device,
                    card::UNKNOWN
                ),
            });
        }
        report.add(device);
    }
    if report.devices.is_empty() {
        report.notes.push(
            "the snapshot has no trace entries: call torch.cuda.memory._record_memory_history() before the first \
             allocation"
                .into(),
        );
    }
    report
}

/// Replays the history of one device from what was there when it began; `observer` hears every event that agreed.
pub fn verify_from(
    snapshot: &Snapshot,
    device: usize,
    beginning: &Beginning,
    conditions: &Conditions,
    statistics: Option<&Statistics>,
    observer: &mut impl Observer,
) -> DeviceReport {
    let trace = snapshot.device_trace(device);
    let mut report = course::ReplayInput::new(snapshot, device, beginning, conditions).run(statistics, observer);
    if trace.is_empty() {
        return report;
    }
    let seed = seed::seed(beginning, &beginning.space, &HashSet::new());
    let ranges = RangeFacts::of(&seed, trace);
    report.expandable = ranges.is_some();
    report.largest_device = ranges.and_then(RangeFacts::bound);
    if let Some(mismatch) = &mut report.first_mismatch {
        diagnose::explain(mismatch, snapshot, device);
        if mismatch.explanation.is_none() {
            mismatch.explanation = diagnose::unfit_condition(conditions, report.largest_device);
        }
        // From 2.12 on entries name their pool.
        let nameless = trace.iter().any(|entry| entry.action == Action::SegmentAlloc && entry.pool.is_none());
        if mismatch.explanation.is_none() && report.history.private && nameless {
            mismatch.explanation = Some(
                "the program used private pools (CUDA graphs or torch.cuda.use_mem_pool), and of segments that are gone at \
                 the end nothing says whose they were"
                    .into(),
            );
        }
    }
    report
}
