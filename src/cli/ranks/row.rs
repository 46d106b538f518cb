//! The figures of one rank and of the ranks equal to it, as plain data that ranks in several processes send each other.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::flags;
use crate::cli::row::{Peaks, PhaseMemory, Steps, bytes, object};
use crate::model::{AlikeRanks, Evidence, Finding, Level, Micros, Parallelism, Phase};
use crate::session::Headless;
use crate::source::{RankFigures, RankState};
use crate::tui;
use crate::units::Bytes;

/// Columns of an autopsy's text.
const WIDTH: usize = 100;

/// The figures of a run that stands for all ranks which do the same.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankRow {
    pub alike: AlikeRanks,
    /// Allocated memory before the first step, and after each phase of the last step.
    pub sizes: [Bytes; 5],
    pub peak_allocated: Bytes,
    pub peak_reserved: Bytes,
    /// Completed steps.
    pub finished: u64,
    /// The median of the steps' times, in milliseconds.
    pub step_ms: f64,
    /// The time of the last steps without exchanges, if the rank waits for the others in these.
    pub own: Option<Micros>,
    /// Whether times are simulated.
    pub simulated: bool,
    /// The first and the last loss; in a pipeline, only the last stage has them.
    pub losses: Option<[f32; 2]>,
    /// Remarks to print below the table.
    pub said: Vec<String>,
    /// The reason, if memory ran out.
    pub autopsy: Option<Vec<String>>,
    /// The JSON object of a run on one device.
    pub object: Value,
}

impl RankRow {
    pub fn of(run: &mut Headless, steps: &Steps, alike: AlikeRanks) -> Self {
        let view = run.view();
        let (spec, trainer) = (run.spec(), run.trainer());
        let between = PhaseMemory::of(trainer, &view);
        let after = |phase| between.after(phase);
        let Peaks { allocated, reserved } = steps.peaks(&trainer.statistics());
        let autopsy = view.autopsy.is_some().then(|| {
            // Remedies are tried only for runs on one device.
            let lines = tui::autopsy_lines(&view, WIDTH, flags::flag).into_iter();
            lines.filter(|line| !line.starts_with("fits:")).collect()
        });
        let simulated = trainer.device_info().simulated;
        let waits = !simulated || matches!(alike.parallelism, Some(Parallelism::Pipeline(_)));
        Self {
            alike,
            sizes: [
                between.before,
                between.forward,
                after(Phase::Backward),
                after(Phase::Optimizer),
                after(Phase::ZeroGrad),
            ],
            peak_allocated: bytes(allocated),
            peak_reserved: bytes(reserved),
            finished: steps.finished,
            step_ms: steps.times.median(),
            own: view.steps.own.filter(|_| waits),
            simulated,
            losses: steps.first_loss.zip(steps.last_loss).map(|(first, last)| [first, last]),
            said: view.findings.iter().filter(|finding| is_said(finding)).map(sentence).collect(),
            autopsy,
            object: object(spec, trainer, steps, &view),
        }
    }

    /// The lowest of the ranks.
    pub fn first(&self) -> u16 {
        self.alike.ranks.first().copied().unwrap_or_default()
    }

    pub fn figures(&self) -> RankFigures {
        RankFigures {
            alike: self.alike.clone().into(),
            allocated: self.sizes.last().copied().unwrap_or_default(),
            peak_allocated: self.peak_allocated,
            peak_reserved: self.peak_reserved,
            state: if self.autopsy.is_some() { RankState::OutOfMemory } else { RankState::Trains },
            step_time: Micros((self.step_ms * 1000.0) as u64),
            exchange: Micros(0),
            step: None,
            own: self.own,
            simulated: self.simulated,
            stage: matches!(self.alike.parallelism, Some(Parallelism::Pipeline(_))),
            foreign_contexts: Arc::default(),
        }
    }
}

/// Whether a finding is printed unasked: problems, and memory that a rank holds because it shares work. For a failed
/// request, the autopsy says more.
const fn is_said(finding: &Finding) -> bool {
    match finding.evidence {
        Evidence::Gathered { .. } | Evidence::Buckets { .. } | Evidence::LateBuckets { .. } => true,
        Evidence::OutOfMemory { .. } => false,
        _ => matches!(finding.level, Level::Warning | Level::Danger),
    }
}

fn sentence(finding: &Finding) -> String {
    let flags: Vec<String> = finding.remedies.iter().map(flags::flag).collect();
    let remedy = if flags.is_empty() { String::new() } else { format!(" Try {}.", flags.join(" or ")) };
    format!("{finding}.{remedy}")
}
