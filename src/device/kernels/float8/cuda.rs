//! 8-bit floats: the scale of a tensor, its scaled values, and products of them.

use super::Float8;
use crate::cuda::blas::Multiplication;
use crate::cuda::gpu::Gpu;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::family::Family;
use crate::{DType, Operand, ScaleGroups};

const THREADS: u32 = 256;
/// Elements per thread, if there are enough for all blocks.
const EACH: usize = 16;
/// The most partial results, because one block reduces them all.
const PARTS: usize = 1024;
/// Columns of a block, and also its number of warps: each warp takes every 32nd row.
const WARP: usize = 32;

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
        Float8::AbsMax { src, dst, cols, groups, .. } if computes(&src) && dst.dtype == src.dtype && cols > 0 => {
            if dst.len == 0 {
                return Ok(());
            }
            let (name, grid) = match groups {
                ScaleGroups::Columns => ("abs_max_columns", Grid::row(blocks_of(cols, WARP), (WARP * WARP) as u32)),
                ScaleGroups::All | ScaleGroups::Rows => ("abs_max_rows", Grid::row(blocks_of(dst.len, 1), THREADS)),
            };
            let mut arguments = Arguments::new().operand(&src).count(src.len / cols).count(cols).operand(&dst);
            queue.launch(name, &[src.dtype], grid, &mut arguments)
        }
        Float8::Scale { amax, dst, most, power: true } if computes(&amax) && dst.dtype == DType::F32 => {
            if dst.len == 0 {
                return Ok(());
            }
            let grid = Grid::row(blocks_of(dst.len, THREADS as usize), THREADS);
            let mut arguments = Arguments::new().operand(&amax).operand(&dst).double(most).count(dst.len);
            queue.launch("float8_power", &[amax.dtype], grid, &mut arguments)
        }
        Float8::Scale { amax, dst, most, power: false }
            if computes(&amax) && dst.dtype == DType::F32 && dst.len == 1 =>
        {
            let mut arguments = Arguments::new().operand(&amax).operand(&dst).double(most);
            queue.launch("float8_scale", &[amax.dtype], Grid::row(1, 1), &mut arguments)
        }
        Float8::Quantize { src, scale, dst, cols, groups }
            if computes(&src) && rounds_to(dst.dtype, groups) && src.len == dst.len =>
        {
            if src.len == 0 {
                return Ok(());
            }
            let grid = Grid::row(blocks_of(src.len, THREADS as usize * EACH), THREADS);
            let arguments = Arguments::new().operand(&src).operand(&scale).operand(&dst).count(src.len);
            let (name, mut arguments) = match groups {
                ScaleGroups::All => ("quantize_float8", arguments),
                ScaleGroups::Rows => ("quantize_float8_rows", arguments.count(cols)),
                ScaleGroups::Columns => ("quantize_float8_columns", arguments.count(cols)),
            };
            queue.launch(name, &[src.dtype, dst.dtype], grid, &mut arguments)
        }
        Float8::Gemm { m, n, k, a, b, c, inverse, fast } => {
            // cuBLASLt accepts one number for each factor. Scales for rows and columns are powers of two, which round
            // nothing when applied afterwards, provided the type can hold the unscaled sums: f16 ends at 65,504, two
            // 8-bit factors at 200,704.
            let whole = inverse.iter().all(|factor| factor.len == 1);
            let parts = inverse[0].len == m
                && inverse[1].len == n
                && c.col_stride == 1
                && matches!(c.dtype, DType::F32 | DType::Bf16);
            if !(whole || parts) {
                return Err(Refusal::unsupported(kernel.name()));
            }
            let multiplication = Multiplication {
                sizes: [m, n, k],
                batch: 1,
                matrices: [a, b, c],
                bias: None,
                alpha: 1.0,
                beta: 0.0,
                scaled: Some((whole.then_some(inverse), fast)),
            };
            let Gpu { blas, scratch, .. } = &mut *queue.gpu;
            if !blas.run(&multiplication, false, queue.stream, |bytes| Ok(scratch.take(bytes)?))? {
                return Err(Refusal::unsupported(kernel.name()));
            }
            if whole || m * n == 0 {
                return Ok(());
            }
            let [of_rows, of_columns] = &inverse;
            let grid = Grid::row(blocks_of(m * n, THREADS as usize * EACH), THREADS);
            let arguments = Arguments::new().at(c.address).count(c.row_stride).operand(of_rows).operand(of_columns);
            queue.launch("scale_product", &[c.dtype], grid, &mut arguments.count(n).count(m * n))
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

/// True if there are kernels that round to a type with such scales: recipes with several scales use e4m3 for
/// everything.
const fn rounds_to(dtype: DType, groups: ScaleGroups) -> bool {
    match groups {
        ScaleGroups::All => dtype.float8_max().is_some(),
        ScaleGroups::Rows | ScaleGroups::Columns => matches!(dtype, DType::E4M3),
    }
}
