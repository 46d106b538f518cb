//! Followers of a run without a screen: a recording, a ghost, and the last step, kept for study.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use color_eyre::eyre::Result;

use super::ghost::GhostFigures;
use crate::model::{Event, EventKind, Grouping, Lab, MemoryModel, Study, View};
use crate::session::{Follow, Listener};
use crate::source::Recorder;
use crate::whatif::Follower;

/// A recording gets events at most this much later than they happen.
const WRITE: Duration = Duration::from_millis(100);

/// The followers of one run. A copy is another handle to the same followers.
#[derive(Clone)]
pub(super) struct Followers(Rc<RefCell<FollowerSet>>);

struct FollowerSet {
    recorder: Option<Recorder>,
    ghost: Option<Follower>,
    step: Option<LastStep>,
}

/// The events of a step, and memory as it was before them.
#[derive(Default)]
struct LastStep {
    before: MemoryModel,
    events: Vec<Event>,
}

impl LastStep {
    fn observe(&mut self, event: &Event, lab: Option<&Lab>) {
        if matches!(event.kind, EventKind::StepBegin { .. }) {
            self.before = lab.map(|lab| lab.memory().clone()).unwrap_or_default();
            self.events.clear();
        }
        self.events.push(event.clone());
    }

    fn study(&self, view: &View) -> Study {
        let begin = self.before.position();
        let range = begin..begin + self.events.len() as u64;
        Study::of(range.clone(), &self.before, &view.names, Grouping::Category, |each| {
            range.clone().zip(&self.events).for_each(|(position, event)| each(position, event));
        })
    }
}

impl Followers {
    /// A recording and another allocator, as far as they are given.
    pub fn new(recorder: Option<Recorder>, ghost: Option<Follower>) -> Self {
        Self(Rc::new(RefCell::new(FollowerSet { recorder, ghost, step: None })))
    }

    /// The same followers, which also keep the last step.
    pub fn keeping_a_step(self) -> Self {
        self.0.borrow_mut().step = Some(LastStep::default());
        self
    }

    /// Whether one of the followers is a recording.
    pub fn record(&self) -> bool {
        self.0.borrow().recorder.is_some()
    }

    /// The followers as a listener for a run.
    pub fn listener(&self) -> Listener {
        Box::new(self.clone())
    }

    /// What the last step did to memory, if it was kept; `view` is the end of that step.
    pub fn study(&self, view: &View) -> Option<Study> {
        self.0.borrow().step.as_ref().map(|step| step.study(view))
    }

    /// The figures of the other allocator, if one follows.
    pub fn ghost(&self) -> Option<GhostFigures> {
        self.0.borrow().ghost.as_ref().map(GhostFigures::of)
    }

    /// Ends the run, so that the recording is complete.
    ///
    /// # Errors
    /// If the recording could not be written.
    pub fn finish(self) -> Result<()> {
        let recorder = self.0.borrow_mut().recorder.take();
        recorder.map_or(Ok(()), |recorder| Ok(recorder.finish().map(drop)?))
    }
}

impl Follow for Followers {
    fn event(&mut self, event: &Event, lab: Option<&Lab>) {
        let mut kept = self.0.borrow_mut();
        if let Some(step) = &mut kept.step {
            step.observe(event, lab);
        }
        if let Some(ghost) = &mut kept.ghost {
            ghost.apply(event);
        }
        if let Some(recorder) = &mut kept.recorder {
            recorder.push(event);
        }
    }

    fn caught_up(&mut self) {
        if let Some(recorder) = &mut self.0.borrow_mut().recorder {
            recorder.close_frame();
        }
    }

    fn patience(&self) -> Option<Duration> {
        self.0.borrow().recorder.is_some().then_some(WRITE)
    }
}
