//! The gate between a front end and the engine: what the engine asks at every safe point.

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

/// Events are handed on in batches of at least this many, or at phase ends when a batch is old.
const BATCH: usize = 512;
/// A batch older than this goes at the next safe point: the screen should not wait for a long op.
const BATCH_AGE: Duration = Duration::from_millis(15);
/// And at any op when it is as old as this: a recording must have what happened a quarter of a second ago.
const OLDEST: Duration = Duration::from_millis(100);

/// Steps under a configuration before other ones are tried beside it.
pub(super) const WEIGHED: u64 = 2;

/// A shorter wait is left until it is worth waking up for.
const SHORTEST_WAIT: Duration = Duration::from_millis(4);

/// What a person may have done with the allocator between two ops.
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
    /// Devices that the run has: what the gate says it says of each.
    devices: u16,
    /// Time of the last event: the gate's own events have it too.
    now: Micros,
    batch: Vec<Event>,
    sent: Instant,
    mode: Mode,
    /// The model is being made: a pause takes effect before the first step.
    making: bool,
    in_force: Setup,
    /// There for as long as that is in force.
    standing: Arc<()>,
    wanted: Setup,
    /// What was wanted and did not come into force: keys go on from there, or they would meet it again.
    refused: Option<Setup>,
    quit: bool,
    /// What is to be done with the allocator at the next safe point, in order.
    chores: VecDeque<Chore>,
    use_processor: bool,
    /// Another run is to begin, and why.
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

    /// The setup that the next step should have.
    pub(super) fn wanted(&self) -> &Setup {
        &self.wanted
    }

    /// The setup of the step that ran last.
    pub(super) fn present(&self) -> &Setup {
        &self.in_force
    }

    /// Tells that `setup` is in force now. What of the wanted one can't be had is no longer asked for.
    pub(super) fn in_force(&mut self, setup: Setup) {
        self.keep_refused(&setup);
        self.wanted = setup.clone();
        self.in_force = setup;
        self.standing = Arc::default();
        self.tell_settings();
    }

    /// The program has changed its batch by itself; true where it has. Whoever asked for another one meanwhile still does.
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

    /// Asks for `setup` from the next step on, as a person would.
    pub(super) fn ask_for(&mut self, setup: Setup) {
        self.keep_refused(&setup);
        self.wanted = setup;
        self.tell_settings();
    }

    /// Tells that a run begins: what it trains, and where.
    pub(super) fn begin(&mut self, spec: &LabSpec) {
        self.making = true;
        spec.beginning().for_each(|kind| self.tell(kind));
        self.tell(EventKind::Run(RunState::Starting));
        self.tell_settings();
    }

    /// Tells that the run has one device more, and what it trains there.
    pub(super) fn begin_beside(&mut self, spec: &LabSpec) {
        let device = spec.index;
        self.devices = self.devices.max(device.0 + 1);
        let (settings, making) = (EventKind::Settings(Arc::new(self.settings())), EventKind::Run(RunState::Starting));
        for kind in spec.beginning().chain([making, settings]) {
            self.tell_of(device, kind);
        }
    }

    /// Tells what the lab trains and where, after that changed.
    pub(super) fn describe(&mut self, about: About) {
        self.tell(EventKind::About(Arc::new(about)));
    }

    /// Hands on where readings of the device's sensors arrive.
    pub(super) fn watch(&mut self, sensors: Option<Sensors>) {
        self.flush();
        self.send(Feed::Sensors(sensors));
    }

    /// True when the front end is gone, or asked to end the run or to start another.
    pub(super) fn ended(&self) -> bool {
        self.quit || self.next.is_some()
    }

    /// True when the front end is gone, or asked to end the lab.
    pub(super) const fn quits(&self) -> bool {
        self.quit
    }

    /// Takes what was asked for meanwhile; true when the step under way is to be abandoned.
    pub(super) fn leaves(&mut self) -> bool {
        self.take_commands();
        self.ended()
    }

    /// The run that is to begin in place of this one, if any, and why.
    pub(super) fn take_next(&mut self) -> Option<(Arc<LabSpec>, Arc<str>)> {
        self.next.take().filter(|_| !self.quit)
    }

    /// Ends this run; another one begins.
    pub(super) fn begin_next(&mut self, spec: LabSpec, why: &str) {
        self.chores.clear();
        self.next = Some((Arc::new(spec), why.into()));
    }

    /// Before the first step: obeys a pause that was asked for meanwhile.
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

    /// Hands all events on and says what the lab is doing now.
    pub(super) fn announce(&mut self, state: RunState) {
        self.tell(EventKind::Run(state));
        self.flush();
    }

    /// Stops until a person goes on or quits: after a step that failed, or when all steps are done.
    pub(super) fn wait(&mut self, state: RunState) {
        self.wait_each(&[state]);
    }

    /// The same with a state for each device; the last one is that of those behind it, too.
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

    /// Says that the device is lost and waits; true when the processor is to take over, false when the front end quits.
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
        // Of devices that the new run may not have nothing is known any more.
        for device in 1..std::mem::replace(&mut self.devices, 1) {
            self.tell_of(DeviceIndex(device), EventKind::Begin(Arc::default()));
        }
        self.begin(spec);
        self.tell(EventKind::Note { text: why.into() });
        self.flush();
    }

    /// Takes what is to be done with the allocator, one after another.
    pub(super) fn take_chore(&mut self) -> Option<Chore> {
        self.chores.pop_front()
    }

    /// Requests something; asking twice before it is done counts once.
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

    /// The configuration with a switch flipped: from the value that was refused, if it was this switch's.
    fn flipped(&mut self, switch: Switch, way: FlipDirection) -> Config {
        let value = self.refused.take().map(|refused| switch.choice(&refused.config));
        let from = value.map_or(self.wanted.config, |refused| switch.with(&self.wanted.config, refused));
        switch.flipped(&from, way)
    }

    fn settings(&self) -> RunSettings {
        switches::settings(&self.in_force, &self.wanted, &Scene::of(&self.spec, &self.wanted.config))
    }

    /// The switches are on screen: they are sent at once.
    fn tell_settings(&mut self) {
        self.tell(EventKind::Settings(Arc::new(self.settings())));
        self.flush();
    }

    /// Adds to the stream what the gate knows and training does not.
    pub(super) fn tell(&mut self, kind: EventKind) {
        for device in 0..self.devices {
            self.tell_of(DeviceIndex(device), kind.clone());
        }
    }

    /// The same of one device.
    pub(super) fn tell_of(&mut self, device: DeviceIndex, kind: EventKind) {
        self.batch.push(Event { device, ..Event::new(self.now, kind) });
    }

    /// Whether something is to be done with the allocator at this point. A run that goes on empties its cache where programs do,
    /// between two steps: what that returns is known before, and a screen can promise it. One that is held does so at once; several
    /// ranks have their own moment.
    fn is_due(&self, point: SafePoint) -> bool {
        self.chores.front().is_some_and(|chore| match chore {
            Chore::EmptyCache => point == SafePoint::Step || self.mode == Mode::Paused || self.devices > 1,
            Chore::ResetPeaks => true,
        })
    }

    /// Waits for the wall's clock, and obeys meanwhile.
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

    /// Hands on what has happened so far.
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
        // The clock of several devices is the first one's.
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
