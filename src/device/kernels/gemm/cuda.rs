//! Matrix products: cuBLASLt's if it has one, otherwise vramlab's own kernel for any strides.

use super::Gemm;
use crate::MatrixView;
use crate::cuda::blas::Multiplication;
use crate::cuda::gpu::Gpu;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;

/// Rows and columns of the part of the product that one thread block computes.
const TILE: usize = 16;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Gemm) -> Result<(), Refusal> {
    let Gemm { m, n, k, batch, a, b, c, bias, alpha, beta } = kernel;
    let multiplication = Multiplication {
        sizes: [*m, *n, *k],
        batch: *batch,
        matrices: [*a, *b, *c],
        bias: *bias,
        alpha: *alpha,
        beta: *beta,
        scaled: None,
    };
    let Gpu { blas, scratch, precision, .. } = &mut *queue.gpu;
    let tf32 = precision.products_in_tf32;
    if blas.run(&multiplication, tf32, queue.stream, |bytes| Ok(scratch.take(bytes)?))? {
        return Ok(());
    }
    if a.dtype != b.dtype || bias.is_some_and(|bias| bias.dtype != c.dtype) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    let blocks = [blocks_of(*n, TILE), blocks_of(*m, TILE), blocks_of(*batch, 1)];
    let grid = Grid { blocks, threads: (TILE * TILE) as u32, shared: 0 };
    let view = |arguments: Arguments, view: &MatrixView| {
        arguments.at(view.address).count(view.row_stride).count(view.col_stride).count(view.batch_stride)
    };
    let arguments = view(view(view(Arguments::new(), a), b), c);
    let mut arguments = arguments.optional(bias.as_ref()).count(*m).count(*n).count(*k).float(*alpha).float(*beta);
    queue.launch("gemm", &[a.dtype, c.dtype], grid, &mut arguments)
}
