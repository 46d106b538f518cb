//! Who follows a run without a screen: the same model that screens are drawn from, and a recording where one is wanted.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use color_eyre::eyre::Result;

use super::ghost::Haunted;
use crate::device::Sensors;
use crate::export::Words;
use crate::model::{Event, EventKind, Grouping, Lab, MemoryModel, Micros, Ranks, Remedy, RunState, Study, View};
use crate::session::{self, LabSpec, Pace, Shortage};
use crate::source::Recorder;
use crate::train::{Answer, Observer, SafePoint, TrainError, Trainer};
use crate::tui;
use crate::units::DeviceIndex;
use crate::whatif::Follower;

/// How old what happened may be before a recording has it.
const WRITE: Duration = Duration::from_millis(100);

/// Follows one run.
pub(super) struct Witness {
    shared: Rc<RefCell<Shared>>,
    pace: Option<Pace>,
    sensors: Option<Sensors>,
}

/// What the trainer's observer and its owner share.
struct Shared {
    ranks: Ranks,
    recorder: Option<Recorder>,
    /// What happened since the model looked: during a step it is only kept, so that the step takes no longer.
    events: Vec<Event>,
    /// Another allocator that follows.
    ghost: Option<Follower>,
    looked: Instant,
    now: Micros,
    /// The last step, where it is to be studied.
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

    fn study(&self, lab: &Lab) -> Study {
        let begin = self.before.position();
        let range = begin..begin + self.events.len() as u64;
        Study::of(range.clone(), &self.before, lab.names(), Grouping::Category, |each| {
            range.clone().zip(&self.events).for_each(|(position, event)| each(position, event));
        })
    }
}

impl Shared {
    fn look(&mut self) {
        for event in self.events.drain(..) {
            if let Some(step) = &mut self.step {
                step.observe(&event, self.ranks.lab(DeviceIndex::FIRST));
            }
            self.ranks.apply(&event);
            if let Some(ghost) = &mut self.ghost {
                ghost.apply(&event);
            }
            if let Some(recorder) = &mut self.recorder {
                recorder.push(&event);
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.close_frame();
        }
        self.looked = Instant::now();
    }

    fn tell(&mut self, kind: EventKind) {
        self.events.push(Event::new(self.now, kind));
    }
}

impl Witness {
    /// Somebody who knows what is going to be trained.
    pub fn new(spec: &LabSpec, recorder: Option<Recorder>, ghost: Option<Follower>) -> Self {
        let shared = Shared {
            ranks: Ranks::default(),
            recorder,
            events: session::prologue(spec),
            ghost,
            looked: Instant::now(),
            now: Micros(0),
            step: None,
        };
        Self { shared: Rc::new(RefCell::new(shared)), pace: Some(spec.pace()), sensors: None }
    }

    /// The same who keeps the last step, to be studied.
    pub fn keeping_a_step(self) -> Self {
        self.shared.borrow_mut().step = Some(LastStep::default());
        self
    }

    /// What the last step did to memory, where it was kept.
    pub fn study(&self) -> Option<Study> {
        let mut shared = self.shared.borrow_mut();
        shared.look();
        let (step, lab) = (shared.step.as_ref()?, shared.ranks.lab(DeviceIndex::FIRST)?);
        Some(step.study(lab))
    }

    /// What the trainer tells.
    pub fn observer(&mut self) -> Box<dyn Observer> {
        let pace = self.pace.take().unwrap_or_else(|| Pace::new(session::Speed::Max));
        Box::new(Ears { shared: Rc::clone(&self.shared), pace })
    }

    /// The model is made.
    pub fn built(&mut self, spec: &LabSpec, trainer: &Trainer) {
        self.sensors = trainer.sensors();
        let mut shared = self.shared.borrow_mut();
        shared.tell(EventKind::About(Arc::new(spec.about(Some(trainer)))));
        shared.tell(EventKind::Run(RunState::Running));
        shared.look();
    }

    /// A step is over: what happened in it becomes known.
    pub fn look(&mut self, trainer: &Trainer) {
        let mut shared = self.shared.borrow_mut();
        shared.now = trainer.memory().now();
        if let Some(reading) = self.sensors.as_ref().and_then(Sensors::take) {
            shared.tell(EventKind::Reading(Arc::new(reading)));
        }
        shared.look();
    }

    /// A step failed. Where memory ran out, what would have helped is tried.
    pub fn failed(&mut self, spec: &LabSpec, trainer: &Trainer, error: &TrainError, steps: u64) {
        let mut shared = self.shared.borrow_mut();
        if matches!(error, TrainError::OutOfMemory { .. }) {
            let shortage = Shortage {
                spec: spec.clone(),
                setup: spec.setup(),
                memory: trainer.device_info().memory,
                libraries: trainer.libraries(),
                steps,
            };
            shared.tell(EventKind::Run(RunState::OutOfMemory));
            shared.tell(EventKind::Remedied(shortage.try_remedies().into()));
        } else {
            shared.tell(EventKind::Run(RunState::StepFailed(error.to_string().into())));
        }
        shared.look();
    }

    /// What another allocator has come to, where one follows.
    pub fn ghost(&self) -> Option<Haunted> {
        let mut shared = self.shared.borrow_mut();
        shared.look();
        shared.ghost.as_ref().map(Haunted::of)
    }

    /// What is known at the end; the recording is whole then.
    ///
    /// # Errors
    /// Where a recording could not be written.
    pub fn finish(self) -> Result<View> {
        let mut shared = self.shared.borrow_mut();
        let running = shared.ranks.lab(DeviceIndex::FIRST).is_some_and(|lab| *lab.run() == RunState::Running);
        if running {
            shared.tell(EventKind::Run(RunState::Finished));
        }
        shared.look();
        if let Some(recorder) = shared.recorder.take() {
            recorder.finish()?;
        }
        Ok(shared.ranks.lab_mut(DeviceIndex::FIRST).map(Lab::view).unwrap_or_default())
    }
}

/// The trainer's end.
struct Ears {
    shared: Rc<RefCell<Shared>>,
    pace: Pace,
}

impl Observer for Ears {
    fn event(&mut self, event: Event) {
        self.pace.observe(&event);
        let mut shared = self.shared.borrow_mut();
        shared.now = event.time;
        shared.events.push(event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        let mut shared = self.shared.borrow_mut();
        if shared.recorder.is_some() && shared.looked.elapsed() >= WRITE {
            shared.look();
        }
        drop(shared);
        self.pace.safe_point(point)
    }
}

/// How findings and autopsies are told on the command line.
pub(super) const WORDS: Words = Words { flag, autopsy: |view| tui::autopsy_lines(view, usize::MAX, flag) };

/// What to give on the command line for a remedy.
pub(super) fn flag(remedy: &Remedy) -> String {
    session::in_flags(remedy)
}
