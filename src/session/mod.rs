//! A running lab: commands in, events out.
//!
//! The engine trains on its own thread and asks the gate at every safe point what a person wants. Everything that
//! happens leaves as events. Nothing here waits for a front end.

mod absence;
mod another_way;
mod broken;
mod combinations;
mod command;
mod engine;
mod force;
mod foresight;
mod gate;
mod hand;
mod handle;
mod headless;
mod interleaved;
mod lockstep;
mod order;
mod pace;
mod parallel;
mod process_group;
mod rank_messages;
mod rank_processes;
mod rank_server;
mod rank_stream;
mod rank_threads;
mod rank_worker;
mod remedies;
mod rendezvous;
mod setup;
mod spec;
mod switches;
mod trial;
mod wording;

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use handle::{EngineEnd, EngineEndGuard};

use vramlab_allocator::units::DeviceIndex;
use vramlab_model::{Event, EventKind, Micros, RunState};

pub use combinations::{Combination, combinations};
pub use command::{Command, NewRun, StepSize};
pub use foresight::HostForecast;
pub use handle::{Engine, Feed, Feeder, Session};
pub use headless::{Follow, Headless, Listener, NotMade};
pub use pace::{Pace, Speed};
pub use parallel::Parallel;
pub use process_group::{GroupError, ProcessGroup, RankFailed, check_ranks, of_rank};
pub use rank_processes::{RankProcesses, RanksDuty};
pub use rank_server::{RankDuty, RankServer, ServeError};
pub use rank_stream::RankStream;
pub use remedies::Shortage;
pub use rendezvous::{PATIENCE, Rendezvous, RendezvousError};
pub use setup::{MemoryLimit, Setup, check_settings};
pub use spec::{BuildError, DeviceChoice, LabSpec};
pub use switches::{Choice, FlipDirection, Reach, Scene, Switch, SwitchGroup, settings};
pub use trial::{Trials, flip_through, try_all};
pub use wording::{as_flags, in_flags, in_program};

/// The most batches of events in the queue. Beyond that the engine waits instead of filling memory.
const QUEUE: usize = 64;

/// The message for an engine that panicked; the panic has printed its own.
const PANICKED: &str = "the engine stopped, which is a bug of vramlab; report what it was doing";

/// The events with which a run of `spec` begins, before anything is built.
#[must_use]
pub fn prologue(spec: &LabSpec) -> Vec<Event> {
    let setup = spec.setup();
    let settings = settings(&setup, &setup, &Scene::of(spec, &setup.config));
    let kinds = spec.beginning().chain([EventKind::Run(RunState::Starting), EventKind::Settings(Arc::new(settings))]);
    kinds.map(|kind| Event { device: spec.index, ..Event::new(Micros(0), kind) }).collect()
}

/// Starts a lab. The engine begins to build the model at once, on its own thread.
///
/// # Errors
/// If the system can't start a thread.
pub fn start(spec: LabSpec) -> io::Result<Session> {
    start_among(spec, None)
}

/// Like [`start`], where the other ranks may be processes of their own.
///
/// # Errors
/// If the system can't start a thread.
pub fn start_among(spec: LabSpec, processes: Option<RankProcesses>) -> io::Result<Session> {
    let (commands, inbox) = channel();
    let (feeder, feed) = Feeder::pair(QUEUE);
    let ended = Arc::<EngineEnd>::default();
    let running = EngineEndGuard(Arc::clone(&ended));
    let last_word = feeder.clone();
    thread::Builder::new().name("engine".to_owned()).spawn(move || {
        let _running = running;
        let trained = AssertUnwindSafe(|| engine::train(spec, processes, inbox, feeder, LabSpec::build));
        if panic::catch_unwind(trained).is_err() {
            // The receiver may be gone.
            let failed = EventKind::Run(RunState::Failed(PANICKED.into()));
            let _ = last_word.send(Feed::Aside(DeviceIndex::FIRST, failed));
        }
    })?;
    Ok(Session { commands, feed, ended })
}
