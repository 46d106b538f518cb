//! Messages of a search for what fits: its progress, its limit, and the outcome of a run.

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use super::flags;
use crate::fit::{Probe, ProbeOutcome, SearchNews};
use crate::model::{Micros, View};
use crate::session::{LabSpec, MemoryLimit};
use crate::train::DataPath;
use crate::tui;

/// Width for a sentence on one line, in characters.
const SENTENCE: usize = 4096;

/// Why a request failed: the first sentence of its autopsy.
pub(super) fn why(view: &View) -> String {
    tui::autopsy_lines(view, SENTENCE, flags::flag).into_iter().next().unwrap_or_default()
}

/// Shows progress on the terminal's error stream.
pub(super) struct Follower {
    live: bool,
    batch: usize,
}

impl Follower {
    pub fn new(spec: &LabSpec) -> Self {
        Self { live: io::stderr().is_terminal(), batch: spec.config.batch }
    }

    pub fn hear(&self, news: &SearchNews<'_>) {
        let text = match news {
            SearchNews::Trying { batch } => format!("batch {batch} …"),
            SearchNews::Tried(probe) => {
                format!("batch {} {}", probe.batch, if probe.fits() { "fits" } else { "does not fit" })
            }
            SearchNews::GroupTried(probe) => {
                let (way, cards) = (probe.parallel.parallelism, probe.parallel.ranks);
                let fits = if probe.fits() { "fits" } else { "does not fit" };
                format!("{way}: batch {} on {cards} cards {fits}", probe.batch)
            }
            SearchNews::Costed { done, total, .. } => {
                format!("batch {}: {done} of {total} combinations of switches", self.batch)
            }
        };
        if self.live {
            // A failure to write progress is ignored.
            let _ = write!(io::stderr(), "\r{text} (Ctrl-C prints what is known)\x1b[K");
        }
    }

    pub fn end(&self) {
        if self.live {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The memory limit of a search, in words.
pub(super) fn limit_of(spec: &LabSpec) -> String {
    match spec.limit {
        Some(MemoryLimit::Bytes(limit)) => limit.to_string(),
        Some(share) => format!("{share} of its memory"),
        None => "all of its memory".to_owned(),
    }
}

/// The memory limit as a JSON value.
pub(super) fn limit_json(spec: &LabSpec) -> Value {
    match spec.limit {
        Some(MemoryLimit::Bytes(limit)) => json!(limit),
        Some(MemoryLimit::Fraction(share)) => json!(format!("{}%", share * 100.0)),
        None => Value::Null,
    }
}

/// Where batches are kept: this decides how many of them count towards a limit.
pub(super) const fn words_of(data: DataPath) -> &'static str {
    match data {
        DataPath::Resident => "four batches stay on the device",
        DataPath::Fresh => "each batch is made on the device",
        DataPath::Host | DataPath::Streamed => "each batch is copied to the device",
    }
}

/// A probe as a JSON object.
pub(super) fn probe_json(probe: &Probe) -> Value {
    with_outcome(json!({ "batch": probe.batch, "fits": probe.fits() }), &probe.outcome)
}

/// Adds the outcome of a run to `row`.
pub(super) fn with_outcome(mut row: Value, outcome: &ProbeOutcome) -> Value {
    let more = match outcome {
        ProbeOutcome::Fits(figures) => json!({
            "peak_reserved": figures.peak_reserved,
            "peak_allocated": figures.peak_allocated,
            "step_ms": in_milliseconds(figures.step),
            "num_alloc_retries": figures.retries.num_alloc_retries,
            "num_ooms": figures.retries.num_ooms,
        }),
        ProbeOutcome::OutOfMemory { step, why, retries } => json!({
            "step": step,
            "why": why,
            "num_alloc_retries": retries.num_alloc_retries,
            "num_ooms": retries.num_ooms,
        }),
        ProbeOutcome::Refused { why } => json!({ "why": why }),
        ProbeOutcome::Stopped => json!({}),
    };
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
    row
}

/// Why a run does not fit; `None` if it fits.
pub(super) fn reason(outcome: &ProbeOutcome) -> Option<&str> {
    match outcome {
        ProbeOutcome::OutOfMemory { why, .. } | ProbeOutcome::Refused { why } => Some(why),
        ProbeOutcome::Fits(_) | ProbeOutcome::Stopped => None,
    }
}

/// A time as a number of milliseconds.
pub(super) fn in_milliseconds(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}

/// A time in milliseconds, as text.
pub(super) fn milliseconds(time: Micros) -> String {
    format!("{:.1} ms", in_milliseconds(time))
}
