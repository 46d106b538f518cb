//! The gate between a front end and the engine: what the engine asks at every safe point.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::{Anew, Command, Feed, Feeder, LabSpec, Pace, Scene, Setup, Shortage, StepSize, switches};
use crate::device::{HostAccount, Sensors};
use crate::model::{About, Event, EventKind, Micros, RunState};
use crate::train::{Answer, Observer, SafePoint};
use crate::units::Bytes;

/// Events are handed on in batches of at least this many, or at phase ends when a batch is old.
const BATCH: usize = 512;
/// A batch older than this goes at the next safe point: the screen should not wait for a long op.
const BATCH_AGE: Duration = Duration::from_millis(15);
/// And at any op when it is as old as this: a recording must have what happened a quarter of a second ago.
const OLDEST: Duration = Duration::from_millis(100);

/// What the host must have left for remedies to be tried: a thread of its own, and the model made once more without bytes.
const ROOM: Bytes = Bytes::mib(512);

/// A shorter wait is left until it is worth waking up for.
const SHORTEST_WAIT: Duration = Duration::from_millis(4);

/// How far the engine may go before it stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    Until(StepSize),
    /// For so many more steps.
    Steps(u64),
}

/// Commands in, events out. Lives on the engine thread.
pub(super) struct Gate {
    commands: Receiver<Command>,
    feeder: Feeder,
    spec: LabSpec,
    /// Time of the last event: what the gate tells happens then.
    now: Micros,
    batch: Vec<Event>,
    sent: Instant,
    mode: Mode,
    /// The model is being made: whoever asks to stop finds the run before its first step.
    making: bool,
    in_force: Setup,
    wanted: Setup,
    quit: bool,
    empty_cache: bool,
    use_processor: bool,
    /// Another run is to begin.
    next: Option<Arc<LabSpec>>,
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
            now: Micros(0),
            batch: Vec::with_capacity(2 * BATCH),
            sent: Instant::now(),
            mode: Mode::Running,
            making: true,
            wanted: setup.clone(),
            in_force: setup,
            quit: false,
            empty_cache: false,
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
        self.wanted = setup.clone();
        self.in_force = setup;
        self.tell_settings();
    }

    /// Asks for `setup` from the next step on, as a person would.
    pub(super) fn ask_for(&mut self, setup: Setup) {
        self.wanted = setup;
        self.tell_settings();
    }

    /// Tells that a run begins: what it trains, and where.
    pub(super) fn begin(&mut self, about: About) {
        self.making = true;
        self.tell(EventKind::Begin(Arc::new(about)));
        self.tell(EventKind::Run(RunState::Starting));
        self.tell_settings();
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

    /// True when the front end is gone, or asked to end the run or to begin it anew.
    pub(super) fn ended(&self) -> bool {
        self.quit || self.next.is_some()
    }

    /// The run that is to begin in place of this one, if any.
    pub(super) fn take_next(&mut self) -> Option<Arc<LabSpec>> {
        self.next.take().filter(|_| !self.quit)
    }

    /// Before the first step: whoever asked to stop meanwhile finds the run where it began.
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
        let begun = Instant::now();
        self.mode = Mode::Paused;
        self.announce(state);
        while self.mode == Mode::Paused && !self.ended() {
            self.receive();
            if self.empty_cache {
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
        self.empty_cache = false;
        true
    }

    /// Goes on with another run as `spec` says, and tells why: what was known belongs to one that is over.
    pub(super) fn begin_anew(&mut self, spec: &LabSpec, why: &str) {
        self.spec = spec.clone();
        (self.in_force, self.wanted) = (spec.setup(), spec.setup());
        self.pace = spec.pace();
        self.flush();
        self.send(Feed::Sensors(None));
        self.begin(spec.about(None));
        self.tell(EventKind::Note { text: why.into() });
        self.flush();
    }

    /// Has somebody try what would have helped, beside whatever happens next.
    pub(super) fn try_remedies(&mut self, shortage: Shortage) {
        if HostAccount::default().left() < ROOM {
            self.tell(EventKind::Remedied(Arc::default()));
            return;
        }
        let (feeder, time) = (self.feeder.clone(), self.now);
        // Where there is no thread, nothing is told to have been tried.
        let _ = std::thread::Builder::new().name("remedies".to_owned()).spawn(move || {
            let remedied = EventKind::Remedied(shortage.try_remedies().into());
            // Nobody may be left to look.
            let _ = feeder.send(Feed::Events(vec![Event::new(time, remedied)]));
        });
    }

    /// Takes the request to empty the cache, if there is one.
    pub(super) fn take_empty_cache(&mut self) -> bool {
        std::mem::take(&mut self.empty_cache)
    }

    fn receive(&mut self) {
        match self.commands.recv() {
            Ok(command) => self.obey(command),
            Err(_) => self.quit = true,
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::EmptyCache => self.empty_cache = true,
            Command::Flip(switch, way) => {
                self.wanted.config = switch.flipped(&self.wanted.config, way);
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
            Command::Begin(Anew(spec)) => {
                (self.next, self.mode, self.empty_cache) = (Some(spec), Mode::Running, false);
            }
            Command::Lesson(note) => {
                self.tell(EventKind::Lesson(note));
                self.flush();
            }
            Command::UseProcessor => self.use_processor = true,
            Command::Quit => self.quit = true,
        }
    }

    /// Somebody looks at the switches: they are handed on at once.
    fn tell_settings(&mut self) {
        let settings = switches::settings(&self.in_force, &self.wanted, &Scene::of(&self.spec, &self.wanted.config));
        self.tell(EventKind::Settings(Arc::new(settings)));
        self.flush();
    }

    /// Adds to the stream what the gate knows and training does not.
    fn tell(&mut self, kind: EventKind) {
        self.batch.push(Event::new(self.now, kind));
    }

    /// Waits for the wall's clock, and obeys meanwhile.
    fn keep_pace(&mut self) {
        let mut due = self.pace.due();
        if due > SHORTEST_WAIT {
            self.flush();
        }
        let runs = |gate: &Self| matches!(gate.mode, Mode::Running | Mode::Steps(_)) && !gate.ended();
        while due > SHORTEST_WAIT && runs(self) && !self.empty_cache {
            match self.commands.recv_timeout(due) {
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.quit = true,
            }
            due = self.pace.due();
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(2 * BATCH));
            self.send(Feed::Events(batch));
        }
        self.sent = Instant::now();
    }

    fn send(&mut self, feed: Feed) {
        if !self.feeder.send(feed) {
            // Nobody is left to look.
            self.quit = true;
        }
    }
}

impl Observer for Gate {
    fn event(&mut self, event: Event) {
        self.pace.observe(&event);
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
        self.keep_pace();
        if self.making {
            return if self.ended() { Answer::Stop } else { Answer::Continue };
        }
        let arrived = match &mut self.mode {
            Mode::Steps(left) if point == SafePoint::Step => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Mode::Until(StepSize::Op) => true,
            Mode::Until(StepSize::Phase) => point != SafePoint::Op,
            Mode::Until(StepSize::Step) => point == SafePoint::Step,
            Mode::Running | Mode::Paused | Mode::Steps(_) => false,
        };
        if arrived {
            self.mode = Mode::Paused;
        }
        if self.mode == Mode::Paused && !self.ended() && !self.empty_cache {
            self.wait(RunState::Paused);
        }
        if self.ended() {
            Answer::Stop
        } else if self.take_empty_cache() {
            Answer::EmptyCache
        } else {
            Answer::Continue
        }
    }

    fn take_held(&mut self) -> Duration {
        std::mem::take(&mut self.held)
    }
}
