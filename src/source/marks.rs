//! The mark: the moment whose memory is shown while the cursor has not been moved. It has more to show than the last event.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cursor::LookBack;
use super::ghosts::Ghosts;
use super::picture::{MarkedMoment, Moment};
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Lab, RunState, View};
use vramlab_recording::Timeline;

/// In a run that goes on the mark moves at most this often, because faster changes can't be read and cost bytes.
const BEAT: Duration = Duration::from_millis(1000);
/// How often the last event is shown before the first step has ended.
const REFRESH: Duration = Duration::from_millis(250);
/// A mark stays this many times as long as it took to make, so that marks take less than a hundredth of a processor.
const REST: u32 = 100;
/// The longest time that a mark stays. On a busy machine most of its making is waiting, and the screen must not fall
/// behind the run.
const LONGEST: Duration = Duration::from_secs(3);

/// The mark of one device.
#[derive(Debug)]
pub(super) struct Marks {
    shown: Option<MarkedMoment>,
    /// A new mark that is ready while the study is still about the old one.
    coming: Option<MarkedMoment>,
    due: Instant,
}

/// The moment to be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedMark {
    /// None: the last event is worth showing.
    Nothing,
    /// The last event, from time to time.
    Now,
    /// The peak of the last step that ended, at this position.
    StepPeak(u64),
    /// A position in a run that has ended.
    Still(u64, Moment),
}

impl WantedMark {
    /// The mark for a run at its current end. `goes_on` tells if more may happen.
    fn of(lab: &Lab, goes_on: bool) -> Self {
        if !goes_on {
            return match (lab.autopsy(), lab.peak_position()) {
                (Some(autopsy), _) => Self::Still(autopsy.position + 1, Moment::Failure),
                (None, 0) => Self::Nothing,
                (None, peak) => Self::Still(peak, Moment::RunPeak),
            };
        }
        match (lab.run(), lab.last_peak()) {
            (RunState::Running | RunState::Finished, Some(peak)) => Self::StepPeak(peak),
            (RunState::Running, None) => Self::Now,
            _ => Self::Nothing,
        }
    }
}

impl Marks {
    pub fn new() -> Self {
        Self { shown: None, coming: None, due: Instant::now() }
    }

    /// Drops the marks, because they belong to another device or history.
    pub fn begin_anew(&mut self) {
        *self = Self::new();
    }

    /// The mark's position, unless it is the end. Studies are made around it.
    pub fn place(&self) -> Option<u64> {
        let newest = self.coming.as_ref().or(self.shown.as_ref())?;
        (newest.moment != Moment::Now).then_some(newest.view.position)
    }

    /// The mark on screen.
    pub const fn shown(&self) -> Option<&MarkedMoment> {
        self.shown.as_ref()
    }

    /// Shows the new mark, because the study is now about it.
    pub fn show(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.shown = Some(coming);
        }
    }

    /// Marks the moment worth showing, for a run that `goes_on` or has ended.
    pub fn renew(&mut self, timeline: &mut Timeline, device: DeviceIndex, goes_on: bool, ghosts: &mut Ghosts) {
        let Some(lab) = timeline.now().lab(device) else { return self.begin_anew() };
        let (wanted, last_step) = (WantedMark::of(lab, goes_on), lab.last_profile().cloned());
        let newest = self.coming.as_ref().or(self.shown.as_ref());
        match wanted {
            WantedMark::Nothing => self.begin_anew(),
            WantedMark::Now => {
                if newest.is_none() || Instant::now() >= self.due {
                    let Some(view) = timeline.now().lab_mut(device).map(Lab::view).map(Arc::new) else { return };
                    let ghost = ghosts.at_mark(timeline, view.position, &view.segments);
                    self.shown = Some(MarkedMoment { moment: Moment::Now, view, step: None, ghost });
                    self.due = Instant::now() + REFRESH;
                }
            }
            WantedMark::StepPeak(position) => {
                let of_a_step = newest.filter(|mark| mark.moment == Moment::StepPeak);
                let waits = self.coming.is_some() || Instant::now() < self.due;
                if of_a_step.is_some_and(|mark| mark.view.position == position || waits) {
                    return;
                }
                let began = Instant::now();
                let Some(view) = view_at(timeline, position, device) else { return self.begin_anew() };
                let ghost = ghosts.at_mark(timeline, position, &view.segments);
                let mark = MarkedMoment { moment: Moment::StepPeak, view: Arc::new(view), step: last_step, ghost };
                match of_a_step.is_some() {
                    true => self.coming = Some(mark),
                    false => self.shown = Some(mark),
                }
                self.due = Instant::now() + rest(began.elapsed());
            }
            WantedMark::Still(position, moment) => {
                if newest.is_some_and(|mark| (mark.view.position, mark.moment) == (position, moment)) {
                    return;
                }
                let back = LookBack::at(timeline, position, device);
                let mark = back.and_then(|mut back| {
                    let step = back.step(timeline, device);
                    let view = Arc::new(back.view(timeline, device)?);
                    Some(MarkedMoment { moment, view, step, ghost: None })
                });
                (self.shown, self.coming) = (mark, None);
            }
        }
    }
}

/// How long a mark stays, given the time it took to make.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST).clamp(BEAT, LONGEST)
}

/// The view at a position; `None` if the events before it are forgotten.
fn view_at(timeline: &mut Timeline, position: u64, device: DeviceIndex) -> Option<View> {
    Some(timeline.at(position)?.lab_mut(device)?.view())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use vramlab_model::{Event, EventKind, Micros};

    /// A run of many steps, added to a timeline and marked after each event. Returns the marks in order.
    fn marked(goes_on: bool, end: RunState) -> (Timeline, Vec<MarkedMoment>) {
        let mut timeline = Timeline::default();
        let (mut marks, mut ghosts, mut seen) = (Marks::new(), Ghosts::new(), Vec::<MarkedMoment>::new());
        let events = synthetic::training_run();
        let last = events.last().map(|event| event.time).unwrap();
        let begin = Event::new(Micros(0), EventKind::Run(RunState::Running));
        for event in [&begin].into_iter().chain(&events).chain([&Event::new(last, EventKind::Run(end))]) {
            timeline.push(event);
            marks.due = Instant::now();
            marks.renew(&mut timeline, DeviceIndex::FIRST, goes_on, &mut ghosts);
            marks.show();
            let news = |seen: &MarkedMoment, mark: &MarkedMoment| {
                (seen.moment, seen.view.position) != (mark.moment, mark.view.position)
            };
            if let Some(mark) = marks.shown()
                && seen.last().is_none_or(|last| news(last, mark))
            {
                seen.push(mark.clone());
            }
        }
        (timeline, seen)
    }

    #[test]
    fn a_run_that_goes_on_is_marked_at_the_peak_of_every_step_that_ended() {
        let (mut timeline, seen) = marked(true, RunState::Running);
        let history = timeline.now().lab(DeviceIndex::FIRST).unwrap().history().clone();
        let peaks: Vec<&MarkedMoment> = seen.iter().filter(|mark| mark.moment == Moment::StepPeak).collect();
        assert!(peaks.len() > 20, "{} marks", peaks.len());
        for mark in peaks {
            let column = history.around(mark.view.position).unwrap();
            assert_eq!(mark.view.ledger.allocated(), column.peak, "step {}", column.step);
            assert_eq!(mark.view.steps.finished, column.step, "the state is that inside the step");
            assert_eq!(mark.step.as_ref().map(|step| step.step), Some(column.step), "and so is the curve");
        }
    }

    #[test]
    fn a_mark_rests_by_what_it_took_and_never_falls_behind() {
        let of = |milliseconds| rest(Duration::from_millis(milliseconds));
        assert_eq!(of(0), BEAT);
        assert_eq!(of(20), Duration::from_secs(2));
        assert_eq!(of(400), LONGEST);
    }

    #[test]
    fn what_is_over_is_marked_at_the_peak_of_all_and_what_is_paused_nowhere() {
        let (mut timeline, seen) = marked(false, RunState::Running);
        let peak = timeline.now().lab_mut(DeviceIndex::FIRST).unwrap().view();
        let last = seen.last().unwrap();
        assert_eq!((last.moment, last.view.position), (Moment::RunPeak, peak.peak_position));
        assert_eq!(last.view.ledger.allocated(), peak.peak_allocated);

        let mut marks = Marks::new();
        timeline.push(&Event::new(peak.time, EventKind::Run(RunState::Paused)));
        marks.renew(&mut timeline, DeviceIndex::FIRST, true, &mut Ghosts::new());
        assert!(marks.shown().is_none());
    }
}
