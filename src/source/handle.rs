//! The handle of a source.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, watch};

use super::arrival::Inbox;
use super::keeper::Keeper;
use super::picture::{Picture, SourceKind};
use super::request::Request;
use vramlab_allocator::DeviceMemory;
use vramlab_session::{Command, Engine};

/// A source, in the form that a front end holds.
#[derive(Debug)]
pub struct Source {
    /// The last published picture.
    pub pictures: watch::Receiver<Arc<Picture>>,
    /// Present until the source is dropped.
    controls: Option<mpsc::UnboundedSender<Request>>,
    engine: Option<(Sender<Command>, Engine)>,
    keeper: Option<JoinHandle<()>>,
}

impl Source {
    /// Keeps the messages from `inbox` on a thread of its own. `memory` is the device's, if known.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub(super) fn keep(
        kind: SourceKind,
        memory: Option<DeviceMemory>,
        inbox: Inbox,
        engine: Option<(Sender<Command>, Engine)>,
    ) -> io::Result<Self> {
        let (pictures, shown) = watch::channel(Arc::new(Picture::before(kind.clone(), memory)));
        let (controls, requests) = mpsc::unbounded_channel();
        let keeper = thread::Builder::new().name("keeper".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            // Without a clock nothing can be shown; the screen says that its source is gone.
            let Ok(runtime) = runtime else { return };
            runtime.block_on(Keeper::new(kind, memory, pictures).keep(inbox, requests));
        })?;
        Ok(Self { pictures: shown, controls: Some(controls), engine, keeper: Some(keeper) })
    }

    /// Sends a request without waiting. Requests that the source can't fulfil are dropped.
    pub fn request(&self, request: Request) {
        match (request, &self.engine, &self.controls) {
            // A send fails only after the engine has ended.
            (Request::Lab(command), Some((commands, _)), _) => drop(commands.send(command)),
            (Request::Lab(_), None, _) | (_, _, None) => {}
            (request, _, Some(controls)) => drop(controls.send(request)),
        }
    }

    /// The engine of a live lab, for the code that ends the process.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.engine.as_ref().map(|(_, engine)| engine.clone())
    }
}

/// Ends the run, and waits until its recording is complete.
impl Drop for Source {
    fn drop(&mut self) {
        self.request(Request::Lab(Command::Quit));
        self.controls = None;
        if let Some(keeper) = self.keeper.take() {
            // The panic has printed its own message.
            let _ = keeper.join();
        }
    }
}
