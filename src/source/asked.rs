//! The requests that the programs in a file made of their allocators, ready to be replayed on others.

use std::collections::BTreeMap;

use thiserror::Error;

use super::whole::Whole;
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_model::{Event, Ranks};
use vramlab_recording::RecordingError;
use vramlab_snapshot::PrintedSize;
use vramlab_whatif::{ConditionsError, Facts, FactsWriter, Places, RecordedRun, RecordedWriter};

/// Why nothing can be replayed.
#[derive(Debug, Error)]
pub enum AskedError {
    /// The events can't be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The run's conditions can't be determined.
    #[error("the settings of the run can't be used")]
    Conditions(#[from] ConditionsError),
    /// The limit must have been another one.
    #[error("with a limit of {given} this run could not have reserved {reserved}; give the limit that it had")]
    Limit {
        /// The limit that was given.
        given: Bytes,
        /// What the run had reserved.
        reserved: Bytes,
    },
    /// No memory was taken in it.
    #[error("no memory is taken in it; record a run that goes further")]
    Nothing,
}

/// What a person knows about the run in a file, in addition to the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunHints {
    /// The device memory that this process could have.
    pub device_bytes: Option<Bytes>,
    /// The limit of this process.
    pub limit: Option<PrintedSize>,
}

/// The runs of all devices on which memory was allocated, in order, ready to be replayed. `progress` hears how far reading is.
///
/// # Errors
/// [`AskedError`].
pub fn asked(whole: &Whole, known: RunHints, progress: impl FnMut(u64, u64)) -> Result<Vec<RecordedRun>, AskedError> {
    // PyTorch's histories say where their segments are, in any kind of file.
    let new = |device| RecordedWriter::new(device, Places::default());
    let mut runs = Vec::new();
    for writer in written(whole, progress, new, RecordedWriter::push)? {
        let (memory, limit) = known.bounds(whole, writer.facts())?;
        runs.push(writer.finish(memory, limit)?);
    }
    with_memory(runs)
}

/// The facts about the same runs, without their requests. Takes half the time.
///
/// # Errors
/// [`AskedError`].
pub fn facts(whole: &Whole, known: RunHints, progress: impl FnMut(u64, u64)) -> Result<Vec<Facts>, AskedError> {
    let mut runs = Vec::new();
    for writer in written(whole, progress, FactsWriter::new, FactsWriter::push)? {
        let (memory, limit) = known.bounds(whole, &writer)?;
        runs.push(writer.finish(memory, limit)?);
    }
    with_memory(runs)
}

fn with_memory<R: AsRef<Facts>>(mut runs: Vec<R>) -> Result<Vec<R>, AskedError> {
    runs.retain(|run| run.as_ref().figures.peak_reserved > Bytes::ZERO);
    if runs.is_empty() { Err(AskedError::Nothing) } else { Ok(runs) }
}

/// Writers for all devices of a file, each fed with its own events in order.
fn written<W>(
    whole: &Whole,
    mut progress: impl FnMut(u64, u64),
    new: impl Fn(DeviceIndex) -> W,
    push: impl Fn(&mut W, &Event),
) -> Result<Vec<W>, AskedError> {
    let mut writers: BTreeMap<DeviceIndex, W> = BTreeMap::new();
    whole.each(0..whole.end(), |index, event| {
        progress(index, whole.end());
        if usize::from(event.device.0) < Ranks::MOST {
            push(writers.entry(event.device).or_insert_with(|| new(event.device)), event);
        }
        Ok::<_, RecordingError>(())
    })?;
    Ok(writers.into_values().collect())
}

impl RunHints {
    /// The memory of the device and the limit of a run, as far as they are known.
    fn bounds(self, whole: &Whole, run: &FactsWriter) -> Result<(Option<DeviceMemory>, Option<Bytes>), AskedError> {
        let total = self.device_bytes.or(whole.device_bytes());
        let memory = total.map(|total| DeviceMemory { free: total, total });
        let Some(given) = self.limit else { return Ok((memory, None)) };
        let (reserved, below) = run.limit_bounds();
        // Requests narrow down a limit that was printed with two decimals.
        let limit = given.within(reserved, below).or_else(|| given.within(reserved, None));
        let limit = limit.ok_or(AskedError::Limit { given: given.size, reserved })?;
        Ok((memory, Some(limit)))
    }
}
