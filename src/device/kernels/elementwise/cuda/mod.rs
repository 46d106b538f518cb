//! What launches the CUDA C.

mod gelu_sums;
mod plain;

use crate::cuda::queue::{Queue, Refusal};
use crate::kernels::Elementwise;

pub(in crate::kernels) use plain::zero;

pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Elementwise) -> Result<(), Refusal> {
    match kernel {
        Elementwise::GeluBackwardSum { .. } => gelu_sums::launch(queue, kernel),
        _ => plain::launch(queue, kernel),
    }
}
