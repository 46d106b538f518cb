//! Allocated and reserved over events, at several zoom levels.

use std::collections::VecDeque;
use std::sync::Arc;

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

impl Column {
    /// The column of one event.
    #[must_use]
    pub const fn of_event(allocated: Bytes, reserved: Bytes, stranded: Bytes, step: u64, time: Micros) -> Self {
        Self {
            allocated_min: allocated,
            allocated_max: allocated,
            reserved_min: reserved,
            reserved_max: reserved,
            stranded_max: stranded,
            step,
            time,
        }
    }

    /// This column and the one that follows it as one.
    #[must_use]
    pub fn join(self, next: Self) -> Self {
        Self {
            allocated_min: self.allocated_min.min(next.allocated_min),
            allocated_max: self.allocated_max.max(next.allocated_max),
            reserved_min: self.reserved_min.min(next.reserved_min),
            reserved_max: self.reserved_max.max(next.reserved_max),
            stranded_max: self.stranded_max.max(next.stranded_max),
            step: self.step,
            time: self.time,
        }
    }
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
///
/// Recording costs two columns an event on average. Full chunks of columns are shared, so a clone is cheap.
#[derive(Clone, Debug, Default)]
pub struct History {
    levels: Vec<Columns>,
    marks: VecDeque<Mark>,
    events: u64,
    /// Events recorded when the last steps ended.
    step_ends: VecDeque<u64>,
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

impl History {
    /// Columns that every level keeps; no page is wider.
    pub const COLUMNS: usize = 2048;
    const MARKS: usize = 256;
    const STEP_ENDS: usize = 33;

    /// Memory events recorded so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Levels that have a whole column, at least one.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len().max(1)
    }

    /// All marks that are kept, oldest first.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// Records what one memory event left behind.
    pub fn record(&mut self, column: Column) {
        self.events += 1;
        let mut carry = column;
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Columns::default());
            }
            match self.levels[level].push(carry) {
                Some(pair) => carry = pair,
                None => break,
            }
        }
    }

    /// Notes that a step ended, so that [`History::level_of_steps`] knows how long steps are.
    pub fn end_step(&mut self) {
        if self.step_ends.len() == Self::STEP_ENDS {
            self.step_ends.pop_front();
        }
        self.step_ends.push_back(self.events);
    }

    /// Marks this point of the run.
    pub fn mark(&mut self, key: char, text: String) {
        if self.marks.len() == Self::MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { events: self.events, key, text });
    }

    /// The last mark, to complete its text.
    pub fn last_mark_mut(&mut self) -> Option<&mut Mark> {
        self.marks.back_mut()
    }

    /// The finest level on which the whole run fits into `width` columns.
    #[must_use]
    pub fn level_of_run(&self, width: usize) -> usize {
        level_for(self.events, width)
    }

    /// The finest level on which `steps` steps as long as the last ones fit into `width` columns; level 0 before the
    /// first step ended.
    #[must_use]
    pub fn level_of_steps(&self, width: usize, steps: usize) -> usize {
        let mut lengths: Vec<u64> =
            self.step_ends.iter().zip(self.step_ends.iter().skip(1)).map(|(from, to)| to - from).collect();
        lengths.sort_unstable();
        let median = lengths.get(lengths.len() / 2).or(self.step_ends.back()).copied().unwrap_or(0);
        level_for(median.saturating_mul(steps as u64), width)
    }

    /// What a chart of `width` columns shows of `level`. A page fills from the left; when it is full it goes on by half
    /// a page, so that what is drawn already keeps its place.
    #[must_use]
    pub fn page(&self, level: usize, width: usize) -> Page {
        let width = width.min(Self::COLUMNS) as u64;
        let level = level.min(63);
        if width == 0 || self.events == 0 {
            return Page::default();
        }
        let last = (self.events - 1) >> level;
        let stride = (width / 2).max(1);
        let first = if last < width { 0 } else { (last + 1 - width).div_ceil(stride) * stride };
        let columns = (first..=last).filter_map(|index| self.column(level, index)).collect();
        let marks = self
            .marks
            .iter()
            .filter_map(|mark| {
                let column = (mark.events >> level).min(last).checked_sub(first)?;
                Some((column as usize, mark.clone()))
            })
            .collect();
        Page { columns, first, marks }
    }

    /// One column; the last one of a level may be of fewer events.
    fn column(&self, level: usize, index: u64) -> Option<Column> {
        let whole = self.levels.get(level).and_then(|columns| columns.get(index));
        whole.or_else(|| {
            // The events behind the last whole column are the unpaired last columns of the levels below.
            (0..level.min(self.levels.len()))
                .rev()
                .filter(|below| (self.events >> below) & 1 == 1)
                .filter_map(|below| self.levels[below].get((self.events >> below) - 1))
                .reduce(Column::join)
        })
    }
}

/// The finest level on which `events` fit into `width` columns.
fn level_for(events: u64, width: usize) -> usize {
    let width = width.max(1) as u64;
    let columns_needed = events.div_ceil(width);
    columns_needed.max(1).next_power_of_two().trailing_zeros() as usize
}

/// The last columns of a level, oldest first.
#[derive(Clone, Debug, Default)]
struct Columns {
    full: VecDeque<Arc<[Column]>>,
    /// Fewer than a chunk.
    open: Vec<Column>,
    /// Columns in chunks that were dropped.
    dropped: u64,
}

impl Columns {
    /// Even, so that a pair of columns is always in one chunk.
    const CHUNK: usize = 64;

    /// Adds a column; where it completes a pair, returns the pair as one column for the next level.
    fn push(&mut self, column: Column) -> Option<Column> {
        self.open.push(column);
        let pair = match *self.open {
            [.., first, second] if self.open.len().is_multiple_of(2) => Some(first.join(second)),
            _ => None,
        };
        if self.open.len() == Self::CHUNK {
            self.full.push_back(self.open.as_slice().into());
            self.open.clear();
            // One chunk more than COLUMNS stays: the open one may be empty.
            if self.full.len() > History::COLUMNS / Self::CHUNK {
                self.full.pop_front();
                self.dropped += Self::CHUNK as u64;
            }
        }
        pair
    }

    fn get(&self, index: u64) -> Option<Column> {
        let index = usize::try_from(index.checked_sub(self.dropped)?).ok()?;
        match self.full.get(index / Self::CHUNK) {
            Some(chunk) => chunk.get(index % Self::CHUNK).copied(),
            None => self.open.get(index - self.full.len() * Self::CHUNK).copied(),
        }
    }
}

#[cfg(test)]
mod tests;
