//! The gate between a front end and the engine. The engine calls it at every safe point.

mod mode;
mod tries;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use self::mode::Mode;
use super::another_way::another_way;
use super::{Command, Feed, Feeder, FlipDirection, LabSpec, NewRun, Pace, Scene, Setup, Switch, switches};
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::Sensors;
use vramlab_model::{About, Event, EventKind, Micros, RunSettings, RunState};
use vramlab_train::{Answer, Config, Observer, SafePoint};

/// Events are handed on in batches of at least this many, or at the end of a phase if the batch is old.
const BATCH: usize = 512;
/// A batch older than this is handed on at the next safe point, because the screen should not wait for a long op.
const BATCH_AGE: Duration = Duration::from_millis(15);
/// A batch this old is handed on at any op: a recording must have the events of a quarter of a second ago.
const OLDEST: Duration = Duration::from_millis(100);

/// How many steps must run under a configuration before others are tried beside it.
pub(super) const WEIGHED: u64 = 2;

/// Shorter waits are saved up until they are worth waking up for.
const SHORTEST_WAIT: Duration = Duration::from_millis(4);

/// A task for the allocator between two ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    EmptyCache,
    ResetPeaks,
}

/// Commands in, events out. Lives on the engine thread.
pub(super) struct Gate {
    commands: Receiver<Command>,
    feeder: Feeder,
    spec: LabSpec,
    /// The number of devices in the run. The gate's own events are sent for each.
    devices: u16,
    /// Time of the last event, also used for the gate's own events.
    now: Micros,
    batch: Vec<Event>,
    sent: Instant,
    mode: Mode,
    /// True while the model is built: a pause takes effect before the first step.
    making: bool,
    in_force: Setup,
    /// Alive as long as the current configuration is in force.
    standing: Arc<()>,
    wanted: Setup,
    /// A wanted setup that did not come into force. Keys go on from there, or they would reach it again.
    refused: Option<Setup>,
    quit: bool,
    /// Tasks for the allocator at the next safe point, in order.
    chores: VecDeque<Chore>,
    use_processor: bool,
    /// Another run that is to begin, and the reason.
    next: Option<(Arc<LabSpec>, Arc<str>)>,
    held: Duration,
    pace: Pace,
}

impl Gate {
    pub(super) fn new(commands: Receiver<Command>, feeder: Feeder, spec: &LabSpec) -> Self {
        let setup = spec.setup();
        Self {
            commands,
            feeder,
            spec: spec.clone(),
            devices: 1,
            now: Micros(0),
            batch: Vec::with_capacity(2 * BATCH),
            sent: Instant::now(),
            mode: Mode::first(spec),
            making: true,
            wanted: setup.clone(),
            in_force: setup,
            standing: Arc::default(),
            refused: None,
            quit: false,
            chores: VecDeque::new(),
            use_processor: false,
            next: None,
            held: Duration::ZERO,
            pace: spec.pace(),
        }
    }

    /// The setup for the next step.
    pub(super) fn wanted(&self) -> &Setup {
        &self.wanted
    }

    /// The setup of the last step.
    pub(super) fn present(&self) -> &Setup {
        &self.in_force
    }

    /// Notes that `setup` is in force. Wanted values that are not possible are dropped.
    pub(super) fn in_force(&mut self, setup: Setup) {
        self.keep_refused(&setup);
        self.wanted = setup.clone();
        self.in_force = setup;
        self.standing = Arc::default();
        self.tell_settings();
    }

    /// Notes that the program changed its batch by itself. Returns whether it did. A batch that was wanted meanwhile is
    /// still wanted.
    pub(super) fn follow_batch(&mut self, batch: usize) -> bool {
        let before = self.in_force.config.batch;
        if batch == before {
            return false;
        }
        self.in_force.config.batch = batch;
        if self.wanted.config.batch == before {
            self.wanted.config.batch = batch;
        }
        self.tell_settings();
        true
    }

    /// Requests `setup` from the next step on, as a person would.
    pub(super) fn ask_for(&mut self, setup: Setup) {
        self.keep_refused(&setup);
        self.wanted = setup;
        self.tell_settings();
    }

    /// Reports that a run begins: what it trains, and on which device.
    pub(super) fn begin(&mut self, spec: &LabSpec) {
        self.making = true;
        spec.beginning().for_each(|kind| self.tell(kind));
        self.tell(EventKind::Run(RunState::Starting));
        self.tell_settings();
    }

    /// Reports that the run has one more device, and what it trains there.
    pub(super) fn begin_beside(&mut self, spec: &LabSpec) {
        let device = spec.index;
        self.devices = self.devices.max(device.0 + 1);
        let (settings, making) = (EventKind::Settings(Arc::new(self.settings())), EventKind::Run(RunState::Starting));
        for kind in spec.beginning().chain([making, settings]) {
            self.tell_of(device, kind);
        }
    }

    /// Reports a new description of the run and its device.
    pub(super) fn describe(&mut self, about: About) {
        self.tell(EventKind::About(Arc::new(about)));
    }

    /// Hands on the device's sensors, where its readings arrive.
    pub(super) fn watch(&mut self, sensors: Option<Sensors>) {
        self.flush();
        self.send(Feed::Sensors(sensors));
    }

    /// True if the front end is gone, or wants to end the run or start another.
    pub(super) fn ended(&self) -> bool {
        self.quit || self.next.is_some()
    }

    /// True if the front end is gone, or wants to end the lab.
    pub(super) const fn quits(&self) -> bool {
        self.quit
    }

    /// Takes the waiting commands. Returns true if the current step must be abandoned.
    pub(super) fn leaves(&mut self) -> bool {
        self.take_commands();
        self.ended()
    }

    /// The run that is to replace this one, if any, and the reason.
    pub(super) fn take_next(&mut self) -> Option<(Arc<LabSpec>, Arc<str>)> {
        self.next.take().filter(|_| !self.quit)
    }

    /// Ends this run so that another begins.
    pub(super) fn begin_next(&mut self, spec: LabSpec, why: &str) {
        self.chores.clear();
        self.next = Some((Arc::new(spec), why.into()));
    }

    /// Obeys a pause that was requested before the first step.
    pub(super) fn wait_if_asked(&mut self) {
        self.making = false;
        self.take_commands();
        if self.mode == Mode::Paused && !self.ended() {
            self.wait(RunState::Paused);
        }
    }

    fn take_commands(&mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.quit = true;
                    return;
                }
            }
        }
    }

    /// Hands on all events and reports the lab's state.
    pub(super) fn announce(&mut self, state: RunState) {
        self.tell(EventKind::Run(state));
        self.flush();
    }

    /// Waits until a person goes on or quits: after a failed step, or when all steps are done.
    pub(super) fn wait(&mut self, state: RunState) {
        self.wait_each(&[state]);
    }

    /// Like [`Self::wait`], with a state for each device. The last state also applies to all further devices.
    pub(super) fn wait_each(&mut self, states: &[RunState]) {
        let begun = Instant::now();
        self.mode = Mode::Paused;
        for (device, state) in
            (0..self.devices).zip(states.iter().chain(std::iter::repeat(states.last().unwrap_or(&RunState::Paused))))
        {
            self.tell_of(DeviceIndex(device), EventKind::Run(state.clone()));
        }
        self.flush();
        while self.mode == Mode::Paused && !self.ended() {
            self.receive();
            if !self.chores.is_empty() {
                break;
            }
        }
        self.held += begun.elapsed();
        if self.mode != Mode::Paused && !self.ended() {
            self.announce(RunState::Running);
        }
    }

    /// Reports that the device is lost, and waits. Returns true if the processor is to take over, false if the front end quits.
    pub(super) fn offer_processor(&mut self, reason: &str) -> bool {
        self.use_processor = false;
        self.announce(RunState::Lost(reason.into()));
        while !self.use_processor && !self.ended() {
            self.receive();
        }
        if self.ended() {
            return false;
        }
        self.mode = Mode::Running;
        self.chores.clear();
        true
    }

    /// Goes on with another run as `spec` says, and says why: what was known belongs to the old one.
    pub(super) fn begin_anew(&mut self, spec: &LabSpec, why: &str) {
        self.spec = spec.clone();
        (self.in_force, self.wanted) = (spec.setup(), spec.setup());
        self.standing = Arc::default();
        self.pace = spec.pace();
        self.flush();
        self.send(Feed::Sensors(None));
        // Nothing is known any more of devices that the new run may not have.
        for device in 1..std::mem::replace(&mut self.devices, 1) {
            self.tell_of(DeviceIndex(device), EventKind::Begin(Arc::default()));
        }
        self.begin(spec);
        self.tell(EventKind::Note { text: why.into() });
        self.flush();
    }

    /// Takes the next task for the allocator.
    pub(super) fn take_chore(&mut self) -> Option<Chore> {
        self.chores.pop_front()
    }

    /// Adds a task. Adding it twice before it is done counts once.
    fn ask(&mut self, chore: Chore) {
        if !self.chores.contains(&chore) {
            self.chores.push_back(chore);
        }
    }

    fn receive(&mut self) {
        match self.commands.recv() {
            Ok(command) => self.obey(command),
            Err(_) => self.quit = true,
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::EmptyCache => self.ask(Chore::EmptyCache),
            Command::ResetPeaks => self.ask(Chore::ResetPeaks),
            Command::Flip(switch, way) => {
                self.wanted.config = self.flipped(switch, way);
                self.tell_settings();
            }
            Command::Set(switch, text) => match switch.set(&mut self.wanted, &text) {
                Ok(()) => self.tell_settings(),
                Err(why) => {
                    self.tell(EventKind::Notice { text: format!("refused: {why}").into() });
                    self.flush();
                }
            },
            Command::Pause => self.mode = Mode::Paused,
            Command::Resume => self.mode = Mode::Running,
            Command::Advance(size) => self.mode = Mode::Until(size),
            Command::Train(0) => self.mode = Mode::Paused,
            Command::Train(steps) => self.mode = Mode::Steps(steps),
            Command::Begin(NewRun(spec)) => {
                self.mode = Mode::first(&spec);
                self.chores.clear();
                self.next = Some((spec, "started again".into()));
            }
            Command::Lesson(note) => {
                self.tell(EventKind::Lesson(note));
                self.flush();
            }
            Command::NextWay => match another_way(&self.spec, &self.wanted) {
                Ok(next) => {
                    let words = next.words();
                    self.begin_next(next.spec, &words);
                }
                Err(why) => {
                    self.tell(EventKind::Notice { text: format!("refused: {why}").into() });
                    self.flush();
                }
            },
            Command::UseProcessor => self.use_processor = true,
            Command::Quit => self.quit = true,
        }
    }

    fn keep_refused(&mut self, setup: &Setup) {
        if self.wanted != *setup {
            self.refused = Some(self.wanted.clone());
        }
    }

    /// The configuration with a switch flipped: from its refused value, if this switch was refused.
    fn flipped(&mut self, switch: Switch, way: FlipDirection) -> Config {
        let value = self.refused.take().map(|refused| switch.choice(&refused.config));
        let from = value.map_or(self.wanted.config, |refused| switch.with(&self.wanted.config, refused));
        switch.flipped(&from, way)
    }

    fn settings(&self) -> RunSettings {
        switches::settings(&self.in_force, &self.wanted, &Scene::of(&self.spec, &self.wanted.config))
    }

    /// Sends the switches at once, because they are on screen.
    fn tell_settings(&mut self) {
        self.tell(EventKind::Settings(Arc::new(self.settings())));
        self.flush();
    }

    /// Adds an event that the gate knows of and training does not.
    pub(super) fn tell(&mut self, kind: EventKind) {
        for device in 0..self.devices {
            self.tell_of(DeviceIndex(device), kind.clone());
        }
    }

    /// Like [`Self::tell`], for one device.
    pub(super) fn tell_of(&mut self, device: DeviceIndex, kind: EventKind) {
        self.batch.push(Event { device, ..Event::new(self.now, kind) });
    }

    /// True if a task for the allocator is due at this point. A running run empties its cache between two steps, as
    /// programs do, so that the screen can predict what is released. A paused run does so at once; several ranks have
    /// their own moment.
    fn is_due(&self, point: SafePoint) -> bool {
        self.chores.front().is_some_and(|chore| match chore {
            Chore::EmptyCache => point == SafePoint::Step || self.mode == Mode::Paused || self.devices > 1,
            Chore::ResetPeaks => true,
        })
    }

    /// Waits for real time to catch up, and obeys commands meanwhile.
    fn keep_pace(&mut self, point: SafePoint) {
        let mut due = self.pace.due();
        if due > SHORTEST_WAIT {
            self.flush();
        }
        let runs = |gate: &Self| matches!(gate.mode, Mode::Running | Mode::Steps(_)) && !gate.ended();
        while due > SHORTEST_WAIT && runs(self) && !self.is_due(point) {
            match self.commands.recv_timeout(due) {
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.quit = true,
            }
            due = self.pace.due();
        }
    }

    /// Hands on the events so far.
    pub(super) fn flush(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(2 * BATCH));
            self.send(Feed::Events(batch));
        }
        self.sent = Instant::now();
    }

    fn send(&mut self, feed: Feed) {
        if !self.feeder.send(feed) {
            // The receiver is gone.
            self.quit = true;
        }
    }
}

impl Observer for Gate {
    fn event(&mut self, event: Event) {
        // The first device's clock counts for all devices.
        if event.device == DeviceIndex::FIRST {
            self.pace.observe(&event);
        }
        self.now = event.time;
        self.batch.push(event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        let age = self.sent.elapsed();
        let due = self.batch.len() >= BATCH || age >= OLDEST || (point != SafePoint::Op && age >= BATCH_AGE);
        if due {
            self.flush();
        }
        self.take_commands();
        self.keep_pace(point);
        if self.making {
            return if self.ended() { Answer::Stop } else { Answer::Continue };
        }
        if self.mode.arrives(point) {
            self.mode = Mode::Paused;
        }
        if self.mode == Mode::Paused && !self.ended() && self.chores.is_empty() {
            self.wait(RunState::Paused);
        }
        if self.ended() {
            return Answer::Stop;
        }
        match self.is_due(point).then(|| self.take_chore()).flatten() {
            Some(Chore::EmptyCache) => Answer::EmptyCache,
            Some(Chore::ResetPeaks) => Answer::ResetPeaks,
            None => Answer::Continue,
        }
    }

    fn take_held(&mut self) -> Duration {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use vramlab_workload::Catalog;

    #[test]
    fn a_batch_that_the_program_changed_is_in_force_and_one_asked_for_stays_asked_for() {
        let entry = Catalog::with_user_workloads(None).entry("mlp-mini").unwrap();
        let spec = LabSpec { config: Config::new(16), ..LabSpec::new(entry) };
        let (_commands, inbox) = channel();
        let (feeder, _feed) = Feeder::pair(64);
        let mut gate = Gate::new(inbox, feeder, &spec);
        let batches = |gate: &Gate| (gate.present().config.batch, gate.wanted().config.batch);
        assert!(!gate.follow_batch(16) && gate.follow_batch(8));
        assert_eq!(batches(&gate), (8, 8));
        let asked = Setup { config: Config { batch: 32, ..gate.wanted().config }, ..gate.wanted().clone() };
        gate.ask_for(asked);
        assert!(gate.follow_batch(4));
        assert_eq!(batches(&gate), (4, 32));
    }
}
