//! What some consecutive events did to memory: a curve by groups, the life of every block, every run of an op.
//!
//! A study reads its events twice: first for the outline, which selects the moments that a chart shows, then for what
//! was alive at these moments. So a range may have ten events or ten million.

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

/// The property by which memory is grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// The category of a block.
    #[default]
    Category,
    /// The module that allocated it, or the file for a program without modules.
    Module,
    /// Its name, with layers combined.
    Name,
    /// The pool and stream that it belongs to.
    Pool,
}

impl Grouping {
    /// All properties.
    pub const ALL: [Self; 4] = [Self::Category, Self::Module, Self::Name, Self::Pool];

    /// The property's name on screens.
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
    /// The group's name.
    pub name: Arc<str>,
    /// The category of most of its bytes.
    pub category: Category,
    /// Its live bytes at each [`OutlineMoment`] of the study.
    pub bytes: Vec<Bytes>,
    /// Its live bytes at the range's peak.
    pub at_peak: Bytes,
    /// True for the group of everything without an area of its own.
    pub rest: bool,
}

/// Something at a position in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The number of the range's memory events before it.
    pub event: u64,
    /// The number of the stream's events before it.
    pub position: u64,
    /// The item.
    pub what: T,
}

/// What some consecutive events did to memory.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// The number of the stream's events before the range begins.
    pub begin: u64,
    /// The number of the stream's events before the range ends.
    pub end: u64,
    /// The property by which memory is grouped.
    pub grouping: Grouping,
    /// The moments in order: one for every [`Study::stride`] memory events.
    pub moments: Vec<OutlineMoment>,
    /// Memory events in the range.
    pub events: u64,
    /// Memory events per moment. The last moment may stand for fewer.
    pub stride: u64,
    /// The groups, from the bottom up. At each moment their bytes add up to the allocated bytes.
    pub groups: Vec<StudyGroup>,
    /// Where phases begin, and where a phase ends that no other follows directly.
    pub phases: Vec<Located<Option<Phase>>>,
    /// Where steps begin, with the number of steps finished before each.
    pub steps: Vec<Located<u64>>,
    /// Changes and failures.
    pub marks: Vec<Located<MarkKind>>,
    /// The peak of the range; the first of several.
    pub peak: Option<OutlineMoment>,
    /// Blocks that were alive in the range, at most [`Study::LIVES`]: those from before it first, then by birth.
    pub lives: Vec<Life>,
    /// Runs of ops, in order; at most [`Study::LIVES`].
    pub ops: Vec<OpRun>,
    /// What was alive at the range's peak, by name, the most bytes first.
    pub at_peak: Vec<Survivor>,
    /// Figures of ops: one table for each of [`OpTotals`].
    tables: [Vec<OpRow>; 3],
    /// Bytes that modules kept until backward, by path.
    kept: BTreeMap<String, Bytes>,
    /// True if there were more blocks or ops than are kept.
    pub cut: bool,
    /// Texts of the names that appear here.
    pub names: Names,
}

impl Study {
    /// The most moments of a study.
    pub const MOMENTS: usize = 1024;
    /// The most blocks, and the most runs of ops, that are kept.
    pub const LIVES: usize = 400_000;
    /// The most groups with an area of their own.
    pub const GROUPS: usize = 16;
    /// The most phases, steps or marks that are kept.
    const PLACES: usize = 4096;

    /// Studies the events of `range`. `replay` hands them over, with the number of events before each, and must do so
    /// twice in the same way. `before` is memory before the range.
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

    /// The index of the moment that contains memory event `event`.
    #[must_use]
    pub fn moment_of(&self, event: u64) -> usize {
        let index = usize::try_from(event / self.stride.max(1)).unwrap_or(usize::MAX);
        index.min(self.moments.len().saturating_sub(1))
    }

    /// The indices of the moments that a chart's column stands for: at least one, if there are any.
    #[must_use]
    pub fn moments_in(&self, column: usize, columns: usize) -> Range<usize> {
        let (count, columns) = (self.moments.len(), columns.max(1));
        let from = (column * count / columns).min(count.saturating_sub(1));
        from..((column + 1) * count / columns).max(from + 1).min(count)
    }

    /// The first column that stands for a moment, in a chart of `columns` columns.
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

    /// The index of the moment that determines a column's height: the one with most allocated, the first of several.
    #[must_use]
    pub fn fullest_in(&self, column: usize, columns: usize) -> usize {
        let moments = self.moments_in(column, columns);
        let from = moments.start;
        moments.rev().max_by_key(|index| self.moments.get(*index).map(|moment| moment.allocated)).unwrap_or(from)
    }

    /// The index of the moment at a position of the stream; `None` before the first.
    #[must_use]
    pub fn moment_at(&self, position: u64) -> Option<usize> {
        self.moments.partition_point(|moment| moment.first < position).checked_sub(1)
    }

    /// The run of an op that contains a position: after its begin and not after its end.
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
