//! One run from a clean state: whether its steps go through, and their figures.

use serde::Serialize;

use super::{Control, FitError};
use crate::model::{Micros, View};
use crate::session::{BuildError, Headless, LabSpec, Speed};
use crate::train::{Config, OnOom, TrainError};
use crate::units::Bytes;

/// Steps of a probe by default: the optimizer's state is created in the first, the second is the first to carry
/// it, and where memory is short the cache, given back meanwhile, is cut otherwise in each of the next ones.
pub const STEPS: u64 = 4;

/// How a front end words things: this room has no words for keys or flags.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Why a request failed, in a sentence; empty where the view does not say.
    pub why: fn(&View) -> String,
}

/// A run that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probe {
    /// Samples of a step.
    pub batch: usize,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: ProbeOutcome,
}

impl Probe {
    /// Whether all steps went through.
    #[must_use]
    pub const fn fits(&self) -> bool {
        matches!(self.outcome, ProbeOutcome::Fits(_))
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// All steps went through.
    Fits(ProbeFigures),
    /// Memory ran out.
    OutOfMemory {
        /// Steps that went through before; `None`: the model was not made.
        step: Option<u64>,
        /// Why, in a sentence.
        why: String,
        /// What the allocator had done by then.
        #[serde(flatten)]
        retries: Retries,
    },
    /// It can't be trained so, with any memory.
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
    /// Requests that were served only after everything cached was given back, or not at all.
    pub num_alloc_retries: i64,
    /// Requests that failed, those included that a library did without.
    pub num_ooms: i64,
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProbeFigures {
    /// The most that was allocated, in bytes.
    pub peak_allocated: Bytes,
    /// The most that was reserved, in bytes.
    pub peak_reserved: Bytes,
    /// The median step after the first, which is longer, in microseconds.
    #[serde(rename = "step_us")]
    pub step: Micros,
    /// How often memory was short.
    #[serde(flatten)]
    pub retries: Retries,
}

/// Runs `steps` steps (one at least) as `spec` says, from a clean state.
///
/// # Errors
/// All but a lack of memory and a configuration that can't be trained.
pub fn probe(spec: &LabSpec, steps: u64, terms: Terms, control: &Control<'_>) -> Result<ProbeOutcome, FitError> {
    let refused = |error: &TrainError| ProbeOutcome::Refused { why: error.to_string() };
    // A batch that halves itself would fit as another one.
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

/// The outcome of a run whose steps took so long.
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
