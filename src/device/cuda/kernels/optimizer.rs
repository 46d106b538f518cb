//! TODO-optimizer

use super::unsupported;
use crate::device::Kernel;
use crate::device::cuda::queue::{Queue, Refusal};

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    let _ = queue;
    Err(unsupported(kernel))
}
