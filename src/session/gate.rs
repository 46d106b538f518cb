//! The gate between a front end and the engine: what the engine asks at every safe point.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use super::publisher::{About, Update};
use super::{Command, Pace, RunState, Setup, StepSize, switches};
use crate::device::Sensors;
use crate::model::Event;
use crate::train::{Config, Observer, Request, SafePoint};

/// Events are handed on in batches of at least this many, or at phase ends when a batch is old.
const BATCH: usize = 512;
/// A batch older than this goes at the next safe point: the screen should not wait for a long op.
const BATCH_AGE: Duration = Duration::from_millis(15);

/// A shorter wait is left until it is worth waking up for.
const SHORTEST_WAIT: Duration = Duration::from_millis(4);

/// How far the engine may go before it stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    Paused,
    Until(StepSize),
}

/// Commands in, events out. Lives on the engine thread.
pub(super) struct Gate {
    commands: Receiver<Command>,
    updates: SyncSender<Update>,
    batch: Vec<Event>,
    sent: Instant,
    mode: Mode,
    in_force: Setup,
    wanted: Setup,
    quit: bool,
    empty_cache: bool,
    use_processor: bool,
    held: Duration,
    pace: Pace,
}

impl Gate {
    pub(super) fn new(commands: Receiver<Command>, updates: SyncSender<Update>, setup: Setup, pace: Pace) -> Self {
        Self {
            commands,
            updates,
            batch: Vec::with_capacity(2 * BATCH),
            sent: Instant::now(),
            mode: Mode::Running,
            wanted: setup.clone(),
            in_force: setup,
            quit: false,
            empty_cache: false,
            use_processor: false,
            held: Duration::ZERO,
            pace,
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
        self.publish_switches();
    }

    /// Asks for `setup` from the next step on, as a person would.
    pub(super) fn ask_for(&mut self, setup: Setup) {
        self.wanted = setup;
        self.publish_switches();
    }

    /// Hands on what the lab trains and where.
    pub(super) fn describe(&mut self, about: About) {
        self.send(Update::About(about));
    }

    /// Hands on where readings of the device's sensors arrive.
    pub(super) fn watch(&mut self, sensors: Option<Sensors>) {
        self.send(Update::Sensors(sensors));
    }

    /// True when the front end is gone or asked to end.
    pub(super) fn ended(&self) -> bool {
        self.quit
    }

    /// Hands all events on and says what the lab is doing now.
    pub(super) fn announce(&mut self, state: RunState) {
        self.flush();
        self.send(Update::Run(state));
    }

    /// Stops until a person goes on or quits: after a step that failed, or when all steps are done.
    pub(super) fn wait(&mut self, state: RunState) {
        let begun = Instant::now();
        self.mode = Mode::Paused;
        self.announce(state);
        while self.mode == Mode::Paused && !self.quit {
            self.receive();
            if self.empty_cache {
                break;
            }
        }
        self.held += begun.elapsed();
        if self.mode != Mode::Paused && !self.quit {
            self.announce(RunState::Running);
        }
    }

    /// Says that the device is lost and waits; true when the processor is to take over, false when the front end quits.
    pub(super) fn offer_processor(&mut self, reason: &str) -> bool {
        self.use_processor = false;
        self.announce(RunState::Lost(reason.to_owned()));
        while !self.use_processor && !self.quit {
            self.receive();
        }
        if self.quit {
            return false;
        }
        self.mode = Mode::Running;
        self.empty_cache = false;
        true
    }

    /// Hands on that all begins anew, and why: what was known belongs to a run that is over.
    pub(super) fn begin_anew(&mut self, about: About, why: &str) {
        self.batch.clear();
        self.send(Update::Anew(why.into()));
        self.describe(about);
        self.send(Update::Run(RunState::Starting));
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
            Command::Next(switch) => self.want(switches::next(switch, &self.wanted.config)),
            Command::Previous(switch) => self.want(switches::previous(switch, &self.wanted.config)),
            Command::Set(switch, choice) => self.want(switches::with(&self.wanted.config, switch, choice)),
            Command::Limit(limit) => {
                self.wanted.limit = limit;
                self.publish_switches();
            }
            Command::Settings(text) => {
                self.wanted.alloc_conf = text;
                self.publish_switches();
            }
            Command::Pause => self.mode = Mode::Paused,
            Command::Resume => self.mode = Mode::Running,
            Command::Advance(size) => self.mode = Mode::Until(size),
            Command::UseProcessor => self.use_processor = true,
            Command::Quit => self.quit = true,
        }
    }

    fn want(&mut self, config: Config) {
        self.wanted.config = config;
        self.publish_switches();
    }

    fn publish_switches(&mut self) {
        self.send(Update::Switches(switches::panel(&self.in_force, &self.wanted)));
    }

    /// Waits for the wall's clock, and obeys meanwhile.
    fn keep_pace(&mut self) {
        let mut due = self.pace.due();
        if due > SHORTEST_WAIT {
            self.flush();
        }
        while due > SHORTEST_WAIT && self.mode == Mode::Running && !self.quit && !self.empty_cache {
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
            self.send(Update::Events(batch));
        }
        self.sent = Instant::now();
    }

    fn send(&mut self, update: Update) {
        if self.updates.send(update).is_err() {
            // Nobody is left to look.
            self.quit = true;
        }
    }
}

impl Observer for Gate {
    fn event(&mut self, event: Event) {
        self.pace.observe(&event);
        self.batch.push(event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Request {
        let due = self.batch.len() >= BATCH || (point != SafePoint::Op && self.sent.elapsed() >= BATCH_AGE);
        if due {
            self.flush();
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.quit = true;
                    break;
                }
            }
        }
        self.keep_pace();
        let arrived = match self.mode {
            Mode::Until(StepSize::Op) => true,
            Mode::Until(StepSize::Phase) => point != SafePoint::Op,
            Mode::Until(StepSize::Step) => point == SafePoint::Step,
            Mode::Running | Mode::Paused => false,
        };
        if arrived {
            self.mode = Mode::Paused;
        }
        if self.mode == Mode::Paused && !self.quit && !self.empty_cache {
            self.wait(RunState::Paused);
        }
        if self.quit {
            Request::Stop
        } else if self.take_empty_cache() {
            Request::EmptyCache
        } else {
            Request::Continue
        }
    }

    fn take_held(&mut self) -> Duration {
        std::mem::take(&mut self.held)
    }
}
