//! What a replay found.

use serde::Serialize;

use super::conditions::Conditions;
use super::mismatch::Mismatch;
use super::retries::SettledRetries;
use crate::Begins;
use crate::types::{Action, TraceEntry};
use vramlab_allocator::TorchVersion;
use vramlab_allocator::units::Bytes;

/// How many of how many agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Those that agree.
    pub matched: u64,
    /// All.
    pub total: u64,
}

impl Tally {
    /// Every one agrees.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        self.matched == self.total
    }

    /// Counts one more.
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

/// Where a history begins, and what it can't tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HistoryReport {
    /// Where it begins.
    pub begins: Begins,
    /// The entry from which on our allocator agrees with it to the end; `None` if it does not.
    pub exact_from: Option<usize>,
    /// What the file can't tell, as clauses.
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
    /// Entries of its trace.
    pub events: u64,
    /// Segment events: allocations, frees, maps and unmaps, in order and size.
    pub segments: Tally,
    /// Addresses of blocks.
    pub placements: Tally,
    /// Statistics at the end, key for key; 0 of 0 if there are none to compare with.
    pub stats: Tally,
    /// Blocks at the end: address, size, state, bytes asked for.
    pub blocks: Tally,
    /// The first thing that did not fit.
    pub first_mismatch: Option<Mismatch>,
    /// Where the history begins, and what it can't tell.
    pub history: HistoryReport,
    /// Blocks that were still waiting for other streams at the end.
    pub pending: u64,
    /// `empty_cache()` calls that returned nothing and so left no entry, as the statistics tell.
    pub silent_empty_cache: u64,
    /// Runs of releases that a request's retry and something else explain alike: `num_alloc_retries` is certain only up to
    /// them.
    pub ambiguous_retries: SettledRetries,
    /// The latest entry before which the program can have reset the peak statistics, where the recorded peaks show that
    /// it did; the call leaves no entry of its own.
    pub peak_reset: Option<usize>,
    /// It has expandable segments, whose ranges are as long as the device's memory asks for.
    pub expandable: bool,
    /// The most memory that the device can have, as the addresses of those tell: nothing else in a history does, and any
    /// device up to there leaves the same one. Absent where nothing lies above them.
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

    /// Records what did not fit, unless something before did not.
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
    /// Entries of all traces.
    pub events: u64,
    /// Segment events that were predicted.
    pub segments: Tally,
    /// Blocks that were placed where PyTorch placed them.
    pub placements: Tally,
    /// Statistics that agree at the end.
    pub stats: Tally,
    /// The first thing that did not fit.
    pub first_mismatch: Option<Mismatch>,
    /// Where the history of the first device that has one begins, and what it can't tell.
    pub history: HistoryReport,
    /// Blocks that agree at the end.
    pub blocks: Tally,
    /// Blocks that were still waiting for other streams at the end.
    pub pending: u64,
    /// `empty_cache()` calls that returned nothing and so left no entry, as the statistics tell.
    pub silent_empty_cache: u64,
    /// Whose rules were followed.
    pub torch: TorchVersion,
    /// The configuration string.
    pub settings: String,
    /// The limit in bytes.
    pub limit: Option<Bytes>,
    /// The device's memory in bytes.
    pub device: Option<Bytes>,
    /// What had to be assumed.
    pub notes: Vec<String>,
    /// The same, device by device.
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

    /// Everything agrees, and there was something to agree.
    #[must_use]
    pub fn is_match(&self) -> bool {
        self.events > 0
            && self.first_mismatch.is_none()
            && [self.segments, self.placements, self.stats, self.blocks].into_iter().all(Tally::is_complete)
    }
}
