//! Element by element.

use super::unsupported;
use crate::device::Kernel;
use crate::device::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};

const THREADS: u32 = 256;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    match kernel {
        Kernel::Fill { dst, value } => {
            let grid = Grid::row(blocks_of(dst.len, THREADS as usize), THREADS);
            #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
            let value = *value as f32;
            queue.launch("fill", &[dst.dtype], grid, &mut Arguments::new().operand(dst).count(dst.len).float(value))
        }
        _ => Err(unsupported(kernel)),
    }
}
