//! What ops did to memory: by op, by module, by source line.

use std::collections::HashMap;

use super::{Life, Study};
use crate::{Category, Micros, NameId, Phase, naming};
use vramlab_allocator::units::Bytes;

/// One run of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRun {
    /// The op, with its path.
    pub name: NameId,
    /// The phase that it ran in.
    pub phase: Option<Phase>,
    /// Events before its begin.
    pub begin: u64,
    /// Events before its end.
    pub end: u64,
    /// Its duration on the caller's clock.
    pub time: Micros,
}

/// What the rows of a table stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OpTotals {
    /// A kind of op (`linear`), or a function.
    #[default]
    Op,
    /// A module (`blocks.3`), or a file.
    Module,
    /// A path of modules, or a source line.
    Place,
}

impl OpTotals {
    /// All kinds of rows.
    pub const ALL: [Self; 3] = [Self::Op, Self::Module, Self::Place];

    /// The kind's name on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Op => "op",
            Self::Module => "module",
            Self::Place => "place",
        }
    }
}

/// The figure by which a table is sorted, in descending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sort {
    /// Bytes alive at the range's peak.
    #[default]
    AtPeak,
    /// Bytes allocated.
    Taken,
    /// Bytes kept after the op's end.
    Kept,
    /// Time.
    Time,
    /// Calls.
    Calls,
}

impl Sort {
    /// All figures.
    pub const ALL: [Self; 5] = [Self::AtPeak, Self::Taken, Self::Kept, Self::Time, Self::Calls];

    /// The figure's name on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::AtPeak => "at peak",
            Self::Taken => "taken",
            Self::Kept => "kept",
            Self::Time => "time",
            Self::Calls => "calls",
        }
    }
}

/// Sums over several runs of ops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpRow {
    /// Their common name.
    pub name: String,
    /// The number of runs. Blocks allocated outside ops count as none.
    pub calls: u64,
    /// Their time.
    pub time: Micros,
    /// Blocks that they allocated.
    pub blocks: u64,
    /// The bytes of these blocks.
    pub taken: Bytes,
    /// Those of these bytes that were alive when the op ended.
    pub kept: Bytes,
    /// Bytes of all blocks that they ever allocated which are alive at the range's peak, including blocks from before
    /// the range, by category.
    pub at_peak: [Bytes; Category::ALL.len()],
    /// The most bytes of library workspaces that one run held.
    pub workspace: Bytes,
}

impl OpRow {
    /// Bytes alive at the range's peak.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        self.at_peak.iter().copied().sum()
    }
}

impl Study {
    /// The rows that `totals` asks for, sorted.
    #[must_use]
    pub fn op_rows(&self, totals: OpTotals, sort: Sort) -> Vec<&OpRow> {
        let mut rows: Vec<&OpRow> = self.tables[totals as usize].iter().collect();
        rows.sort_by(|a, b| key(b, sort).cmp(&key(a, sort)).then_with(|| naming::compare(&a.name, &b.name)));
        rows
    }

    /// Computes the rows that `totals` asks for.
    pub(super) fn table(&self, totals: OpTotals) -> Vec<OpRow> {
        let mut table =
            OpTable { study: self, totals, rows: Vec::new(), by_text: HashMap::new(), by_name: HashMap::new() };
        for run in &self.ops {
            let row = table.row(run.name);
            row.calls += 1;
            row.time = Micros(row.time.0 + run.time.0);
        }
        let peak = self.peak.map(|peak| peak.position);
        let mut workspace = (0, Bytes::ZERO);
        for life in &self.lives {
            let row = table.row_of(life);
            if peak.is_some_and(|peak| life.is_alive_at(peak)) {
                row.at_peak[life.category as usize] += life.size;
            }
            if life.born < self.begin || life.relabelled {
                continue;
            }
            row.blocks += 1;
            row.taken += life.size;
            let run = self.op_at(life.born);
            let end = run.map_or(life.born, |run| run.end);
            if life.freed.is_none_or(|freed| freed > end) {
                row.kept += life.size;
            }
            if life.category == Category::Workspace {
                let run = run.map_or(life.born, |run| run.begin);
                workspace = if workspace.0 == run { (run, workspace.1 + life.size) } else { (run, life.size) };
                row.workspace = row.workspace.max(workspace.1);
            }
        }
        table.rows
    }
}

fn key(row: &OpRow, sort: Sort) -> u64 {
    match sort {
        Sort::AtPeak => row.peak().0,
        Sort::Taken => row.taken.0,
        Sort::Kept => row.kept.0,
        Sort::Time => row.time.0,
        Sort::Calls => row.calls,
    }
}

struct OpTable<'a> {
    study: &'a Study,
    totals: OpTotals,
    rows: Vec<OpRow>,
    by_text: HashMap<String, usize>,
    by_name: HashMap<NameId, usize>,
}

impl OpTable<'_> {
    /// The row for a block: that of the op that allocated it, or else of its category or its name.
    fn row_of(&mut self, life: &Life) -> &mut OpRow {
        let named = self.study.names.get(life.name).ends_with(')');
        match (life.op, self.totals) {
            (NameId::NONE, OpTotals::Op) if !named => self.row_called(life.category.label()),
            (NameId::NONE, _) => self.row(life.name),
            (op, _) => self.row(op),
        }
    }

    fn row(&mut self, name: NameId) -> &mut OpRow {
        let index = match self.by_name.get(&name) {
            Some(&index) => index,
            None => {
                let text = self.study.names.get(name);
                let text = match self.totals {
                    OpTotals::Op => naming::thing(text).to_owned(),
                    OpTotals::Module => naming::module(text),
                    OpTotals::Place => match naming::place(text) {
                        "" => text.to_owned(),
                        place => place.to_owned(),
                    },
                };
                let index = self.index_of(if text.is_empty() { "not recorded" } else { &text });
                self.by_name.insert(name, index);
                index
            }
        };
        &mut self.rows[index]
    }

    fn row_called(&mut self, text: &str) -> &mut OpRow {
        let index = self.index_of(text);
        &mut self.rows[index]
    }

    fn index_of(&mut self, text: &str) -> usize {
        if let Some(&index) = self.by_text.get(text) {
            return index;
        }
        self.rows.push(OpRow {
            name: text.to_owned(),
            calls: 0,
            time: Micros(0),
            blocks: 0,
            taken: Bytes::ZERO,
            kept: Bytes::ZERO,
            at_peak: [Bytes::ZERO; Category::ALL.len()],
            workspace: Bytes::ZERO,
        });
        self.by_text.insert(text.to_owned(), self.rows.len() - 1);
        self.rows.len() - 1
    }
}
