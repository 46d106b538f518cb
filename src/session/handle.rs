//! What the rest of the program holds of a running lab.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::Command;
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::Sensors;
use vramlab_model::{Event, EventKind};

/// A running lab. Dropping its commands ends the run, unless an [`Engine`] of it is held too.
#[derive(Debug)]
pub struct Session {
    /// Commands to the engine; a send fails only when the engine has ended.
    pub commands: Sender<Command>,
    /// What happens, in batches; it ends with the engine.
    pub feed: mpsc::Receiver<Feed>,
    pub(super) ended: Arc<EngineEnd>,
}

/// What the engine thread hands on.
#[derive(Debug)]
pub enum Feed {
    /// What happened.
    Events(Vec<Event>),
    /// What another thread found out of a device beside the stream: it happens when it arrives, whenever that thread began.
    Aside(DeviceIndex, EventKind),
    /// Where readings of the device's sensors arrive, from here on.
    Sensors(Option<Sensors>),
}

/// The engine's end of a feed.
#[derive(Clone, Debug)]
pub struct Feeder(mpsc::Sender<Feed>);

impl Feeder {
    /// Both ends of a feed of at most `queue` batches.
    #[must_use]
    pub fn pair(queue: usize) -> (Self, mpsc::Receiver<Feed>) {
        let (sender, receiver) = mpsc::channel(queue);
        (Self(sender), receiver)
    }

    /// Sends something; waits while the queue is full. False when the receiver is gone.
    #[must_use]
    pub fn send(&self, feed: Feed) -> bool {
        self.0.blocking_send(feed).is_ok()
    }
}

impl Session {
    /// The engine, for the code that ends the process.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine { commands: self.commands.clone(), ended: Arc::clone(&self.ended) }
    }
}

/// The thread that trains, for the code that ends the process: the device must be closed before.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: Sender<Command>,
    ended: Arc<EngineEnd>,
}

impl Engine {
    /// Asks the engine to stop at its next safe point, and waits until it has closed the device; false where that takes
    /// longer than `patience`.
    #[must_use]
    pub fn end(&self, patience: Duration) -> bool {
        // An engine that has ended takes no commands.
        let _ = self.commands.send(Command::Quit);
        self.ended.wait(patience)
    }

    /// Whether it has.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.wait(Duration::ZERO)
    }
}

/// Whether the engine's thread has dropped everything.
#[derive(Debug, Default)]
pub(super) struct EngineEnd {
    told: Mutex<bool>,
    change: Condvar,
}

impl EngineEnd {
    fn wait(&self, patience: Duration) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(told, patience, |told| !*told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Held by the engine's thread: says that it has ended, also where it panicked.
pub(super) struct EngineEndGuard(pub Arc<EngineEnd>);

impl Drop for EngineEndGuard {
    fn drop(&mut self) {
        *self.0.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.change.notify_all();
    }
}
