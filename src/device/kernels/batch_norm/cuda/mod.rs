//! Launches of the CUDA kernels.

mod activation;
mod columns;
mod plain;

use crate::cuda::queue::{Queue, Refusal};
use crate::kernels::BatchNorm;

pub(super) fn launch(queue: &mut Queue<'_>, kernel: &BatchNorm) -> Result<(), Refusal> {
    match kernel {
        BatchNorm::Activation { .. } | BatchNorm::ActivationBackward { .. } => activation::launch(queue, kernel),
        _ => plain::launch(queue, kernel),
    }
}
