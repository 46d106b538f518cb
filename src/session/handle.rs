//! What a front end holds of a running lab.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{Command, LabState};

/// A running lab, as a front end holds it. Dropping it ends the run, unless somebody holds its [`Engine`] too.
#[derive(Debug)]
pub struct LabHandle {
    /// Commands to the engine; a send fails only when the engine has ended.
    pub commands: Sender<Command>,
    /// The last published picture.
    pub state: watch::Receiver<Arc<LabState>>,
    pub(super) ended: Arc<Ended>,
}

impl LabHandle {
    /// The engine, for whoever ends the process.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine { commands: self.commands.clone(), ended: Arc::clone(&self.ended) }
    }
}

/// The thread that trains, as seen by whoever ends the process: the device must be closed before.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: Sender<Command>,
    ended: Arc<Ended>,
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

/// Whether the engine's thread has let go of everything.
#[derive(Debug, Default)]
pub(super) struct Ended {
    told: Mutex<bool>,
    change: Condvar,
}

impl Ended {
    fn wait(&self, patience: Duration) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.change.wait_timeout_while(told, patience, |told| !*told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Held by the engine's thread: says that it has ended, also where it panicked.
pub(super) struct Running(pub Arc<Ended>);

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.change.notify_all();
    }
}
