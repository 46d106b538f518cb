//! What some events in a row did to memory: a curve by groups, the life of every block, every run of an op.
//!
//! A study reads its events twice: first for the outline (which moments a chart of so many columns shows), then for what
//! was alive at just these moments. So a range may be of ten events or of ten million.

mod lives;
mod modules;
mod ops;
mod outline;
mod strata;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Category, Event, MarkKind, MemoryModel, Names, Phase};
use vramlab_allocator::units::Bytes;

pub use lives::{Life, Survivor};
pub use ops::{OpRow, OpRun, OpTotals, Sort};
use outline::Outline;
pub use outline::OutlineMoment;
use strata::Strata;

/// What memory is told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// What a block is for.
    #[default]
    Category,
    /// The module that made it, or the file of a stranger's source.
    Module,
    /// What it is called, layers taken together.
    Name,
    /// The pool that it lies in, and its stream.
    Pool,
}

impl Grouping {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Category, Self::Module, Self::Name, Self::Pool];

    /// The word for it on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Category => "category",
            Self::Module => "module",
            Self::Name => "tensor",
            Self::Pool => "pool",
        }
    }
}

/// One area of a stacked curve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StudyGroup {
    /// What it is.
    pub name: Arc<str>,
    /// What most of its bytes are for.
    pub category: Category,
    /// Its live bytes at each [`OutlineMoment`] of the study.
    pub bytes: Vec<Bytes>,
    /// Its live bytes where the range is fullest.
    pub at_peak: Bytes,
    /// It stands for all that have no area of their own.
    pub rest: bool,
}

/// Something at its place in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// Memory events of the range before it.
    pub event: u64,
    /// Events of the stream before it.
    pub position: u64,
    /// What.
    pub what: T,
}

/// What some events in a row did to memory.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// Events of the stream before the range, and up to its end.
    pub begin: u64,
    /// See `begin`.
    pub end: u64,
    /// What the groups tell apart.
    pub grouping: Grouping,
    /// Its moments, in order: one for each [`Study::stride`] memory events.
    pub moments: Vec<OutlineMoment>,
    /// Memory events in the range.
    pub events: u64,
    /// Memory events of a moment; the last may stand for fewer.
    pub stride: u64,
    /// The areas, from the floor up; the bytes of all of them at a moment are what was allocated then.
    pub groups: Vec<StudyGroup>,
    /// Where phases begin, and where one ends that no other follows at once.
    pub phases: Vec<Located<Option<Phase>>>,
    /// Where steps begin: steps finished before each.
    pub steps: Vec<Located<u64>>,
    /// What was changed, and what failed.
    pub marks: Vec<Located<MarkKind>>,
    /// Where the range is fullest; of several such moments the first.
    pub peak: Option<OutlineMoment>,
    /// Blocks that were alive in the range, those from before it first, then by birth; at most [`Study::LIVES`].
    pub lives: Vec<Life>,
    /// Runs of ops, in order; at most [`Study::LIVES`].
    pub ops: Vec<OpRun>,
    /// What was alive where the range is fullest, by name; the most bytes first.
    pub at_peak: Vec<Survivor>,
    /// Figures of ops, one table for each of [`OpTotals`].
    tables: [Vec<OpRow>; 3],
    /// What modules kept until backward, by path.
    kept: BTreeMap<String, Bytes>,
    /// There were more blocks or ops than are kept.
    pub cut: bool,
    /// Texts of the names that appear here.
    pub names: Names,
}

impl Study {
    /// Moments that a study has at most.
    pub const MOMENTS: usize = 1024;
    /// Blocks, and runs of ops, that are kept at most.
    pub const LIVES: usize = 400_000;
    /// Groups that have an area of their own at most.
    pub const GROUPS: usize = 16;
    /// Places of a kind that are kept at most.
    const PLACES: usize = 4096;

    /// Studies the events of `range` that `replay` hands over, with the number of events before each, twice the same;
    /// `before` is memory as they found it.
    pub fn of(
        range: Range<u64>,
        before: &MemoryModel,
        names: &Names,
        grouping: Grouping,
        replay: impl Fn(&mut dyn FnMut(u64, &Event)),
    ) -> Self {
        let mut outline = Outline::new(before.clone());
        replay(&mut |position, event| outline.observe(position, event));
        let mut strata = Strata::new(before, names.clone(), grouping, outline.moments());
        replay(&mut |position, event| strata.observe(position, event));
        let (moments, peak) = (outline.moments().to_vec(), outline.peak());
        let strata = strata.finish(peak.map(|peak| peak.position));
        let mut study = Self {
            begin: range.start,
            end: range.end,
            grouping,
            events: outline.events(),
            stride: outline.stride(),
            phases: outline.phases,
            steps: outline.steps,
            marks: outline.marks,
            moments,
            peak,
            groups: strata.groups,
            lives: strata.lives,
            ops: strata.ops,
            cut: strata.cut,
            names: strata.names,
            ..Self::default()
        };
        study.kept = study.kept_by_modules();
        study.tables = OpTotals::ALL.map(|totals| study.table(totals));
        study.at_peak = study.peak.map(|peak| study.alive_at(peak.position)).unwrap_or_default();
        study
    }

    /// The moment that holds memory event `event`, by its place.
    #[must_use]
    pub fn moment_of(&self, event: u64) -> usize {
        let index = usize::try_from(event / self.stride.max(1)).unwrap_or(usize::MAX);
        index.min(self.moments.len().saturating_sub(1))
    }

    /// The moments that one of so many columns of a chart stands for, by their places: one at least, where there are any.
    #[must_use]
    pub fn moments_in(&self, column: usize, columns: usize) -> Range<usize> {
        let (count, columns) = (self.moments.len(), columns.max(1));
        let from = (column * count / columns).min(count.saturating_sub(1));
        from..((column + 1) * count / columns).max(from + 1).min(count)
    }

    /// The first of so many columns that stands for a moment.
    #[must_use]
    pub fn column_of(&self, moment: usize, columns: usize) -> usize {
        let count = self.moments.len().max(1);
        let column = if count > columns {
            ((moment + 1) * columns).div_ceil(count).saturating_sub(1)
        } else {
            (moment * columns).div_ceil(count)
        };
        column.min(columns.saturating_sub(1))
    }

    /// The moment whose height a column has: that with most allocated, of several the first; by its place.
    #[must_use]
    pub fn fullest_in(&self, column: usize, columns: usize) -> usize {
        let moments = self.moments_in(column, columns);
        let from = moments.start;
        moments.rev().max_by_key(|index| self.moments.get(*index).map(|moment| moment.allocated)).unwrap_or(from)
    }

    /// The moment at a position of the stream, by its place; `None` before the first.
    #[must_use]
    pub fn moment_at(&self, position: u64) -> Option<usize> {
        self.moments.partition_point(|moment| moment.first < position).checked_sub(1)
    }

    /// The run of an op that a position lies in: behind its begin and not behind its end.
    #[must_use]
    pub fn op_at(&self, position: u64) -> Option<&OpRun> {
        let run = self.ops.get(self.ops.partition_point(|run| run.begin < position).checked_sub(1)?)?;
        (position <= run.end).then_some(run)
    }

    /// The phase at a position; `None` between phases.
    #[must_use]
    pub fn phase_at(&self, position: u64) -> Option<Phase> {
        let behind = self.phases.partition_point(|place| place.position < position);
        self.phases.get(behind.checked_sub(1)?)?.what
    }
}

#[cfg(test)]
mod tests;
