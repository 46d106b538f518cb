//! The peaks and floors of every step so far, at several zoom levels, with marks where something changed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Micros;
use vramlab_allocator::units::Bytes;

/// One column of the history: the figures of one step, or of a power of two of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Lowest allocated bytes.
    pub floor: Bytes,
    /// Highest allocated bytes.
    pub peak: Bytes,
    /// Highest reserved bytes.
    pub reserved: Bytes,
    /// Stranded bytes at the end of a step; the most of several steps.
    pub stranded: Bytes,
    /// The limit of reserved memory; the lowest of several steps.
    pub limit: Option<Bytes>,
    /// Steps finished when it began.
    pub step: u64,
    /// Events before its first one.
    pub position: u64,
    /// Time of its first event.
    pub time: Micros,
    /// True if a step in it was given up.
    pub failed: bool,
}

impl Column {
    /// Combines this column with the next one.
    #[must_use]
    pub fn join(self, next: Self) -> Self {
        Self {
            floor: self.floor.min(next.floor),
            peak: self.peak.max(next.peak),
            reserved: self.reserved.max(next.reserved),
            stranded: self.stranded.max(next.stranded),
            limit: [self.limit, next.limit].into_iter().flatten().min(),
            failed: self.failed || next.failed,
            ..self
        }
    }
}

/// A change in the run, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number of columns before it. It is drawn where column `columns >> level` begins.
    pub columns: u64,
    /// Events before it.
    pub position: u64,
    /// Steps finished before it.
    pub step: u64,
    /// What changed.
    pub kind: MarkKind,
}

/// The kind of a [`Mark`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A switch was flipped.
    Flip {
        /// Its word (`amp`).
        switch: Arc<str>,
        /// The new value.
        to: Arc<str>,
    },
    /// The cache was emptied.
    EmptyCache {
        /// Bytes that went back to the driver.
        released: Bytes,
    },
    /// A request failed for good.
    OutOfMemory,
}

/// Every step so far. Level `k` has columns of `2^k` steps and keeps the last [`History::COLUMNS`] of them, so that one
/// level always holds the whole run.
///
/// Recording costs two columns per step on average. Full chunks of columns are shared, so a clone is cheap.
#[derive(Clone, Debug, Default)]
pub struct History {
    levels: Vec<LevelColumns>,
    marks: Arc<VecDeque<Mark>>,
    columns: u64,
    /// The current step.
    open: Option<Column>,
}

/// The part of the history that a chart of some width shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Columns from the left edge: as many as the width, or fewer while the page fills.
    pub columns: Vec<Column>,
    /// Index of the first column (`steps >> level`).
    pub first: u64,
    /// Marks on the page, each with its column from the left edge.
    pub marks: Vec<(usize, Mark)>,
}

impl History {
    /// The number of columns that every level keeps. No page is wider.
    pub const COLUMNS: usize = 2048;
    /// The number of marks that are kept. Beyond it, the oldest mark that shares a column of a whole-run page with
    /// others is dropped.
    const MARKS: usize = 2048;

    /// Steps recorded so far, the one under way included.
    #[must_use]
    pub fn columns(&self) -> u64 {
        self.columns + u64::from(self.open.is_some())
    }

    /// True if the last column of a level only covers a part of the current step.
    #[must_use]
    pub fn ends_in_part(&self, level: usize) -> bool {
        self.open.is_some() && self.columns > 0 && self.columns.is_multiple_of(1 << level.min(63))
    }

    /// The last finished step, or the current one if none has finished.
    #[must_use]
    pub fn latest(&self) -> Option<Column> {
        let ended = self.levels.first().and_then(|steps| steps.get(self.columns.checked_sub(1)?));
        ended.or(self.open)
    }

    /// The step at a position: the number of steps finished before it, and how many steps it stands for. For older
    /// steps only groups of a power of two are known. `None` before the first step that is kept.
    #[must_use]
    pub fn step_at(&self, position: u64) -> Option<(u64, u64)> {
        if let Some(open) = self.open.filter(|open| open.position <= position) {
            return Some((open.step, 1));
        }
        let kept =
            |(level, columns): (usize, &LevelColumns)| Some((columns.around(position)?.step, 1 << level.min(63)));
        self.levels.iter().enumerate().find_map(kept)
    }

    /// The number of events before the step that is `back` steps before the one at `position`. For older steps, before
    /// the first of a group of steps. `None` before the first step that is kept.
    #[must_use]
    pub fn begin_of(&self, position: u64, back: u64) -> Option<u64> {
        let under_way = self.open.filter(|open| open.position <= position);
        if let Some(open) = under_way.filter(|_| back == 0) {
            return Some(open.position);
        }
        if back > self.columns {
            return None;
        }
        self.levels.iter().enumerate().find_map(|(level, columns)| {
            let last = if under_way.is_some() { columns.end() } else { columns.index_around(position)? };
            let column = columns.get(last.checked_sub((back >> level.min(63)).max(u64::from(under_way.is_some())))?)?;
            Some(column.position)
        })
    }

    /// The column of the step at a position; older steps are in groups. `None` before the first step that is kept.
    #[must_use]
    pub fn around(&self, position: u64) -> Option<Column> {
        let open = self.open.filter(|open| open.position <= position);
        open.or_else(|| self.levels.iter().find_map(|columns| columns.around(position)))
    }

    /// True if a column is the current step.
    #[must_use]
    pub fn is_under_way(&self, column: &Column) -> bool {
        self.open.is_some_and(|open| open.position == column.position)
    }

    /// All marks that are kept, oldest first.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = &Mark> {
        self.marks.iter()
    }

    /// The current step so far.
    pub const fn open_mut(&mut self) -> Option<&mut Column> {
        self.open.as_mut()
    }

    /// Begins a step. A step that did not end was given up.
    pub fn begin(&mut self, column: Column) {
        if let Some(open) = self.open.take() {
            self.record(Column { failed: true, ..open });
        }
        self.open = Some(column);
    }

    /// Ends the current step.
    pub fn end(&mut self, stranded: Bytes) {
        if let Some(open) = self.open.take() {
            self.record(Column { stranded, ..open });
        }
    }

    fn record(&mut self, column: Column) {
        self.columns += 1;
        let mut carry = column;
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(LevelColumns::default());
            }
            match self.levels[level].push(carry) {
                Some(pair) => carry = pair,
                None => break,
            }
        }
    }

    /// The part of the history that is needed to go on from here: the current step, the last columns of each level, and
    /// the last mark.
    #[must_use]
    pub(super) fn tail(&self) -> Self {
        Self {
            levels: self.levels.iter().map(LevelColumns::tail).collect(),
            marks: Arc::new(self.marks.back().cloned().into_iter().collect()),
            columns: self.columns,
            open: self.open,
        }
    }

    /// Marks this position of the run.
    pub(super) fn mark(&mut self, position: u64, step: u64, kind: MarkKind) {
        let columns = self.columns;
        let marks = Arc::make_mut(&mut self.marks);
        marks.push_back(Mark { columns, position, step, kind });
        if marks.len() > Self::MARKS {
            let level = level_for(columns.max(1), Self::MARKS / 4);
            let mut last = None;
            let mut excess = marks.len() - Self::MARKS * 3 / 4;
            marks.retain(|mark| {
                let same = last.replace(mark.columns >> level) == Some(mark.columns >> level);
                let goes = same && excess > 0 && mark.kind != MarkKind::OutOfMemory;
                excess -= usize::from(goes);
                !goes
            });
            while marks.len() > Self::MARKS {
                marks.pop_front();
            }
        }
    }

    /// Updates the last mark, an `empty_cache`, with the bytes that it has released so far.
    pub(super) fn amend_released(&mut self, bytes: Bytes) {
        let last = self.marks.back().is_some_and(|mark| matches!(mark.kind, MarkKind::EmptyCache { .. }));
        if last && let Some(mark) = Arc::make_mut(&mut self.marks).back_mut() {
            mark.kind = MarkKind::EmptyCache { released: bytes };
        }
    }

    /// The finest level at which the whole run fits into `width` columns.
    #[must_use]
    pub fn level_of_run(&self, width: usize) -> usize {
        level_for(self.columns(), width.min(Self::COLUMNS))
    }

    /// The part of `level` that a chart of `width` columns shows. A page fills from the left. When it is full, it moves
    /// on by half a page, so that columns keep their places in between.
    #[must_use]
    pub fn page(&self, level: usize, width: usize) -> Page {
        let width = width.min(Self::COLUMNS) as u64;
        let level = level.min(63);
        if width == 0 || self.columns() == 0 {
            return Page::default();
        }
        let last = (self.columns() - 1) >> level;
        let stride = (width / 2).max(1);
        let first = if last < width { 0 } else { (last + 1 - width).div_ceil(stride) * stride };
        let columns = (first..=last).filter_map(|index| self.column(level, index)).collect();
        let marks = self.marks.iter().filter_map(|mark| {
            let column = (mark.columns >> level).min(last).checked_sub(first)?;
            Some((usize::try_from(column).ok()?, mark.clone()))
        });
        Page { columns, first, marks: marks.collect() }
    }

    /// One column (`steps >> level`). The last one of a level may cover fewer steps.
    #[must_use]
    pub fn column(&self, level: usize, index: u64) -> Option<Column> {
        let whole = self.levels.get(level).and_then(|columns| columns.get(index));
        whole.or_else(|| {
            // The steps behind the last whole column are in the unpaired last columns of the levels below.
            (0..level.min(self.levels.len()))
                .rev()
                .filter(|below| (self.columns >> below) & 1 == 1)
                .filter_map(|below| self.levels[below].get((self.columns >> below) - 1))
                .chain(self.open)
                .reduce(Column::join)
        })
    }
}

/// The finest level at which `columns` fit into `width`.
fn level_for(columns: u64, width: usize) -> usize {
    let width = width.max(1) as u64;
    columns.div_ceil(width).max(1).next_power_of_two().trailing_zeros() as usize
}

/// The last columns of a level, oldest first.
#[derive(Clone, Debug, Default)]
struct LevelColumns {
    full: VecDeque<Arc<[Column]>>,
    /// The last columns, fewer than a chunk. Shared as well, as long as nothing is added.
    open: Arc<Vec<Column>>,
    /// The number of columns in chunks that were dropped.
    dropped: u64,
}

impl LevelColumns {
    /// An even number, so that a pair of columns is always in one chunk.
    const CHUNK: usize = 64;

    /// Adds a column. If it completes a pair, returns the pair as one column for the next level.
    fn push(&mut self, column: Column) -> Option<Column> {
        let open = Arc::make_mut(&mut self.open);
        open.push(column);
        let pair = match open[..] {
            [.., first, second] if open.len().is_multiple_of(2) => Some(first.join(second)),
            _ => None,
        };
        if open.len() == Self::CHUNK {
            self.full.push_back(open.as_slice().into());
            open.clear();
            // One chunk more than COLUMNS stays, because the open one may be empty.
            if self.full.len() > History::COLUMNS / Self::CHUNK {
                self.full.pop_front();
                self.dropped += Self::CHUNK as u64;
            }
        }
        pair
    }

    /// Only the last pair, or the column that waits for its partner.
    fn tail(&self) -> Self {
        let end = self.end();
        let dropped = end.saturating_sub(1) & !1;
        let open = (dropped..end).filter_map(|index| self.get(index)).collect();
        Self { full: VecDeque::new(), dropped, open: Arc::new(open) }
    }

    /// The index behind the last column.
    fn end(&self) -> u64 {
        self.dropped + (self.full.len() * Self::CHUNK + self.open.len()) as u64
    }

    /// The last column that begins at or before a position.
    fn around(&self, position: u64) -> Option<Column> {
        self.get(self.index_around(position)?)
    }

    fn index_around(&self, position: u64) -> Option<u64> {
        let (mut low, mut high) = (self.dropped, self.end());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|column| column.position <= position) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).filter(|index| *index >= self.dropped)
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
