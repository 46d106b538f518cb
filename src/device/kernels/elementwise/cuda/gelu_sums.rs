//! The gradient of GELU, with the sums of its columns.

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::cuda::rows::{VECTOR, place};
use crate::kernels::family::Family;
use crate::kernels::sums::cuda::add_shares;
use crate::kernels::{Elementwise, Sums};
use crate::{DType, Operand};

const THREADS: u32 = 256;
/// Threads of a block in one row, each for a vector of columns.
const ACROSS: usize = 32;
/// Rows that a block processes at once.
const ROWS: usize = 32;
/// Blocks that fit on a multiprocessor.
const RESIDENT: usize = 4;

/// [`Elementwise::GeluBackwardSum`].
pub(in crate::kernels::elementwise) fn gelu_backward_sum(
    queue: &mut Queue<'_>,
    kernel: &Elementwise,
) -> Result<(), Refusal> {
    let &Elementwise::GeluBackwardSum { src, grad, dst, sums, cols, tanh } = kernel else {
        return Err(Refusal::unsupported(kernel.name()));
    };
    let rows = src.len.checked_div(cols).unwrap_or(0);
    if rows * cols != src.len || sums.len != cols {
        return Err(Refusal::unsupported(kernel.name()));
    }
    let vector = VECTOR / src.dtype.size() as usize;
    let vectors = cols.is_multiple_of(vector)
        && [src, grad, dst].iter().all(|x| x.dtype == src.dtype && x.len == src.len && place(x) == 0);
    if rows == 0 || !vectors || !matches!(src.dtype, DType::F32 | DType::F16 | DType::Bf16) {
        Elementwise::GeluBackward { src, grad, dst, tanh }.on_cuda(queue)?;
        return Sums::Columns { src: dst, dst: sums, rows, cols }.on_cuda(queue);
    }
    let tiles = blocks_of(cols, ACROSS * vector);
    let wanted = (queue.multiprocessors() as usize * RESIDENT).div_ceil(tiles as usize);
    let each = rows.div_ceil(wanted).next_multiple_of(ROWS);
    let splits = rows.div_ceil(each);
    let address = queue.scratch(4 * splits * cols)?;
    let partial = Operand { address, dtype: DType::F32, len: splits * cols };
    let name = if tanh { "gelu_tanh_sums" } else { "gelu_erf_sums" };
    let grid = Grid { blocks: [tiles, blocks_of(splits, 1), 1], threads: THREADS, shared: 0 };
    let arguments = Arguments::new().operand(&src).operand(&grad).operand(&dst).operand(&partial);
    queue.launch(name, &[src.dtype], grid, &mut arguments.count(rows).count(each).count(cols))?;
    add_shares(queue, &partial, &sums, splits, 1.0)
}
