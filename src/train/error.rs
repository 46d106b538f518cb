//! What can go wrong while training.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use vramlab_allocator::units::Bytes;
use vramlab_device::{DeviceError, HostMemoryRefused};

/// A step, or the making of a trainer, failed.
#[derive(Debug, Error)]
pub enum TrainError {
    /// A request for memory failed. The step was abandoned; parameters are as the last finished step left them, and
    /// training can go on.
    #[error("out of {kind}: {what} needs {requested} in one piece and {left} more can be {}; {}", kind.taken(), kind.remedy())]
    OutOfMemory {
        /// Which memory.
        kind: MemoryKind,
        /// Bytes asked for.
        requested: Bytes,
        /// Bytes that the driver or the system would still give under the limit.
        left: Bytes,
        /// What the request was for.
        what: Arc<str>,
    },
    /// A micro-batch has too few samples for the model.
    #[error(
        "batch norm needs micro-batches of {needed}; raise batch or accumulate less (one value per channel, with {given} \
         sample, has no variance)"
    )]
    TooFewSamples {
        /// Samples of a micro-batch.
        given: usize,
        /// The fewest samples that the model takes.
        needed: usize,
    },
    /// The attention kernel that was chosen does not take the inputs. The sentence begins as PyTorch's RuntimeError.
    #[error("No available kernel. Aborting execution. {kernel} {why}")]
    NoKernel {
        /// The kernel.
        kernel: &'static str,
        /// Which property of the inputs it does not take.
        why: String,
    },
    /// There is no 8-bit product for these sizes, or on this card. The sentence begins with the op that refuses it in PyTorch.
    #[error("torch._scaled_mm {0}")]
    NoFloat8(String),
    /// The gradient scaler unscales the gradients of one optimizer; with Muon there are two.
    #[error("gradients of two optimizers are not unscaled here; use --amp bf16, or --opt adamw")]
    TwoOptimizers,
    /// The gradient scaler does not unscale gradients in fp16, which fp16 weights have. The sentence begins as PyTorch's ValueError.
    #[error("Attempting to unscale FP16 gradients. Turn autocast off, train adapters alone, or give --weights fp32")]
    Fp16Gradients,
    /// A kernel or copy failed.
    #[error(transparent)]
    Device(DeviceError),
    /// The observer asked to stop. The step was abandoned.
    #[error("the step was stopped; call step again to go on")]
    Stopped,
    /// The workload can't be built or fed.
    #[error("{0}")]
    Workload(String),
    /// The source of batches ended or failed.
    #[error("no batch: {0}; check the file given with --data")]
    Data(String),
    /// Another rank, for which this one waits, has ended.
    #[error("rank {0} has ended, and this one can't go on without it")]
    RankEnded(usize),
    /// The allocator refused an operation for a reason other than memory.
    #[error("the allocator refused: {0}; this is a bug of vramlab, please report it")]
    Allocator(String),
}

/// Memory that can run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The device's, through the allocator.
    Device,
    /// The host's: batches on their way, offloaded tensors, scratch of the processor's kernels.
    Host,
}

impl MemoryKind {
    const fn taken(self) -> &'static str {
        match self {
            Self::Device => "reserved",
            Self::Host => "taken",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Device => "take a smaller batch, turn on a switch that saves memory, or raise the limit",
            Self::Host => "take a smaller batch, turn offload or pinned memory off, or raise the limit",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "memory",
            Self::Host => "host memory",
        })
    }
}

impl From<DeviceError> for TrainError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::OutOfHostMemory { operation, refused, .. } => Self::of_host(operation, refused),
            other => Self::Device(other),
        }
    }
}

impl TrainError {
    /// Whether the configuration can't be trained with any amount of memory, while another can.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::TooFewSamples { .. } | Self::NoKernel { .. } | Self::NoFloat8(_) | Self::TwoOptimizers)
    }

    /// Host memory for `what` was refused.
    pub(crate) fn of_host(what: &str, refused: HostMemoryRefused) -> Self {
        let HostMemoryRefused { requested, left } = refused;
        Self::OutOfMemory { kind: MemoryKind::Host, requested, left, what: what.into() }
    }
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
