//! 8-bit floats: the scale of a tensor, its values under it, and products of them.

use super::Float8;
use crate::cuda::blas::Multiplication;
use crate::cuda::gpu::Gpu;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use crate::{DType, Operand, ScaleGroups};

const THREADS: u32 = 256;
/// Elements that one thread looks at, where there are enough for all blocks.
const EACH: usize = 16;
/// Partial results at most: one block reduces them.
const PARTS: usize = 1024;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Float8) -> Result<(), Refusal> {
    match *kernel {
        Float8::AbsMax { src, dst, groups: ScaleGroups::All, .. }
            if computes(&src) && computes(&dst) && dst.len == 1 && src.len > 0 =>
        {
            let blocks = src.len.div_ceil(THREADS as usize * EACH).min(PARTS);
            let parts = match blocks {
                1 => dst,
                _ => Operand { address: queue.scratch(4 * blocks)?, dtype: DType::F32, len: blocks },
            };
            largest(queue, &src, &parts, blocks)?;
            if blocks == 1 { Ok(()) } else { largest(queue, &parts, &dst, 1) }
        }
        Float8::Scale { amax, dst, most, power: false }
            if computes(&amax) && dst.dtype == DType::F32 && dst.len == 1 =>
        {
            let mut arguments = Arguments::new().operand(&amax).operand(&dst).double(most);
            queue.launch("float8_scale", &[amax.dtype], Grid::row(1, 1), &mut arguments)
        }
        Float8::Quantize { src, scale, dst, groups: ScaleGroups::All, .. }
            if computes(&src) && dst.dtype.float8_max().is_some() && src.len == dst.len =>
        {
            if src.len == 0 {
                return Ok(());
            }
            let grid = Grid::row(blocks_of(src.len, THREADS as usize * EACH), THREADS);
            let mut arguments = Arguments::new().operand(&src).operand(&scale).operand(&dst).count(src.len);
            queue.launch("quantize_float8", &[src.dtype, dst.dtype], grid, &mut arguments)
        }
        Float8::Gemm { m, n, k, a, b, c, inverse, fast } if inverse.iter().all(|factor| factor.len == 1) => {
            let multiplication = Multiplication {
                sizes: [m, n, k],
                batch: 1,
                matrices: [a, b, c],
                bias: None,
                alpha: 1.0,
                beta: 0.0,
                scaled: Some((inverse, fast)),
            };
            let Gpu { blas, scratch, .. } = &mut *queue.gpu;
            match blas.run(&multiplication, false, queue.stream, |bytes| Ok(scratch.take(bytes)?))? {
                true => Ok(()),
                false => Err(Refusal::unsupported(kernel.name())),
            }
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

fn largest(queue: &mut Queue<'_>, src: &Operand, dst: &Operand, blocks: usize) -> Result<(), Refusal> {
    let mut arguments = Arguments::new().operand(src).count(src.len).operand(dst);
    queue.launch("abs_max", &[src.dtype, dst.dtype], Grid::row(blocks_of(blocks, 1), THREADS), &mut arguments)
}

const fn computes(operand: &Operand) -> bool {
    matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16)
}
