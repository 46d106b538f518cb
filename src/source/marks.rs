//! The moment that memory is shown of while the cursor has not been moved: one with something to see, not the last event.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cursor::LookBack;
use super::ghosts::Ghosts;
use super::picture::{MarkedMoment, Moment};
use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Lab, RunState, View};
use vramlab_recording::Timeline;

/// While a run goes on, the mark moves to a later step at most this often: what changes faster can't be read, and costs bytes.
const BEAT: Duration = Duration::from_millis(1000);
/// How often the last event is shown before the first step has ended.
const REFRESH: Duration = Duration::from_millis(250);
/// A mark stays for so many times as long as it took to make: less than a hundredth of a processor goes into marks.
const REST: u32 = 100;
/// It stays no longer than so, whatever it took: on a busy machine that is mostly waiting, and what is shown may not fall behind the run.
const LONGEST: Duration = Duration::from_secs(3);

/// The mark of one device.
#[derive(Debug)]
pub(super) struct Marks {
    shown: Option<MarkedMoment>,
    /// Made, but what is studied is still of the one shown.
    coming: Option<MarkedMoment>,
    due: Instant,
}

/// What is to be marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedMark {
    /// Nothing: the last event is what there is to see.
    Nothing,
    /// The last event, now and then.
    Now,
    /// The peak of the last step that ended: at this position.
    StepPeak(u64),
    /// A position of what will not go on.
    Still(u64, Moment),
}

impl WantedMark {
    /// Of a run as it stands at its end; `goes_on` where more may happen.
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

    /// Lets go of all: the mark was another device's, or of another history.
    pub fn begin_anew(&mut self) {
        *self = Self::new();
    }

    /// Where the mark is, unless it is the end: what is studied is studied around it.
    pub fn place(&self) -> Option<u64> {
        let newest = self.coming.as_ref().or(self.shown.as_ref())?;
        (newest.moment != Moment::Now).then_some(newest.view.position)
    }

    /// The mark that is shown.
    pub const fn shown(&self) -> Option<&MarkedMoment> {
        self.shown.as_ref()
    }

    /// What is studied is of the mark: it can be shown.
    pub fn show(&mut self) {
        if let Some(coming) = self.coming.take() {
            self.shown = Some(coming);
        }
    }

    /// Marks what is worth showing of a run that `goes_on` or not.
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

/// How long a mark stays that took so long to make.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST).clamp(BEAT, LONGEST)
}

/// `None` where the events up to there are forgotten.
fn view_at(timeline: &mut Timeline, position: u64, device: DeviceIndex) -> Option<View> {
    Some(timeline.at(position)?.lab_mut(device)?.view())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use vramlab_model::{Event, EventKind, Micros};

    /// A run of many steps, put to a timeline and marked after each event; the marks in order.
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
