//! Launches of the CUDA kernels.

mod classifier;
mod plain;

use crate::cuda::queue::{Queue, Refusal};
use crate::kernels::Loss;

pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Loss) -> Result<(), Refusal> {
    match kernel {
        Loss::CrossEntropy { .. } | Loss::CrossEntropyBackward { .. } => classifier::launch(queue, kernel),
        _ => plain::launch(queue, kernel),
    }
}
