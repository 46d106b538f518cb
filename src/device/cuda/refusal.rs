//! Why a kernel was not launched.

use super::driver::DriverFailure;
use crate::DeviceError;

/// Why a kernel was not launched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverFailure),
    /// A library refused.
    #[error("{library} answers {status}")]
    Library {
        /// `cuBLASLt`, `cuDNN`, `NVRTC`.
        library: &'static str,
        /// What it said.
        status: String,
    },
    /// No kernel for these operands.
    #[error("there is no kernel for {0}")]
    Unsupported(String),
}

impl Refusal {
    /// The refusal of a family that has no kernel for the given types.
    pub fn unsupported(kernel: &str) -> Self {
        Self::Unsupported(format!("{kernel} of these types"))
    }

    /// Turns the refusal into the device's error.
    pub fn of(self, operation: &'static str, device: &str) -> DeviceError {
        let device = device.to_owned();
        match self {
            Self::Driver(failure) if failure.lost() => DeviceError::Lost { device, reason: failure.to_string() },
            Self::Unsupported(reason) => DeviceError::Unsupported { operation, device, reason },
            refusal => DeviceError::Failed { operation, device, reason: refusal.to_string() },
        }
    }
}
