//! A lab without a screen, a thread or a person: one run from a clean state, step by step, with the model that follows it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::force::{flip, note_first_values};
use super::{BuildError, DeviceChoice, LabSpec, Pace, Scene, Setup, Shortage, Switch, prologue, switches};
use vramlab_allocator::Statistics;
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::Sensors;
use vramlab_model::{Event, EventKind, FlipTrials, Lab, Micros, Ranks, RunState, StepReport, View};
use vramlab_train::{Answer, Observer, SafePoint, TrainError, Trainer};

/// A run that advances step by step. It is the same on every machine, except for the times of a real device.
pub struct Headless {
    spec: LabSpec,
    in_force: Setup,
    trainer: Trainer,
    sensors: Option<Sensors>,
    followed: Rc<RefCell<RunModel>>,
}

/// A listener that follows a run beside the model.
pub trait Follow {
    /// The next event. `lab` is the model of its device before the event.
    fn event(&mut self, event: &Event, lab: Option<&Lab>);

    /// Called once all events so far have been shown.
    fn caught_up(&mut self) {}

    /// How old an event may be before it is shown in the middle of a step. `None` shows events after the step, which
    /// then takes no longer than without a listener.
    fn patience(&self) -> Option<Duration> {
        None
    }
}

impl<F: FnMut(&Event)> Follow for F {
    fn event(&mut self, event: &Event, _: Option<&Lab>) {
        self(event);
    }
}

/// Any listener to a run.
pub type Listener = Box<dyn Follow>;

/// A run whose model could not be built.
#[derive(Debug)]
pub struct NotMade {
    /// The reason.
    pub error: BuildError,
    /// What was known at that time.
    pub view: View,
}

/// The model of a run, and the events it has not seen yet: during a step events are only stored.
struct RunModel {
    events: Vec<Event>,
    now: Micros,
    device: DeviceIndex,
    ranks: Ranks,
    listener: Option<Listener>,
    shown: Instant,
}

impl RunModel {
    fn emit(&mut self, kind: EventKind) {
        let event = Event { device: self.device, ..Event::new(self.now, kind) };
        self.events.push(event);
    }

    fn catch_up(&mut self) {
        for event in self.events.drain(..) {
            if let Some(listener) = &mut self.listener {
                listener.event(&event, self.ranks.lab(event.device));
            }
            self.ranks.apply(&event);
        }
        if let Some(listener) = &mut self.listener {
            listener.caught_up();
        }
        self.shown = Instant::now();
    }

    fn view(&mut self) -> View {
        self.ranks.lab_mut(self.device).map(Lab::view).unwrap_or_default()
    }
}

/// The trainer's observer.
struct HeadlessObserver {
    followed: Rc<RefCell<RunModel>>,
    pace: Pace,
}

impl Observer for HeadlessObserver {
    fn event(&mut self, event: Event) {
        self.pace.observe(&event);
        let mut followed = self.followed.borrow_mut();
        followed.now = event.time;
        followed.events.push(event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        let mut followed = self.followed.borrow_mut();
        let patience = followed.listener.as_ref().and_then(|listener| listener.patience());
        if patience.is_some_and(|patience| followed.shown.elapsed() >= patience) {
            followed.catch_up();
        }
        drop(followed);
        self.pace.safe_point(point)
    }
}

impl Headless {
    /// Builds the model. No step has run yet.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn start(spec: LabSpec) -> Result<Self, BuildError> {
        Self::start_before(spec, None)
    }

    /// Like [`Headless::start`], with a listener that gets all events from the first on.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn start_before(spec: LabSpec, listener: Option<Listener>) -> Result<Self, BuildError> {
        Self::make(spec, listener).map_err(|not_made| not_made.error)
    }

    /// Like [`Headless::start_before`]; if the model can't be built, the error includes what was known.
    ///
    /// # Errors
    /// [`NotMade`].
    pub fn make(spec: LabSpec, listener: Option<Listener>) -> Result<Self, Box<NotMade>> {
        let followed = RunModel {
            events: prologue(&spec),
            now: Micros(0),
            device: spec.index,
            ranks: Ranks::default(),
            listener,
            shown: Instant::now(),
        };
        let followed = Rc::new(RefCell::new(followed));
        let trainer = match spec.build(Box::new(HeadlessObserver { followed: Rc::clone(&followed), pace: spec.pace() }))
        {
            Ok(trainer) => trainer,
            Err(error) => {
                let mut followed = followed.borrow_mut();
                followed.catch_up();
                return Err(Box::new(NotMade { error, view: followed.view() }));
            }
        };
        let headless = Self { in_force: spec.setup(), sensors: trainer.sensors(), spec, trainer, followed };
        headless.emit(EventKind::About(Arc::new(headless.spec.about(Some(&headless.trainer)))));
        note_first_values(&headless.trainer, &headless.spec);
        headless.emit_settings();
        headless.emit(EventKind::Run(RunState::Running));
        headless.catch_up();
        Ok(headless)
    }

    /// Begins another run of `spec` with the same listener.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn begin_anew(&mut self, spec: LabSpec) -> Result<Self, BuildError> {
        let listener = self.followed.borrow_mut().listener.take();
        Self::start_before(spec, listener)
    }

    /// Adds events that only the driver of the run knows of.
    pub fn announce(&mut self, kind: EventKind) {
        self.emit(kind);
        self.catch_up();
    }

    /// Trains one step. If memory runs out, the run is left like a lab that stopped there: [`Headless::view`] has the
    /// autopsy, and another step may follow.
    ///
    /// # Errors
    /// The error that ended the step.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        if !self.is_running() {
            self.emit(EventKind::Run(RunState::Running));
        }
        let stepped = self.trainer.step();
        let batch = self.trainer.config().batch;
        if batch != self.in_force.config.batch {
            self.in_force.config.batch = batch;
            self.emit_settings();
            self.emit(EventKind::About(Arc::new(self.spec.about(Some(&self.trainer)))));
        }
        if let Some(reading) = self.sensors.as_ref().and_then(Sensors::take) {
            self.emit(EventKind::Reading(Arc::new(reading)));
        }
        match &stepped {
            Ok(_) => {}
            Err(TrainError::OutOfMemory { .. }) => self.emit(EventKind::Run(RunState::OutOfMemory)),
            Err(error) => self.emit(EventKind::Run(RunState::StepFailed(error.to_string().into()))),
        }
        self.catch_up();
        stepped
    }

    /// Sets a switch for the following steps, as a key or a line in the lab would.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the value, or why it is not possible here.
    pub fn set(&mut self, switch: Switch, value: &str) -> Result<(), String> {
        let mut wanted = self.in_force.clone();
        switch.set(&mut wanted, value)?;
        self.in_force = flip(&mut self.trainer, &self.in_force, &wanted).map_err(|lost| lost.to_string())?;
        self.emit_settings();
        self.emit(EventKind::About(Arc::new(self.spec.about(Some(&self.trainer)))));
        self.catch_up();
        if switch.value(&self.in_force) == switch.value(&wanted) {
            return Ok(());
        }
        let why = self.view().log.last().map(|line| line.text.to_string());
        Err(why.unwrap_or_else(|| format!("{} can't be {value} here", switch.label())))
    }

    /// Releases cached segments, between steps.
    pub fn empty_cache(&mut self) {
        self.trainer.empty_cache();
        self.catch_up();
    }

    /// `torch.cuda.reset_peak_memory_stats()`, between steps.
    pub fn reset_peaks(&mut self) {
        self.trainer.reset_peak_memory_stats();
        self.catch_up();
    }

    /// Tries remedies for a failed request. The view contains them from then on.
    pub fn try_remedies(&mut self) {
        let tried = self.shortage().try_remedies();
        self.emit(EventKind::Remedied(tried.into()));
        self.catch_up();
    }

    /// The current run, for trials beside it: [`Shortage::weigh`] on another thread, then [`Headless::weighed`].
    #[must_use]
    pub fn shortage(&self) -> Shortage {
        Shortage {
            spec: self.spec.clone(),
            setup: self.in_force.clone(),
            memory: self.trainer.device_info().memory,
            libraries: self.trainer.libraries(),
            steps: self.trainer.steps(),
        }
    }

    /// Notes the trials of flips. The view, and a recording, contain them from then on.
    pub fn weighed(&mut self, weighed: FlipTrials) {
        self.emit(EventKind::Weighed(Arc::new(weighed)));
        self.catch_up();
    }

    /// Marks the run as finished, if nothing else ended it.
    pub fn finish(&mut self) {
        if self.is_running() {
            self.emit(EventKind::Run(RunState::Finished));
        }
        self.catch_up();
    }

    /// The current view.
    pub fn view(&mut self) -> View {
        self.followed.borrow_mut().view()
    }

    fn is_running(&self) -> bool {
        let followed = self.followed.borrow();
        followed.ranks.lab(followed.device).is_some_and(|lab| *lab.run() == RunState::Running)
    }

    /// `torch.cuda.memory_stats()` of the run.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.trainer.statistics()
    }

    /// The description of the run.
    #[must_use]
    pub const fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// The switches in force.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.in_force
    }

    /// The trainer.
    #[must_use]
    pub const fn trainer(&self) -> &Trainer {
        &self.trainer
    }

    /// True if its times are simulated.
    #[must_use]
    pub const fn is_simulated(&self) -> bool {
        matches!(self.spec.device, DeviceChoice::Sim(_))
    }

    fn emit_settings(&self) {
        let scene = Scene::of(&self.spec, &self.in_force.config);
        let settings = switches::settings(&self.in_force, &self.in_force, &scene);
        self.emit(EventKind::Settings(Arc::new(settings)));
    }

    fn emit(&self, kind: EventKind) {
        self.followed.borrow_mut().emit(kind);
    }

    fn catch_up(&self) {
        self.followed.borrow_mut().catch_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::Bytes;
    use vramlab_model::AllocatorState;

    fn switch(word: &str) -> Switch {
        Switch::named(word).unwrap()
    }

    #[test]
    fn the_model_has_the_allocators_figures_after_every_step_and_flip() {
        let mut run = Headless::start(LabSpec::on_h200("gpt-mini")).unwrap();
        let same = |run: &mut Headless| {
            let (view, statistics) = (run.view(), run.statistics());
            assert_eq!(i64::try_from(view.ledger.reserved().get()), Ok(statistics.reserved_bytes.all.current));
            assert_eq!(i64::try_from(view.peak_allocated.get()), Ok(statistics.allocated_bytes.all.peak));
            assert_eq!(view.malformed, 0);
        };
        run.step().unwrap();
        same(&mut run);
        run.set(switch("ckpt"), "on").unwrap();
        run.step().unwrap();
        same(&mut run);
        let before = run.view().ledger;
        run.empty_cache();
        same(&mut run);
        let view = run.view();
        assert_eq!(view.ledger.reserved(), before.reserved() - before.releasable);
        assert_eq!(view.settings.get("ckpt").unwrap().value.as_ref(), "on");
        assert_eq!((view.steps.finished, view.run), (2, RunState::Running));
    }

    #[test]
    fn reset_peaks_are_the_allocators_and_the_runs_stay() {
        let state = Rc::new(RefCell::new(AllocatorState::new()));
        let hears = Rc::clone(&state);
        let listener: Listener = Box::new(move |event: &Event| hears.borrow_mut().apply(event));
        let mut run = Headless::start_before(LabSpec::on_h200("gpt-mini"), Some(listener)).unwrap();
        run.step().unwrap();
        let whole = run.view();
        assert!(whole.since_reset.is_none() && whole.max_memory_allocated() == whole.peak_allocated);
        run.reset_peaks();
        let (view, now) = (run.view(), run.view().ledger);
        assert_eq!((view.max_memory_allocated(), view.max_memory_reserved()), (now.allocated(), now.reserved()));
        run.set(switch("batch"), "1").unwrap();
        run.empty_cache();
        run.step().unwrap();
        let (view, statistics) = (run.view(), run.statistics());
        let bytes = |bytes: Bytes| i64::try_from(bytes.get()).unwrap();
        assert_eq!(bytes(view.max_memory_allocated()), statistics.allocated_bytes.all.peak);
        assert_eq!(bytes(view.max_memory_reserved()), statistics.reserved_bytes.all.peak);
        assert!(view.max_memory_allocated() < view.peak_allocated, "a smaller batch has a lower peak");
        assert_eq!((view.peak_allocated, view.peak_reserved), (whole.peak_allocated, whole.peak_reserved));
        let peaks = |statistics: &Statistics| {
            let entries = statistics.entries().into_iter();
            entries.filter(|(name, _)| name.ends_with(".peak")).collect::<Vec<_>>()
        };
        assert_eq!(peaks(state.borrow().statistics()), peaks(&statistics), "all peaks of memory_stats()");
    }

    #[test]
    fn a_value_that_is_none_changes_nothing_and_says_so() {
        let mut run = Headless::start(LabSpec::on_h200("gpt-mini")).unwrap();
        for (word, value) in [("ckpt", "sometimes"), ("alloc-conf", "no_such_thing:1")] {
            assert!(!run.set(switch(word), value).unwrap_err().is_empty(), "{word}");
        }
        assert_eq!(*run.setup(), run.spec().setup());
    }

    #[test]
    fn out_of_memory_ends_a_step_and_not_the_run() {
        let mut run = Headless::start(LabSpec::on_h200("gpt-mini")).unwrap();
        run.step().unwrap();
        let held = run.view().ledger.reserved();
        run.set(switch("limit"), &(held - Bytes::mib(20)).to_string()).unwrap();
        run.empty_cache();
        assert!(matches!(run.step(), Err(TrainError::OutOfMemory { .. })));
        run.try_remedies();
        let view = run.view();
        assert_eq!(view.run, RunState::OutOfMemory);
        assert!(view.autopsy.is_some_and(|autopsy| !autopsy.remedied.is_empty()));
        run.set(switch("limit"), "").unwrap();
        run.step().unwrap();
        assert_eq!(run.view().run, RunState::Running);
    }
}
