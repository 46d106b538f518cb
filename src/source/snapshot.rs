//! PyTorch's memory snapshots: their history, replayed through the allocator.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use thiserror::Error;
use tokio::sync::mpsc;

use super::handle::Source;
use super::keeper::{Arrival, Inbox};
use super::picture::Kind;
use crate::allocator::{DeviceMemory, TorchVersion};
use crate::model::{About, DeviceKind, Event, EventKind, Micros, RunState};
use crate::snapshot::replay::{ConditionError, Conditions, Overrides};
use crate::snapshot::{Snapshot, SnapshotError, events};

/// Batches that may wait for the keeper, and events of one.
const QUEUE: usize = 8;
const BATCH: usize = 4096;

/// Why a snapshot is not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It can't be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// It was recorded under conditions that can't be found out.
    #[error(transparent)]
    Conditions(#[from] ConditionError),
    /// It holds no history.
    #[error(
        "the snapshot holds no history; call torch.cuda.memory._record_memory_history() before the first allocation"
    )]
    NoHistory,
    /// The system gives no thread.
    #[error("the system gives no threads ({0})")]
    Threads(#[source] std::io::Error),
}

/// Opens a snapshot, of a `torch` where that is given: the history of its first device that has one, as far as it can be
/// followed.
///
/// # Errors
/// [`OpenError`].
pub fn snapshot(path: &Path, torch: Option<TorchVersion>) -> Result<Source, OpenError> {
    let snapshot = Snapshot::open(path)?;
    let conditions = Conditions::find(path, &snapshot, &Overrides { torch, ..Overrides::default() })?;
    let device = first_device(&snapshot)?;
    // Where the history began nobody had taken any of it, as far as one knows.
    let memory = conditions.device_bytes.map(|total| DeviceMemory { free: total, total });
    let name: Arc<str> = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()).into();
    let (arrive, arrivals) = mpsc::channel(QUEUE);
    let kind = Kind::Snapshot(Arc::clone(&name));
    let path = path.to_owned();
    thread::Builder::new()
        .name("snapshot".to_owned())
        .spawn(move || replay(&snapshot, device, &conditions, &path, &arrive))
        .map_err(OpenError::Threads)?;
    Source::keep(kind, memory, Inbox::Read(arrivals), None).map_err(OpenError::Threads)
}

/// Hands the history on.
fn replay(snapshot: &Snapshot, device: usize, conditions: &Conditions, path: &Path, arrive: &mpsc::Sender<Arrival>) {
    let mut batch: Vec<Event> = Vec::new();
    let mut gone = false;
    narrate(snapshot, device, conditions, path, |event| {
        batch.push(event);
        if batch.len() >= BATCH && !gone {
            gone = arrive.blocking_send(Arrival::Events(std::mem::take(&mut batch))).is_err();
        }
    });
    // Nobody may be left to look.
    let _ = arrive.blocking_send(Arrival::Events(batch));
}

/// The first device of a snapshot that has a history.
///
/// # Errors
/// [`OpenError::NoHistory`].
pub(super) fn first_device(snapshot: &Snapshot) -> Result<usize, OpenError> {
    let mut devices = 0..snapshot.device_count();
    devices.find(|&device| !snapshot.device_trace(device).is_empty()).ok_or(OpenError::NoHistory)
}

/// Tells the history of a device as the events of a run, and where it could not be followed any further.
pub(super) fn narrate(
    snapshot: &Snapshot,
    device: usize,
    conditions: &Conditions,
    path: &Path,
    mut emit: impl FnMut(Event),
) {
    let trace = snapshot.device_trace(device);
    let time = trace.first().map_or(Micros(0), |entry| entry.time);
    // 2.11 has the keys of those before it.
    let version = match conditions.settings.torch() {
        TorchVersion::V2_11 => String::new(),
        torch => format!("{torch} "),
    };
    let about = About {
        workload: path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()).into(),
        detail: format!("PyTorch {version}snapshot · {} entries", trace.len()).into(),
        device: format!("device {device}").into(),
        kind: DeviceKind::Gpu,
        torch: conditions.settings.torch(),
        ..About::default()
    };
    // A snapshot knows no steps: all of it is one.
    let first =
        [EventKind::Begin(Arc::new(about)), EventKind::Run(RunState::Finished), EventKind::StepBegin { step: 0 }];
    first.into_iter().for_each(|kind| emit(Event::new(time, kind)));
    let mut last = time;
    let report = events(snapshot, device, conditions, |event| {
        last = event.time;
        emit(event);
    });
    if let Some(mismatch) = report.first_mismatch {
        let why = mismatch
            .explanation
            .map_or_else(|| format!("it has \"{}\"", mismatch.found), |why| format!("probably {why}"));
        let text = format!("from entry {} of {} on it can't be followed: {why}", mismatch.entry, trace.len());
        emit(Event::new(last, EventKind::Notice { text: text.into() }));
    }
}
