//! A probe: one run from a clean state, to see whether its steps go through, with their figures.

use serde::Serialize;

use super::{Control, FitError};
use crate::model::{Micros, View};
use crate::session::{BuildError, Headless, LabSpec, Speed};
use crate::train::{Config, OnOom, TrainError};
use crate::units::Bytes;

/// The default number of steps in a probe. The first step creates the optimizer's state, and the second is the first to
/// carry it. If memory is short, the cache is released meanwhile and cut differently in each of the next steps.
pub const STEPS: u64 = 4;

/// The front end's wording, because this room has no words for keys or flags.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Why a request failed, in a sentence; empty if the view does not say.
    pub why: fn(&View) -> String,
}

/// A probe and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probe {
    /// Samples per step.
    pub batch: usize,
    /// The result.
    #[serde(flatten)]
    pub outcome: ProbeOutcome,
}

impl Probe {
    /// True if all steps went through.
    #[must_use]
    pub const fn fits(&self) -> bool {
        matches!(self.outcome, ProbeOutcome::Fits(_))
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// All steps went through.
    Fits(ProbeFigures),
    /// Memory ran out.
    OutOfMemory {
        /// How many steps went through before; `None` if the model was not built.
        step: Option<u64>,
        /// Why, in a sentence.
        why: String,
        /// How often memory had been short by then.
        #[serde(flatten)]
        retries: Retries,
    },
    /// The configuration can't be trained, with any amount of memory.
    Refused {
        /// Why, in a sentence.
        why: String,
    },
    /// It was stopped.
    Stopped,
}

/// How often memory was short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Retries {
    /// Requests that were served only after everything cached was released, or not at all.
    pub num_alloc_retries: i64,
    /// Requests that failed, including those that a library could do without.
    pub num_ooms: i64,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProbeFigures {
    /// The most bytes that were allocated.
    pub peak_allocated: Bytes,
    /// The most bytes that were reserved.
    pub peak_reserved: Bytes,
    /// The median time of a step, without the first one, which is longer, in microseconds.
    #[serde(rename = "step_us")]
    pub step: Micros,
    /// How often memory was short.
    #[serde(flatten)]
    pub retries: Retries,
}

/// Runs `steps` steps (at least one) as `spec` says, from a clean state.
///
/// # Errors
/// All errors except a lack of memory and a configuration that can't be trained.
pub fn probe(spec: &LabSpec, steps: u64, terms: Terms, control: &Control<'_>) -> Result<ProbeOutcome, FitError> {
    let refused = |error: &TrainError| ProbeOutcome::Refused { why: error.to_string() };
    // A batch that halves itself would fit as another batch.
    let config = Config { on_oom: OnOom::Stop, ..spec.config };
    let mut run = match Headless::start(LabSpec { config, speed: Speed::Max, ..spec.clone() }) {
        Ok(run) => run,
        Err(error @ BuildError::TooSmall { .. }) => {
            return Ok(ProbeOutcome::OutOfMemory { step: None, why: error.to_string(), retries: Retries::default() });
        }
        Err(BuildError::Train(error)) if error.is_refusal() => return Ok(refused(&error)),
        Err(error) => return Err(error.into()),
    };
    let mut times = Vec::new();
    for step in 0..steps.max(1) {
        if control.is_stopped() {
            return Ok(ProbeOutcome::Stopped);
        }
        match run.step() {
            Ok(report) => times.push(report.total),
            Err(error @ TrainError::OutOfMemory { .. }) => {
                let told = (terms.why)(&run.view());
                let why = if told.is_empty() { error.to_string() } else { told };
                return Ok(ProbeOutcome::OutOfMemory { step: Some(step), why, retries: retries(&run) });
            }
            Err(error) if error.is_refusal() => return Ok(refused(&error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ProbeOutcome::Fits(figures(&run, &mut times)))
}

/// The figures of a run whose steps took these times.
pub(super) fn figures(run: &Headless, times: &mut [Micros]) -> ProbeFigures {
    let statistics = run.statistics();
    let bytes = |count: i64| Bytes(u64::try_from(count).unwrap_or_default());
    ProbeFigures {
        peak_allocated: bytes(statistics.allocated_bytes.all.peak),
        peak_reserved: bytes(statistics.reserved_bytes.all.peak),
        step: median(if times.len() > 1 { &mut times[1..] } else { times }),
        retries: retries(run),
    }
}

pub(super) fn retries(run: &Headless) -> Retries {
    let statistics = run.statistics();
    Retries { num_alloc_retries: statistics.num_alloc_retries, num_ooms: statistics.num_ooms }
}

fn median(times: &mut [Micros]) -> Micros {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
