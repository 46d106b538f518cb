//! The results of a selftest, by kernel and type.

use serde::Serialize;

use super::compare::Nearness;

/// The result of a row's cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All cases were within their limits.
    Ok,
    /// At least one case was not.
    Failed,
    /// The device has no such kernel, and need not have it.
    NotSupported,
}

impl Outcome {
    /// The word in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "FAILED",
            Self::NotSupported => "not supported",
        }
    }
}

/// All cases of one kernel in one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kernel's name.
    pub kernel: String,
    /// `f32`, `bf16`, `f32→f16`.
    pub dtype: String,
    /// Cases that ran.
    pub cases: usize,
    /// The error that came closest to its tolerance; absent if something other than a number was wrong.
    pub worst_error: Option<f64>,
    /// The tolerance of that case.
    pub tolerance: f64,
    /// The result of the cases.
    pub outcome: Outcome,
    /// Wrong cases.
    pub failures: Vec<Failure>,
    /// The share of the tolerance that the worst case used.
    #[serde(skip)]
    used: f64,
}

impl Row {
    fn new(kernel: &str, dtype: &str) -> Self {
        Self {
            kernel: kernel.to_owned(),
            dtype: dtype.to_owned(),
            cases: 0,
            worst_error: Some(0.0),
            tolerance: 0.0,
            outcome: Outcome::Ok,
            failures: Vec::new(),
            used: 0.0,
        }
    }
}

/// A wrong case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Sizes and switches.
    pub shape: String,
    /// The first wrong element, or what else happened.
    pub sentence: String,
}

/// The results of a selftest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// One row for each kernel and type; the rows of a kernel are adjacent.
    pub rows: Vec<Row>,
    /// If the device was lost: why, and in which case.
    pub lost: Option<String>,
}

impl Report {
    /// True if every tested case is right.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.lost.is_none() && self.rows.iter().all(|row| row.outcome != Outcome::Failed)
    }

    /// Cases that ran.
    #[must_use]
    pub fn cases(&self) -> usize {
        self.rows.iter().map(|row| row.cases).sum()
    }

    fn row(&mut self, kernel: &str, dtype: &str) -> &mut Row {
        let index = self.rows.iter().position(|row| row.kernel == kernel && row.dtype == dtype).unwrap_or_else(|| {
            let others = self.rows.iter().rposition(|row| row.kernel == kernel);
            let index = others.map_or(self.rows.len(), |last| last + 1);
            self.rows.insert(index, Row::new(kernel, dtype));
            index
        });
        &mut self.rows[index]
    }

    /// Counts a case that ran.
    pub(crate) fn add(&mut self, kernel: &str, dtype: &str, nearness: &Nearness) {
        let row = self.row(kernel, dtype);
        row.cases += 1;
        if nearness.used() >= row.used {
            row.used = nearness.used();
            row.worst_error = nearness.error.is_finite().then_some(nearness.error);
            row.tolerance = nearness.tolerance;
        }
    }

    /// Adds a failure of a case.
    pub(crate) fn fail(&mut self, kernel: &str, dtype: &str, failure: Failure) {
        let row = self.row(kernel, dtype);
        row.outcome = Outcome::Failed;
        row.failures.push(failure);
    }

    /// Records that the device lacks a kernel that it need not have.
    pub(crate) fn refuse(&mut self, kernel: &str, dtype: &str) {
        let row = self.row(kernel, dtype);
        if row.outcome == Outcome::Ok && row.cases == 0 {
            row.outcome = Outcome::NotSupported;
        }
    }
}
