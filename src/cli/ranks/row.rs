//! The figures of one rank, and of those that do the same: plain data, which ranks of several processes send each other.

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

/// Columns of an autopsy.
const WIDTH: usize = 100;

/// What is known of a run that stands for ranks which do the same.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankRow {
    pub alike: AlikeRanks,
    /// Allocated before the first step, and after each phase of the last.
    pub sizes: [Bytes; 5],
    pub peak_allocated: Bytes,
    pub peak_reserved: Bytes,
    /// Steps that it finished.
    pub finished: u64,
    /// The median of their times, in milliseconds.
    pub step_ms: f64,
    /// What its last steps took without exchanges, where it waits in these for the others.
    pub own: Option<Micros>,
    /// Times are simulated.
    pub simulated: bool,
    /// The first loss and the last; a stage of a pipeline that is not the last has none.
    pub losses: Option<[f32; 2]>,
    /// What is to be said of it behind the table.
    pub said: Vec<String>,
    /// Where it ran out of memory, why.
    pub autopsy: Option<Vec<String>>,
    /// The object of a run on one device.
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
            // What would have made it fit is tried on one device only.
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

    /// The lowest of its ranks.
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

/// What is said without being asked for: what is wrong, and what a rank holds because it shares. Of a request that failed the
/// autopsy says more.
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
