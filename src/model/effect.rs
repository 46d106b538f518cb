//! What flipping a switch did, measured: medians of steps before and after.

use std::collections::VecDeque;

use super::steps::{StepPeaks, median, median_by, throughput};
use super::{Effect, Measurement, Micros, StepReport};
use crate::units::Bytes;

/// One finished step, as effects are measured from it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    measurement: Measurement,
    /// Too near to a flip (or to the start) to stand for the configuration.
    warm_up: bool,
}

/// A switch as it was and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flip {
    key: char,
    switch: String,
    from: String,
    to: String,
}

/// The effect that is being measured.
#[derive(Clone, Debug)]
struct Open {
    effect: Effect,
    /// What was flipped; empty for `empty_cache`.
    flips: Vec<Flip>,
    warm_up: usize,
    after: Vec<Measurement>,
    /// Steps finished since.
    steps: usize,
}

/// All effects measured so far, and the one under way.
#[derive(Clone, Debug)]
pub(super) struct Effects {
    /// Steps since the last flip of a switch, the last ones.
    samples: VecDeque<Sample>,
    warm_up: usize,
    closed: VecDeque<Effect>,
    open: Option<Open>,
    finished: u64,
}

impl Default for Effects {
    fn default() -> Self {
        let warm_up = Self::WARM_UP;
        Self { samples: VecDeque::new(), warm_up, closed: VecDeque::new(), open: None, finished: 0 }
    }
}

impl Effects {
    /// Steps on either side that a median is over.
    const STEPS: usize = 10;
    /// Steps after a flip that stand for neither side: the cache still fits the configuration before.
    const WARM_UP: usize = 2;
    const KEPT: usize = 64;

    /// A switch went from one value to another. Flips with no step between them are one effect: no step ran under what
    /// was between.
    pub(super) fn flip(&mut self, key: char, switch: &str, from: &str, to: &str, position: u64) {
        let flip = Flip { key, switch: switch.to_owned(), from: from.to_owned(), to: to.to_owned() };
        if self.finished == 0 {
            return;
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.steps == 0 && !open.flips.is_empty()) {
            match open.flips.iter_mut().find(|earlier| earlier.key == key) {
                Some(earlier) => earlier.to = flip.to,
                None => open.flips.push(flip),
            }
            open.flips.retain(|flip| flip.from != flip.to);
            open.effect.key = key;
            open.effect.title = title(&open.flips).into();
            open.effect.position = position;
            if open.flips.is_empty() {
                self.open = None;
            }
            return;
        }
        let flips = vec![flip];
        let title = title(&flips);
        self.begin(Open::new(self.effect(key, &title, position, Self::STEPS), flips, Self::WARM_UP));
        self.samples.clear();
        self.warm_up = Self::WARM_UP;
    }

    /// `empty_cache()` was called. Its price falls in the first step after it, so that one is measured.
    pub(super) fn empty_cache(&mut self, position: u64) {
        let mut effect = self.effect('e', "empty_cache", position, 1);
        effect.released = Some(Bytes::ZERO);
        self.begin(Open::new(effect, Vec::new(), 0));
        self.warm_up = self.warm_up.max(1);
    }

    /// What the last `empty_cache` has returned so far.
    pub(super) fn released(&mut self, bytes: Bytes) {
        if let Some(released) = self.open.as_mut().and_then(|open| open.effect.released.as_mut()) {
            *released = bytes;
        }
    }

    /// A step ended.
    pub(super) fn end_step(&mut self, report: &StepReport, peaks: &StepPeaks, stranded: Bytes) {
        self.finished += 1;
        let measurement = Measurement {
            peak_allocated: peaks.allocated,
            peak_reserved: peaks.reserved,
            stranded,
            step: report.total,
            throughput: throughput(report),
            loss: report.loss,
        };
        if self.samples.len() == Self::STEPS {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { measurement, warm_up: self.warm_up > 0 });
        self.warm_up = self.warm_up.saturating_sub(1);
        let Some(open) = self.open.as_mut() else { return };
        open.steps += 1;
        if open.steps <= open.warm_up {
            return;
        }
        open.after.push(measurement);
        open.effect.measured.0 = open.after.len();
        open.effect.after = medians(&open.after);
        if open.effect.measured.0 == open.effect.measured.1 {
            self.close();
        }
    }

    /// All effects, newest last.
    pub(super) fn view(&self) -> Vec<Effect> {
        self.closed.iter().chain(self.open.as_ref().map(|open| &open.effect)).cloned().collect()
    }

    fn effect(&self, key: char, title: &str, position: u64, steps: usize) -> Effect {
        let steady: Vec<Measurement> = self.samples.iter().filter(|s| !s.warm_up).map(|s| s.measurement).collect();
        let before = medians(&steady)
            .or_else(|| medians(&self.samples.iter().map(|sample| sample.measurement).collect::<Vec<_>>()));
        Effect {
            key,
            title: title.into(),
            step: self.finished,
            position,
            measured: (0, steps),
            before,
            after: None,
            released: None,
        }
    }

    /// Ends the measurement under way with what it has and begins another.
    fn begin(&mut self, open: Open) {
        self.close();
        self.open = Some(open);
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.closed.len() == Self::KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back(open.effect);
    }
}

impl Open {
    const fn new(effect: Effect, flips: Vec<Flip>, warm_up: usize) -> Self {
        Self { effect, flips, warm_up, after: Vec::new(), steps: 0 }
    }
}

fn title(flips: &[Flip]) -> String {
    let one = |flip: &Flip| format!("{} {} → {}", flip.switch, flip.from, flip.to);
    flips.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn medians(steps: &[Measurement]) -> Option<Measurement> {
    let of = |value: fn(&Measurement) -> Bytes| median(steps.iter().map(value));
    Some(Measurement {
        peak_allocated: of(|step| step.peak_allocated)?,
        peak_reserved: of(|step| step.peak_reserved)?,
        stranded: of(|step| step.stranded)?,
        step: median(steps.iter().map(|step| step.step)).unwrap_or(Micros(0)),
        throughput: median_by(steps.iter().map(|step| step.throughput), f64::total_cmp)?,
        loss: median_by(steps.iter().filter_map(|step| step.loss), f32::total_cmp),
    })
}

#[cfg(test)]
mod tests;
