//! Allocated and reserved over events, at several zoom levels.

use super::Micros;
use crate::units::Bytes;

/// One column of the memory chart: what happened during a fixed number of memory events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Lowest allocated.
    pub allocated_min: Bytes,
    /// Highest allocated.
    pub allocated_max: Bytes,
    /// Lowest reserved.
    pub reserved_min: Bytes,
    /// Highest reserved.
    pub reserved_max: Bytes,
    /// Highest stranded.
    pub stranded_max: Bytes,
    /// Steps finished when the column began.
    pub step: u64,
    /// Time when the column began.
    pub time: Micros,
}

/// What is marked under the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Memory events before it: column `events >> level`.
    pub events: u64,
    /// The key (`m`), or `!` for out of memory.
    pub key: char,
    /// `bf16`, `−3.1 GiB`.
    pub text: String,
}

/// Allocated and reserved over memory events: level `k` has columns of `2^k` events, and keeps the last
/// [`History::COLUMNS`] of them.
#[derive(Clone, Debug, Default)]
pub struct History {
    levels: Vec<Vec<Column>>,
    marks: Vec<Mark>,
    events: u64,
}

/// The part of the history that a chart of some width shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Columns from the left edge; at most the width asked for, fewer while the page fills.
    pub columns: Vec<Column>,
    /// Index of the first column (`events >> level`).
    pub first: u64,
    /// Marks inside, each with its column from the left edge.
    pub marks: Vec<(usize, Mark)>,
}
