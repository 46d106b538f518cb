//! Why a device refuses.

use thiserror::Error;

use super::host::HostMemoryRefused;
use vramlab_allocator::units::StreamId;

/// A device's refusal. Out of memory is not among them: the allocator reports it.
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
    /// The device is lost: it fell off its bus, or a kernel broke its context.
    #[error("{device} is gone: {reason}")]
    Lost {
        /// Which device.
        device: String,
        /// What the driver said.
        reason: String,
    },
    /// The device does not have the requested stream.
    #[error("{operation} on {device}: it has no stream {}, which is a bug of vramlab", stream.0)]
    UnknownStream {
        /// The requested operation.
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
    /// A kernel needs more host memory than it may take. It did not run, or not completely.
    #[error("{operation} on {device} needs host memory: {refused}; take a smaller batch")]
    OutOfHostMemory {
        /// Which kernel.
        operation: &'static str,
        /// Which device.
        device: String,
        /// The refused request.
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
