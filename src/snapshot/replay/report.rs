//! What a replay found.

use serde::Serialize;

use super::conditions::Conditions;
use super::mismatch::Mismatch;
use super::retries::SettledRetries;
use crate::Begins;
use crate::types::{Action, TraceEntry};
use vramlab_allocator::TorchVersion;
use vramlab_allocator::units::Bytes;

/// How many items out of how many agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Items that agree.
    pub matched: u64,
    /// All items.
    pub total: u64,
}

impl Tally {
    /// True if every item agrees.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        self.matched == self.total
    }

    /// Counts one more item.
    pub const fn count(&mut self, matched: bool) {
        self.total += 1;
        if matched {
            self.matched += 1;
        }
    }

    const fn add(&mut self, other: Self) {
        self.matched += other.matched;
        self.total += other.total;
    }
}

/// Where a history begins, and what it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HistoryReport {
    /// Where the history begins.
    pub begins: Begins,
    /// The entry from which on our allocator agrees with the history to the end; `None` if it does not.
    pub exact_from: Option<usize>,
    /// What the file does not tell, as clauses.
    pub missing: Vec<String>,
    /// The program used private pools, whose entries are not replayed.
    #[serde(skip)]
    pub private: bool,
}

/// What the replay of one device's history found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// The device's index.
    pub device: usize,
    /// How many entries its trace has.
    pub events: u64,
    /// Segment events that agree in order and size: allocations, frees, maps and unmaps.
    pub segments: Tally,
    /// Block addresses that agree.
    pub placements: Tally,
    /// Statistics that agree at the end, key for key; 0 of 0 if there are none to compare with.
    pub stats: Tally,
    /// Blocks that agree at the end: address, size, state, bytes asked for.
    pub blocks: Tally,
    /// The first event that did not match.
    pub first_mismatch: Option<Mismatch>,
    /// Where the history begins, and what it does not tell.
    pub history: HistoryReport,
    /// Blocks that still waited for other streams at the end.
    pub pending: u64,
    /// `empty_cache()` calls that released nothing and so left no entry, as the statistics reveal.
    pub silent_empty_cache: u64,
    /// Runs of releases that a request's retry and another cause explain alike. `num_alloc_retries` is certain only up to these.
    pub ambiguous_retries: SettledRetries,
    /// The latest entry before which the program can have reset the peak statistics, if the recorded peaks show that it
    /// did. The call leaves no entry.
    pub peak_reset: Option<usize>,
    /// True if the device has expandable segments, whose ranges depend on the device's memory.
    pub expandable: bool,
    /// The most memory that the device can have, as the addresses of expandable segments reveal. Every device up to
    /// this size leaves the same history. Absent if nothing lies above those segments.
    pub largest_device: Option<Bytes>,
    /// Statistics that differ: key, ours, PyTorch's.
    pub differing_stats: Vec<(String, i64, i64)>,
}

impl DeviceReport {
    pub(super) fn new(device: usize, trace: &[TraceEntry]) -> Self {
        let (mut segments, mut placements) = (0, 0);
        for entry in trace {
            match entry.action {
                Action::Alloc => placements += 1,
                Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => segments += 1,
                _ => {}
            }
        }
        Self {
            device,
            events: trace.len() as u64,
            segments: Tally { matched: 0, total: segments },
            placements: Tally { matched: 0, total: placements },
            stats: Tally::default(),
            blocks: Tally::default(),
            first_mismatch: None,
            history: HistoryReport::default(),
            pending: 0,
            silent_empty_cache: 0,
            ambiguous_retries: SettledRetries::default(),
            peak_reset: None,
            expandable: false,
            largest_device: None,
            differing_stats: Vec::new(),
        }
    }

    /// Records a mismatch at the end, unless there is an earlier one.
    pub(super) fn mismatch_at_end(&mut self, expected: String, found: String) {
        if self.first_mismatch.is_none() {
            let entry = usize::try_from(self.events).unwrap_or(usize::MAX);
            let device = self.device;
            self.first_mismatch = Some(Mismatch { device, entry, expected, found, explanation: None });
        }
    }
}

/// What the replay of a snapshot found. Serialises as the object that `replay --verify --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How many entries all traces have.
    pub events: u64,
    /// Segment events that were predicted correctly.
    pub segments: Tally,
    /// Blocks that were placed where PyTorch placed them.
    pub placements: Tally,
    /// Statistics that agree at the end.
    pub stats: Tally,
    /// The first event that did not match.
    pub first_mismatch: Option<Mismatch>,
    /// Where the history of the first device that has one begins, and what it does not tell.
    pub history: HistoryReport,
    /// Blocks that agree at the end.
    pub blocks: Tally,
    /// Blocks that still waited for other streams at the end.
    pub pending: u64,
    /// `empty_cache()` calls that released nothing and so left no entry, as the statistics reveal.
    pub silent_empty_cache: u64,
    /// The version whose rules were followed.
    pub torch: TorchVersion,
    /// The configuration string.
    pub settings: String,
    /// The limit in bytes.
    pub limit: Option<Bytes>,
    /// The device's memory in bytes.
    pub device: Option<Bytes>,
    /// Assumptions that had to be made.
    pub notes: Vec<String>,
    /// The findings for each device.
    pub devices: Vec<DeviceReport>,
}

impl Report {
    pub(super) fn new(conditions: &Conditions) -> Self {
        Self {
            events: 0,
            segments: Tally::default(),
            placements: Tally::default(),
            stats: Tally::default(),
            first_mismatch: None,
            history: HistoryReport::default(),
            blocks: Tally::default(),
            pending: 0,
            silent_empty_cache: 0,
            torch: conditions.settings.torch(),
            settings: conditions.settings.text().to_owned(),
            limit: conditions.limit,
            device: conditions.device_bytes,
            notes: conditions.notes.clone(),
            devices: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, device: DeviceReport) {
        self.events += device.events;
        self.segments.add(device.segments);
        self.placements.add(device.placements);
        self.stats.add(device.stats);
        self.blocks.add(device.blocks);
        self.pending += device.pending;
        self.silent_empty_cache += device.silent_empty_cache;
        if self.first_mismatch.is_none() {
            self.first_mismatch.clone_from(&device.first_mismatch);
        }
        if self.devices.is_empty() {
            self.history.clone_from(&device.history);
        }
        self.devices.push(device);
    }

    /// True if everything agrees, and there was something to compare.
    #[must_use]
    pub fn is_match(&self) -> bool {
        self.events > 0
            && self.first_mismatch.is_none()
            && [self.segments, self.placements, self.stats, self.blocks].into_iter().all(Tally::is_complete)
    }
}
