//! What can go wrong while training.

use std::sync::Arc;

use thiserror::Error;

use crate::device::DeviceError;
use crate::units::Bytes;

/// A step, or the making of a trainer, failed.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The allocator could not serve a request. The step was abandoned; parameters are as the last finished step left
    /// them and training can go on.
    #[error(
        "out of memory: {what} needs {requested} in one piece and {left} more can be reserved; take a smaller batch, \
         turn on a switch that saves memory, or raise the limit"
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: Bytes,
        /// What the driver, and the limit, would still give.
        left: Bytes,
        /// What the request was for.
        what: Arc<str>,
    },
    /// A kernel or copy failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The observer asked to stop. The step was abandoned.
    #[error("the step was stopped; call step again to go on")]
    Stopped,
    /// The workload can't be built or fed.
    #[error("{0}")]
    Workload(String),
    /// The source of batches ended or failed.
    #[error("no batch: {0}; check the file given with --data")]
    Data(String),
    /// The allocator refused an operation for a reason other than memory.
    #[error("the allocator refused: {0}; this is a bug of vramlab, please report it")]
    Allocator(String),
}

/// Why the ops of a step stop before its end.
///
/// Ops and models return it; [`super::Trainer`] turns it into a [`TrainError`].
#[derive(Debug)]
pub enum Interrupt {
    /// Something failed, or the observer asked to stop.
    Failed(TrainError),
    /// A recomputed segment has produced the last tensor that its backward needs: the rest is not run.
    EarlyStop,
}

impl From<TrainError> for Interrupt {
    fn from(error: TrainError) -> Self {
        Self::Failed(error)
    }
}

impl From<DeviceError> for Interrupt {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Interrupt> for TrainError {
    fn from(interrupt: Interrupt) -> Self {
        match interrupt {
            Interrupt::Failed(error) => error,
            Interrupt::EarlyStop => Self::Workload("a forward pass stopped early outside of a recompute".into()),
        }
    }
}

/// What ops and models return.
pub type OpResult<T> = Result<T, Interrupt>;
