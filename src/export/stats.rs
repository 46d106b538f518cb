//! The statistics of a device at a moment: `torch.cuda.memory_stats()`, with the settings and limits behind them.

use serde::Serialize;

use super::devices::Devices;
use crate::allocator::{Statistics, TorchVersion};
use crate::recording::RecordingError;
use crate::source::Whole;
use crate::units::{Bytes, DeviceIndex};

/// The statistics of a device, in the form that `vramlab replay --stats` reads.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The device's index.
    pub device: u16,
    /// Number of events before the moment.
    pub position: u64,
    /// Number of steps finished before the current one; `None` between two steps.
    pub step: Option<u64>,
    /// The PyTorch version of the allocator.
    pub torch: TorchVersion,
    /// The allocator's settings, in PyTorch's syntax.
    pub conf: String,
    /// The most memory that could be reserved.
    pub limit_bytes: Option<Bytes>,
    /// Memory of the device, if it is known.
    pub device_bytes: Option<Bytes>,
    /// The statistics by PyTorch's names.
    pub stats: Statistics,
}

/// The statistics after `end` events: of the device with the number `device`, or else of the first device with events.
/// `None` if there is none.
///
/// # Errors
/// [`RecordingError::Damaged`].
pub fn stats(
    whole: &Whole,
    end: u64,
    device: Option<u16>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<Stats>, RecordingError> {
    let mut devices = Devices::default();
    whole.each(0..end, |index, event| {
        devices.apply(event);
        progress(index, end);
        Ok::<_, RecordingError>(())
    })?;
    let mut seen = devices.iter().filter(|(_, device)| device.seen);
    let found = match device {
        Some(device) => seen.find(|(index, _)| *index == DeviceIndex(device)),
        None => seen.next(),
    };
    Ok(found.map(|(index, device)| {
        let state = device.state();
        Stats {
            device: index.0,
            position: end,
            step: device.step,
            torch: state.settings().torch(),
            conf: state.settings().text().to_owned(),
            limit_bytes: state.limit(),
            device_bytes: whole.device_bytes(),
            stats: state.statistics().clone(),
        }
    }))
}
