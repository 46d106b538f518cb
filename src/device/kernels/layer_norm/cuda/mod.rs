//! Launches of the CUDA kernels.

mod add;
mod plain;

use crate::cuda::queue::{Queue, Refusal};
use crate::kernels::LayerNorm;

pub(in crate::kernels) use plain::{column_parts, vectors};

pub(super) fn launch(queue: &mut Queue<'_>, kernel: &LayerNorm) -> Result<(), Refusal> {
    match kernel {
        LayerNorm::Forward { .. } | LayerNorm::Backward { .. } => plain::launch(queue, kernel),
        LayerNorm::Add { .. } | LayerNorm::AddBackward { .. } => add::launch(queue, kernel),
    }
}
