//! What the programs of a file requested from their allocators, ready to be replayed on others.

use std::collections::BTreeMap;

use thiserror::Error;

use super::whole::Whole;
use crate::allocator::DeviceMemory;
use crate::model::Ranks;
use crate::recording::RecordingError;
use crate::snapshot::Printed;
use crate::units::{Bytes, DeviceIndex};
use crate::whatif::{ConditionsError, Places, Recorded, RecordedWriter};

/// Why nothing can be replayed.
#[derive(Debug, Error)]
pub enum AskedError {
    /// The events can't be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The conditions of the run can't be had.
    #[error("the settings of the run can't be used")]
    Conditions(#[from] ConditionsError),
    /// Another limit was in force.
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

/// What a person knows of the run in a file beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Memory of the device that this process could have.
    pub device_bytes: Option<Bytes>,
    /// The limit of this process.
    pub limit: Option<Printed>,
}

/// The run of every device of a file that memory was taken on, in order. `progress` hears how far it is.
///
/// # Errors
/// [`AskedError`].
pub fn asked(whole: &Whole, known: Known, mut progress: impl FnMut(u64, u64)) -> Result<Vec<Recorded>, AskedError> {
    let mut writers: BTreeMap<DeviceIndex, RecordedWriter> = BTreeMap::new();
    whole.each(0..whole.end(), |index, event| {
        progress(index, whole.end());
        if usize::from(event.device.0) < Ranks::MOST {
            // PyTorch's histories say so themselves, in any kind of file.
            let new = || RecordedWriter::new(event.device, Places::default());
            writers.entry(event.device).or_insert_with(new).push(event);
        }
        Ok::<_, RecordingError>(())
    })?;
    let total = known.device_bytes.or(whole.device_bytes());
    let memory = total.map(|total| DeviceMemory { free: total, total });
    let mut runs = Vec::new();
    for writer in writers.into_values() {
        let (reserved, below) = writer.limit_bounds();
        let limit = match known.limit {
            // What requests on it show narrows down a limit that was printed with two decimals.
            Some(given) => Some(
                given
                    .within(reserved, below)
                    .or_else(|| given.within(reserved, None))
                    .ok_or(AskedError::Limit { given: given.size, reserved })?,
            ),
            None => None,
        };
        let run = writer.finish(memory, limit)?;
        if run.figures.peak_reserved > Bytes::ZERO {
            runs.push(run);
        }
    }
    if runs.is_empty() { Err(AskedError::Nothing) } else { Ok(runs) }
}
