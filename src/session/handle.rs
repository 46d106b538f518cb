//! The handle of a running lab.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::Command;
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::Sensors;
use vramlab_model::{Event, EventKind};

/// A running lab. Dropping its commands ends the run, unless an [`Engine`] for it is held too.
#[derive(Debug)]
pub struct Session {
    /// Commands to the engine. A send fails only after the engine has ended.
    pub commands: Sender<Command>,
    /// The events, in batches. The feed ends with the engine.
    pub feed: mpsc::Receiver<Feed>,
    pub(super) ended: Arc<EngineEnd>,
}

/// A message from the engine thread.
#[derive(Debug)]
pub enum Feed {
    /// Events.
    Events(Vec<Event>),
    /// An event that another thread found out about a device. It counts from its arrival, whenever that thread began.
    Aside(DeviceIndex, EventKind),
    /// The sensors whose readings count from here on.
    Sensors(Option<Sensors>),
}

/// The sending end of a feed.
#[derive(Clone, Debug)]
pub struct Feeder(mpsc::Sender<Feed>);

impl Feeder {
    /// Both ends of a feed that holds at most `queue` batches.
    #[must_use]
    pub fn pair(queue: usize) -> (Self, mpsc::Receiver<Feed>) {
        let (sender, receiver) = mpsc::channel(queue);
        (Self(sender), receiver)
    }

    /// Sends a message, and waits while the queue is full. Returns false if the receiver is gone.
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

/// The thread that trains, for the code that ends the process: the device must be closed first.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: Sender<Command>,
    ended: Arc<EngineEnd>,
}

impl Engine {
    /// Asks the engine to stop at its next safe point, and waits until it has closed the device. Returns false if that
    /// takes longer than `patience`.
    #[must_use]
    pub fn end(&self, patience: Duration) -> bool {
        // An engine that has ended takes no commands.
        let _ = self.commands.send(Command::Quit);
        self.ended.wait(patience)
    }

    /// True if the engine has ended.
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

/// Held by the engine's thread. Reports its end, even after a panic.
pub(super) struct EngineEndGuard(pub Arc<EngineEnd>);

impl Drop for EngineEndGuard {
    fn drop(&mut self) {
        *self.0.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.change.notify_all();
    }
}
