//! Why a device refuses.

use thiserror::Error;

use super::host::HostMemoryRefused;
use vramlab_allocator::units::StreamId;

/// A device refused. Out of memory is not among these: it comes from the allocator.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The device can't be used at all.
    #[error("{device}: {reason}")]
    Unavailable {
        /// Which device.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Nothing works on the device any more: it fell off its bus, or a kernel broke its context.
    #[error("{device} is gone: {reason}")]
    Lost {
        /// Which device.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// It was asked to work on a stream that it has not.
    #[error("{operation} on {device}: it has no stream {}, which is a bug of vramlab", stream.0)]
    UnknownStream {
        /// What was asked for.
        operation: &'static str,
        /// Which device.
        device: String,
        /// The stream.
        stream: StreamId,
    },
    /// There is no kernel for operands of these types.
    #[error("{device} has no kernel for {reason}")]
    Unsupported {
        /// Which kernel.
        operation: &'static str,
        /// Which device.
        device: String,
        /// The kernel and its operands.
        reason: String,
    },
    /// A kernel needs more host memory than may be taken. It did not run, or not to its end.
    #[error("{operation} on {device} needs host memory: {refused}; take a smaller batch")]
    OutOfHostMemory {
        /// Which kernel.
        operation: &'static str,
        /// Which device.
        device: String,
        /// What it asked for.
        refused: HostMemoryRefused,
    },
    /// A kernel or copy failed.
    #[error("{operation} failed on {device}: {reason}")]
    Failed {
        /// Which kernel or copy.
        operation: &'static str,
        /// Which device.
        device: String,
        /// What the device said.
        reason: String,
    },
}
