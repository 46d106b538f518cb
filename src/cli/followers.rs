//! What follows a run without a screen: a recording, a ghost, and the last step, to be studied.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use color_eyre::eyre::Result;

use super::ghost::GhostFigures;
use crate::model::{Event, EventKind, Grouping, Lab, MemoryModel, Study, View};
use crate::session::{Follow, Listener};
use crate::source::Recorder;
use crate::whatif::Follower;

/// How old what happened may be before a recording has it.
const WRITE: Duration = Duration::from_millis(100);

/// Those of one run. A copy is another handle of the same.
#[derive(Clone)]
pub(super) struct Followers(Rc<RefCell<FollowerSet>>);

struct FollowerSet {
    recorder: Option<Recorder>,
    ghost: Option<Follower>,
    step: Option<LastStep>,
}

/// The events of a step, and memory as they found it.
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
    /// A recording and another allocator, where they are wanted.
    pub fn new(recorder: Option<Recorder>, ghost: Option<Follower>) -> Self {
        Self(Rc::new(RefCell::new(FollowerSet { recorder, ghost, step: None })))
    }

    /// The same, which keep the last step.
    pub fn keeping_a_step(self) -> Self {
        self.0.borrow_mut().step = Some(LastStep::default());
        self
    }

    /// Whether one of them is a recording.
    pub fn record(&self) -> bool {
        self.0.borrow().recorder.is_some()
    }

    /// What they are to a run.
    pub fn listener(&self) -> Listener {
        Box::new(self.clone())
    }

    /// What the last step did to memory, where it was kept; the view is of its end.
    pub fn study(&self, view: &View) -> Option<Study> {
        self.0.borrow().step.as_ref().map(|step| step.study(view))
    }

    /// The figures of the other allocator, where one follows.
    pub fn ghost(&self) -> Option<GhostFigures> {
        self.0.borrow().ghost.as_ref().map(GhostFigures::of)
    }

    /// Nothing more happens: the recording is whole.
    ///
    /// # Errors
    /// Where it could not be written.
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
