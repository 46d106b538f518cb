//! The measured effect of a switch flip: steps before and after, with their spread.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use super::figure::Figure;
use super::footing::Footing;
use super::steps::{StepPeaks, throughput};
use super::{Micros, StepReport};
use vramlab_allocator::units::Bytes;

/// A flip of one switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flip {
    /// Its word (`amp`).
    pub switch: Arc<str>,
    /// The value before.
    pub from: Arc<str>,
    /// The value since.
    pub to: Arc<str>,
}

/// The effect of flips: figures of steps before and after, without warm-up. If a second switch is flipped before the
/// first was measured, both are measured together as one effect. A later flip ends a measurement early. `empty_cache`
/// is measured by the one step that follows it and takes the segments again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The flips; empty for `empty_cache`.
    pub flips: Vec<Flip>,
    /// Steps finished at the flip.
    pub step: u64,
    /// Position in the event stream when it was flipped.
    pub position: u64,
    /// Steps measured after the flip so far, and how many are wanted.
    pub measured: (usize, usize),
    /// True if the measurement ended early, because another switch was flipped or memory ran out.
    pub cut_short: bool,
    /// Figures before the flip.
    pub before: Option<Measurement>,
    /// Figures after the flip; they may still change during the measurement.
    pub after: Option<Measurement>,
    /// For `empty_cache`, what it released and what the next step paid.
    pub emptied: Option<EmptyCacheEffect>,
    /// The last step before the flip.
    #[serde(skip)]
    pub from: Option<Footing>,
    /// The last step so far.
    #[serde(skip)]
    pub to: Option<Footing>,
}

impl Effect {
    /// True while steps are being measured.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.measured.0 < self.measured.1 && !self.cut_short
    }
}

/// What `empty_cache` gave back, and what the next step paid for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EmptyCacheEffect {
    /// Reserved before.
    pub before: Bytes,
    /// Bytes that went back to the driver.
    pub released: Bytes,
    /// Calls that gave them back (cudaFree, or runs of pages unmapped).
    pub frees: u64,
    /// Calls that took memory from the driver again (cudaMalloc, or pages mapped), up to the end of the measured step;
    /// absent until a step ended.
    pub allocs: Option<u64>,
}

/// Figures over some steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Highest allocated within a step, bytes.
    pub peak_allocated: Figure,
    /// Highest reserved within a step, bytes.
    pub peak_reserved: Figure,
    /// Stranded bytes at the end of a step; `None` if unknown.
    pub stranded: Option<Figure>,
    /// Step time in microseconds; `None` if the history has no steps.
    pub step: Option<Figure>,
    /// Tokens or samples a second.
    pub throughput: Figure,
    /// Loss; `None` if nothing was computed.
    pub loss: Option<Figure>,
}

/// One finished step, as effects are measured from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSample {
    pub peak_allocated: Bytes,
    pub peak_reserved: Bytes,
    pub stranded: Bytes,
    pub step: Micros,
    pub throughput: f64,
    pub loss: Option<f32>,
    /// True if the step is too near to a flip, or to the start, to represent its configuration.
    pub warm_up: bool,
}

/// The effect being measured.
#[derive(Clone, Debug)]
struct OpenEffect {
    effect: Effect,
    warm_up: usize,
    after: Vec<StepSample>,
    /// Steps finished since the flip.
    steps: usize,
}

impl OpenEffect {
    /// The effect as far as it is measured. Steps end far more often than somebody looks.
    fn measured(&self) -> Effect {
        Effect { after: measure(&self.after), ..self.effect.clone() }
    }
}

/// All effects measured so far, and the current one.
#[derive(Clone, Debug)]
pub(super) struct Effects {
    /// The last steps since the last flip of a switch.
    samples: VecDeque<StepSample>,
    warm_up: usize,
    closed: VecDeque<Arc<Effect>>,
    open: Option<OpenEffect>,
    finished: u64,
    /// The last step's memory and times.
    footing: Option<Footing>,
}

impl Default for Effects {
    fn default() -> Self {
        let warm_up = Self::WARM_UP;
        Self { samples: VecDeque::new(), warm_up, closed: VecDeque::new(), open: None, finished: 0, footing: None }
    }
}

impl Effects {
    /// How many steps a figure covers, before and after a flip.
    const STEPS: usize = 10;
    /// Steps after a flip that represent neither side: the cache is still that of the configuration before.
    const WARM_UP: usize = 2;
    /// Fewer measured steps don't suffice: the next flip is then measured together with this one.
    const ENOUGH: usize = 3;
    const KEPT: usize = 64;

    /// Notes a flip. Returns true if its effect is measured by itself, and not together with an earlier flip's.
    pub(super) fn flip(&mut self, flip: Flip, position: u64) -> bool {
        if self.finished == 0 {
            return true;
        }
        let joins = |open: &&mut OpenEffect| open.after.len() < Self::ENOUGH && !open.effect.flips.is_empty();
        let joined = self.open.as_mut().filter(joins);
        let by_itself = joined.is_none();
        if let Some(open) = joined {
            let flips = &mut open.effect.flips;
            match flips.iter_mut().find(|earlier| earlier.switch == flip.switch) {
                Some(earlier) => earlier.to = flip.to,
                None => flips.push(flip),
            }
            flips.retain(|flip| flip.from != flip.to);
            let nothing = flips.is_empty();
            open.effect.position = position;
            (open.effect.step, open.effect.measured.0) = (self.finished, 0);
            open.effect.to = None;
            (open.steps, open.warm_up) = (0, Self::WARM_UP);
            open.after.clear();
            if nothing {
                self.open = None;
            }
        } else {
            self.begin(self.effect(vec![flip], position, Self::STEPS), Self::WARM_UP);
        }
        self.samples.clear();
        self.warm_up = Self::WARM_UP;
        by_itself
    }

    /// Notes a call of `empty_cache()` with `reserved` bytes held. The first whole step after it pays for it and is
    /// measured; a step already in progress began before the call.
    pub(super) fn empty_cache(&mut self, position: u64, reserved: Bytes, in_step: bool) {
        let mut effect = self.effect(Vec::new(), position, 1);
        effect.emptied = Some(EmptyCacheEffect { before: reserved, ..EmptyCacheEffect::default() });
        let warm_up = usize::from(in_step);
        self.begin(effect, warm_up);
        self.warm_up = self.warm_up.max(1 + warm_up);
    }

    /// Notes what the last `empty_cache` has released so far, and in how many calls.
    pub(super) fn released(&mut self, bytes: Bytes, frees: u64) {
        if let Some(emptied) = self.open.as_mut().and_then(|open| open.effect.emptied.as_mut()) {
            (emptied.released, emptied.frees) = (bytes, frees);
        }
    }

    /// Ends the current measurement early, because memory ran out.
    pub(super) fn cut_short(&mut self) {
        self.close();
        self.warm_up = Self::WARM_UP;
    }

    /// Ends a step. `grown` is how often it asked the driver for memory, `allocated` what it left behind, `limit` the
    /// limit in force. Returns the measurement once it is complete.
    pub(super) fn end_step(
        &mut self,
        report: &StepReport,
        peaks: &StepPeaks,
        (allocated, stranded): (Bytes, Bytes),
        limit: Option<Bytes>,
        grown: u64,
    ) -> StepSample {
        self.finished += 1;
        let footing = Footing { limit, ..Footing::of(report, peaks, allocated, self.footing.as_ref()) };
        self.footing = Some(footing);
        let sample = StepSample {
            peak_allocated: peaks.allocated,
            peak_reserved: peaks.reserved,
            stranded,
            step: report.total,
            throughput: throughput(report),
            loss: report.loss,
            warm_up: self.warm_up > 0,
        };
        if self.samples.len() == Self::STEPS {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.warm_up = self.warm_up.saturating_sub(1);
        let Some(open) = self.open.as_mut() else { return sample };
        open.steps += 1;
        if let Some(emptied) = &mut open.effect.emptied {
            emptied.allocs = Some(emptied.allocs.unwrap_or(0) + grown);
        }
        if open.steps <= open.warm_up {
            return sample;
        }
        open.after.push(sample);
        open.effect.to = Some(footing);
        open.effect.measured.0 = open.after.len();
        if open.effect.measured.0 == open.effect.measured.1 {
            self.close();
        }
        sample
    }

    /// All effects, the newest last.
    pub(super) fn view(&self) -> Vec<Arc<Effect>> {
        self.closed.iter().cloned().chain(self.open.as_ref().map(|open| Arc::new(open.measured()))).collect()
    }

    fn effect(&self, flips: Vec<Flip>, position: u64, steps: usize) -> Effect {
        let steady: Vec<StepSample> = self.samples.iter().filter(|sample| !sample.warm_up).copied().collect();
        let before = measure(&steady).or_else(|| measure(&self.samples.iter().copied().collect::<Vec<_>>()));
        Effect {
            flips,
            step: self.finished,
            position,
            measured: (0, steps),
            cut_short: false,
            before,
            after: None,
            emptied: None,
            from: self.footing,
            to: None,
        }
    }

    /// Ends the current measurement with what it has, and begins another.
    fn begin(&mut self, effect: Effect, warm_up: usize) {
        self.close();
        self.open = Some(OpenEffect { effect, warm_up, after: Vec::new(), steps: 0 });
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let mut effect = open.measured();
        effect.cut_short = effect.measured.0 < effect.measured.1;
        if self.closed.len() == Self::KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back(Arc::new(effect));
    }
}

/// The values that represent all steps. If bytes rise, or fall, with every step, only the last value counts: the middle
/// would have a spread that hides every difference.
fn come_to(values: &[f64]) -> &[f64] {
    let one_way = |ordered: fn(&f64, &f64) -> bool| values.windows(2).all(|pair| ordered(&pair[0], &pair[1]));
    let moves = values.len() > 4 && (one_way(|before, now| now > before) || one_way(|before, now| now < before));
    if moves { &values[values.len() - 1..] } else { values }
}

/// The figures of some steps; `None` if there are none.
pub(super) fn measure(steps: &[StepSample]) -> Option<Measurement> {
    let values = |value: fn(&StepSample) -> f64| steps.iter().map(value).collect::<Vec<f64>>();
    let bytes = |value| Figure::of_bytes(come_to(&values(value)));
    let times = |value| Figure::of_times(&values(value));
    Some(Measurement {
        peak_allocated: bytes(|step| step.peak_allocated.get() as f64)?,
        peak_reserved: bytes(|step| step.peak_reserved.get() as f64)?,
        stranded: Some(bytes(|step| step.stranded.get() as f64)?),
        step: Some(times(|step| step.step.0 as f64)?),
        throughput: times(|step| step.throughput)?,
        loss: Figure::of(steps.iter().filter_map(|step| step.loss).map(f64::from)),
    })
}

#[cfg(test)]
mod tests;
