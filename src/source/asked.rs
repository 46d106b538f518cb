//! What the programs of a file asked of their allocators, ready to be asked anew of others.

use std::collections::BTreeMap;

use thiserror::Error;

use super::whole::Whole;
use crate::allocator::DeviceMemory;
use crate::model::Ranks;
use crate::recording::RecordingError;
use crate::units::{Bytes, DeviceIndex};
use crate::whatif::{ConditionsError, Places, Recorded, RecordedWriter};

/// Why nothing can be asked anew.
#[derive(Debug, Error)]
pub enum AskedError {
    /// The events can't be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The conditions of the run can't be had.
    #[error("the settings of the run can't be used")]
    Conditions(#[from] ConditionsError),
    /// No memory was taken in it.
    #[error("no memory is taken in it; record a run that goes further")]
    Nothing,
}

/// The run of every device of a file that memory was taken on, in order; `device_bytes` is what a device has, where a person says
/// so. `progress` hears how far it is.
///
/// # Errors
/// [`AskedError`].
pub fn asked(
    whole: &Whole,
    device_bytes: Option<Bytes>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Vec<Recorded>, AskedError> {
    let mut writers: BTreeMap<DeviceIndex, RecordedWriter> = BTreeMap::new();
    whole.each(0..whole.end(), |index, event| {
        progress(index, whole.end());
        if usize::from(event.device.0) < Ranks::MOST {
            // A history of PyTorch's says itself that it is one, whatever file it lies in.
            let new = || RecordedWriter::new(event.device, Places::default());
            writers.entry(event.device).or_insert_with(new).push(event);
        }
        Ok::<_, RecordingError>(())
    })?;
    let total = device_bytes.or(whole.device_bytes());
    let memory = total.map(|total| DeviceMemory { free: total, total });
    let runs: Result<Vec<Recorded>, _> = writers.into_values().map(|writer| writer.finish(memory)).collect();
    let runs: Vec<Recorded> = runs?.into_iter().filter(|run| run.figures.peak_reserved > Bytes::ZERO).collect();
    if runs.is_empty() { Err(AskedError::Nothing) } else { Ok(runs) }
}
