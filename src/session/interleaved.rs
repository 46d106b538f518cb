//! Orders by time what several ranks did in a step that each computed by itself.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use vramlab_model::{Event, Micros};
use vramlab_train::SafePoint;

/// An event, and the safe point after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SafePointEvent {
    pub event: Event,
    pub point: Option<SafePoint>,
}

/// Interleaves the events of several runs. Each run has a clock of its own. Between steps all clocks are set to the
/// latest, because no rank begins a step before the others have ended theirs.
#[derive(Debug, Default)]
pub(super) struct EventInterleaver {
    runs: Vec<RunQueue>,
    /// The number of runs that have ended their step, and whose events up to there are still stored.
    ended: usize,
    /// The number of runs that have not reached the end of the current step, if known.
    awaited: usize,
}

#[derive(Debug, Default)]
struct RunQueue {
    pending: VecDeque<SafePointEvent>,
    /// The time of its last event.
    reached: Micros,
    /// How far its clock is behind.
    behind: u64,
}

impl EventInterleaver {
    /// Adds a run and returns its number.
    pub fn add(&mut self) -> usize {
        self.runs.push(RunQueue::default());
        self.runs.len() - 1
    }

    /// Adds the next event of a run.
    pub fn push(&mut self, run: usize, mut event: Event) {
        let of = &mut self.runs[run];
        event.time.0 += of.behind;
        of.reached = event.time;
        of.pending.push_back(SafePointEvent { event, point: None });
    }

    /// Notes that a run has reached a safe point.
    pub fn mark(&mut self, run: usize, point: SafePoint) {
        if let Some(last) = self.runs[run].pending.back_mut() {
            let ends = usize::from(point == SafePoint::Step);
            self.ended += ends;
            self.awaited = self.awaited.saturating_sub(ends);
            last.point = Some(point);
        }
    }

    /// Notes that `runs` runs begin a step, whose events are passed on before all have ended it.
    pub fn await_steps(&mut self, runs: usize) {
        self.awaited = runs;
    }

    /// The next of all events. A step ends where the last run's step ends.
    pub fn next(&mut self) -> Option<SafePointEvent> {
        let fronts = self.runs.iter().enumerate().filter_map(|(run, of)| Some((of.pending.front()?.event.time, run)));
        let (_, run) = fronts.min()?;
        let mut happened = self.runs[run].pending.pop_front()?;
        if happened.point == Some(SafePoint::Step) {
            self.ended -= 1;
            if self.ended > 0 || self.awaited > 0 {
                happened.point = Some(SafePoint::Op);
            }
        }
        Some(happened)
    }

    /// The next of all events up to `time`.
    pub fn next_until(&mut self, time: Micros) -> Option<SafePointEvent> {
        let fronts = self.runs.iter().filter_map(|of| Some(of.pending.front()?.event.time));
        if fronts.min()? > time { None } else { self.next() }
    }

    /// The time of a run's last event.
    pub fn reached(&self, run: usize) -> Micros {
        self.runs[run].reached
    }

    /// Sets all clocks to the latest.
    pub fn align(&mut self) {
        let latest = self.runs.iter().map(|of| of.reached).max().unwrap_or_default();
        for of in &mut self.runs {
            of.behind += latest.0 - of.reached.0;
            of.reached = latest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_model::EventKind;

    fn times(interleaved: &mut EventInterleaver) -> Vec<(u64, Option<SafePoint>)> {
        std::iter::from_fn(|| interleaved.next()).map(|happened| (happened.event.time.0, happened.point)).collect()
    }

    #[test]
    fn runs_begin_each_step_together_and_it_ends_with_the_last() {
        let mut interleaved = EventInterleaver::default();
        let (quick, slow) = (interleaved.add(), interleaved.add());
        let mut step = |begun: [u64; 2]| {
            for (run, begun, took) in [(quick, begun[0], [1, 3]), (slow, begun[1], [2, 7])] {
                for (took, point) in took.into_iter().zip([SafePoint::Op, SafePoint::Step]) {
                    interleaved.push(run, Event::new(Micros(begun + took), EventKind::OpEnd));
                    interleaved.mark(run, point);
                }
            }
            let times = times(&mut interleaved);
            interleaved.align();
            times
        };
        let (op, end) = (Some(SafePoint::Op), Some(SafePoint::Step));
        assert_eq!(step([0, 0]), [(1, op), (2, op), (3, op), (7, end)]);
        assert_eq!(step([3, 7]), [(8, op), (9, op), (10, op), (14, end)], "four more each time that it waited");
    }
}
