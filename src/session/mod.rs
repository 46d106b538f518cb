//! A running lab: commands in, pictures out.
//!
//! The engine trains on a thread of its own and asks the gate at every safe point what a person wants; its events
//! go to the model thread, which publishes a picture of the lab at most thirty times a second. Nothing here waits
//! for a front end, and a front end never waits for the engine.

mod combinations;
mod command;
mod engine;
mod gate;
mod handle;
mod pace;
mod publisher;
mod setup;
mod spec;
mod switches;
mod trial;

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use tokio::sync::watch;

use handle::{Ended, Running};
use publisher::Update;

pub use combinations::{Combination, combinations};
pub use command::{Choice, Command, LabState, RunState, StepSize, Switch, SwitchGroup, SwitchState};
pub use handle::{Engine, LabHandle};
pub use pace::{Pace, Speed};
pub use setup::{MemoryLimit, Setup, check_settings};
pub use spec::{BuildError, DeviceChoice, LabSpec};
pub use switches::{Lever, levers, next, panel, previous, with};
pub use trial::{Trials, flip_through, try_all};

/// Batches of events that may wait for the model thread: beyond this the engine waits instead of filling memory.
const QUEUE: usize = 64;

/// What is told of an engine that panicked; the panic itself has its own message.
const PANICKED: &str = "the engine stopped, which is a bug of vramlab; report what it was doing";

/// Starts a lab: the engine begins to build the model at once, on its own thread.
///
/// # Errors
/// When the system gives no thread.
pub fn start(spec: LabSpec) -> io::Result<LabHandle> {
    let (commands, inbox) = channel();
    let (updates, arrivals) = sync_channel(QUEUE);
    let about = spec.about(None);
    let first = LabState {
        switches: switches::panel(&spec.setup(), &spec.setup()),
        workload: spec.workload.name.clone(),
        detail: about.detail,
        device: about.device,
        simulated: about.simulated,
        items: spec.items(),
        ..LabState::default()
    };
    let (pictures, state) = watch::channel(Arc::new(first.clone()));
    thread::Builder::new().name("model".to_owned()).spawn(move || publisher::publish(&arrivals, first, &pictures))?;
    let ended = Arc::<Ended>::default();
    let running = Running(Arc::clone(&ended));
    let last_word = updates.clone();
    thread::Builder::new().name("engine".to_owned()).spawn(move || {
        let _running = running;
        let trained = AssertUnwindSafe(|| engine::train(spec, inbox, updates, LabSpec::build));
        if panic::catch_unwind(trained).is_err() {
            // Nobody may be left to hear it.
            let _ = last_word.send(Update::Run(RunState::Failed(PANICKED.to_owned())));
        }
    })?;
    Ok(LabHandle { commands, state, ended })
}
