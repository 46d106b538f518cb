//! Replays a recorded history through our allocator, and compares every answer with PyTorch's.
//!
//! A history records the requests (`alloc`, `free_requested`, `oom`) and what the allocator did. The replay makes the
//! same requests of our allocator, which starts with the memory that existed when the history began. From the history
//! it takes only what no allocator can know: where the driver put new segments, and whether it had memory. Everything
//! else (which block serves a request, splits, merges, segment sizes, the order in which memory is released) is
//! predicted and compared with the next entry.
//!
//! * [`tape`]: the history and a position in it, as the allocator's driver and as the judge of its events.
//! * [`player`]: the next request, and the cause of a run of releases (`empty_cache()` leaves no entry of its own).
//! * [`course`]: a history from its beginning to its end, started again wherever the allocator diverged from it.
//! * [`aside`]: entries of private pools, which are left out.
//! * [`seed`]: the state that an allocator starts with.
//! * [`card`]: how much memory the device can have, if nothing says how much it has.
//! * [`supply`]: how much memory the driver had, as failed requests reveal.
//! * [`compare`]: blocks and statistics at the end.
//! * [`retries`]: runs that a retry and a call of `empty_cache()` explain alike.
//! * [`peaks`]: when the program reset the peak statistics, which leaves no entry.
//! * [`diagnose`]: why an event did not match.

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

/// Like [`verify`]. The `observer` hears of every event that agreed.
pub fn verify_observed(snapshot: &Snapshot, conditions: &Conditions, observer: &mut impl Observer) -> Report {
    let mut report = Report::new(conditions);
    let mut statistics = conditions.statistics.as_ref();
    for device in (0..snapshot.device_count()).filter(|device| !snapshot.device_trace(*device).is_empty()) {
        // A statistics file is about one device. If it does not name the device, the first used one is assumed.
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

/// Replays the history of one device from the memory that existed when it began. The `observer` hears of every event that agreed.
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
        // Since 2.12 entries name their pool.
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
