//! The model thread: reduces events and publishes pictures, never faster than a screen can show them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{LabState, RunState, SwitchState};
use crate::model::{Event, Lab};

/// At most thirty pictures a second: a picture costs the processor that also trains.
const FRAME: Duration = Duration::from_millis(33);

/// What the header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub detail: String,
    pub device: String,
    pub simulated: bool,
}

/// What the engine thread tells.
pub(super) enum Update {
    Events(Vec<Event>),
    Run(RunState),
    Switches(Vec<SwitchState>),
    About(About),
}

/// Applies updates until the engine is gone, and publishes a picture after each change, rate-limited.
pub(super) fn publish(updates: &Receiver<Update>, mut state: LabState, pictures: &watch::Sender<Arc<LabState>>) {
    let mut lab = Lab::new();
    let mut dirty = true;
    let mut published = Instant::now();
    loop {
        let wait = if dirty { FRAME.saturating_sub(published.elapsed()) } else { Duration::from_secs(3600) };
        let mut urgent = false;
        match updates.recv_timeout(wait) {
            Ok(update) => {
                urgent = matches!(update, Update::Run(_) | Update::Switches(_));
                match update {
                    Update::Events(events) => events.iter().for_each(|event| lab.apply(event)),
                    Update::Run(run) => state.run = run,
                    Update::Switches(switches) => state.switches = switches,
                    Update::About(about) => {
                        (state.detail, state.device, state.simulated) = (about.detail, about.device, about.simulated);
                    }
                }
                dirty = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                state.view = Arc::new(lab.view());
                pictures.send_replace(Arc::new(state));
                return;
            }
        }
        if dirty && (urgent || published.elapsed() >= FRAME) {
            state.view = Arc::new(lab.view());
            pictures.send_replace(Arc::new(state.clone()));
            published = Instant::now();
            dirty = false;
        }
    }
}
