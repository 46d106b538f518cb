//! A running lab: commands in, pictures out.
//!
//! The engine trains on a thread of its own and asks the gate at every safe point what a person wants; its events
//! go to the model thread, which publishes a picture of the lab at most thirty times a second. Nothing here waits
//! for a front end, and a front end never waits for the engine.

mod command;
mod engine;
mod gate;
mod handle;
mod pace;
mod publisher;
mod setup;
mod spec;
mod switches;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use tokio::sync::watch;

pub use command::{Choice, Command, LabState, RunState, StepSize, Switch, SwitchGroup, SwitchState};
pub use handle::LabHandle;
pub use pace::{Pace, Speed};
pub use setup::{MemoryLimit, Setup, check_settings};
pub use spec::{BuildError, DeviceChoice, LabSpec};
pub use switches::panel;

/// Batches of events that may wait for the model thread: beyond this the engine waits instead of filling memory.
const QUEUE: usize = 64;

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
    thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || engine::train(spec, inbox, updates, LabSpec::build))?;
    Ok(LabHandle { commands, state })
}
