//! The model thread: reduces events and publishes pictures, never faster than a screen can show them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{LabState, RunState, SwitchState};
use crate::device::Sensors;
use crate::model::{Event, EventKind, Lab};

/// At most thirty pictures a second: a picture costs the processor that also trains.
const FRAME: Duration = Duration::from_millis(33);

/// How often readings of a device's sensors are looked for.
const READINGS: Duration = Duration::from_millis(100);

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
    /// Where readings of the device's sensors arrive, from here on.
    Sensors(Option<Sensors>),
    /// Another run begins, for this reason: nothing of what is known belongs to it.
    Anew(Arc<str>),
}

/// Applies updates until the engine is gone, and publishes a picture after each change, rate-limited.
pub(super) fn publish(updates: &Receiver<Update>, mut state: LabState, pictures: &watch::Sender<Arc<LabState>>) {
    let mut lab = Lab::new();
    let mut sensors: Option<Sensors> = None;
    let mut dirty = true;
    let mut published = Instant::now();
    loop {
        let idle = if sensors.is_some() { READINGS } else { Duration::from_secs(3600) };
        let wait = if dirty { FRAME.saturating_sub(published.elapsed()) } else { idle };
        let mut urgent = false;
        match updates.recv_timeout(wait) {
            Ok(update) => {
                urgent = matches!(update, Update::Run(_) | Update::Switches(_));
                match update {
                    Update::Events(events) => events.iter().for_each(|event| lab.apply(event)),
                    Update::Run(run) => state.run = run,
                    Update::Switches(switches) => state.switches = switches,
                    Update::Sensors(present) => sensors = present,
                    Update::Anew(text) => {
                        (lab, sensors) = (Lab::new(), None);
                        lab.apply(&Event { time: lab.time(), kind: EventKind::Note { text } });
                    }
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
        // They come of themselves, whatever the engine is doing: also while it is paused.
        if let Some(reading) = sensors.as_ref().and_then(Sensors::take) {
            lab.apply(&Event { time: lab.time(), kind: EventKind::Reading(Arc::new(reading)) });
            dirty = true;
        }
        if dirty && (urgent || published.elapsed() >= FRAME) {
            state.view = Arc::new(lab.view());
            pictures.send_replace(Arc::new(state.clone()));
            published = Instant::now();
            dirty = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::thread;

    use super::*;
    use crate::model::{Reading, Xid};

    #[test]
    fn readings_are_published_while_the_engine_says_nothing() {
        let (updates, arrivals) = sync_channel(4);
        let (pictures, mut state) = watch::channel(Arc::new(LabState::default()));
        let model = thread::spawn(move || publish(&arrivals, LabState::default(), &pictures));
        let sensors = Sensors::default();
        updates.send(Update::Sensors(Some(sensors.clone()))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for busy in [30, 60] {
            sensors.put(Reading { busy: Some(busy), xid: Some(Xid(79)), ..Reading::default() });
            let seen = state.wait_for(|lab| lab.view.gpu.as_ref().is_some_and(|gpu| gpu.busy == Some(busy)));
            let seen = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), seen).await });
            assert!(seen.is_ok_and(|state| state.is_ok()), "{busy} % arrive");
        }
        let lines: Vec<_> = state.borrow().view.log.iter().map(|line| line.text.clone()).collect();
        assert_eq!(lines.len(), 1, "an error is told once: {lines:?}");
        assert!(lines[0].contains("Xid 79: the GPU has fallen off its bus"), "{lines:?}");
        drop(updates);
        model.join().unwrap();
    }
}
