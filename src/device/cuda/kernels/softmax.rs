//! Softmax, log-softmax and their gradients.

use super::rows::{Rows, VECTOR, place, threads_of};
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::{Kernel, Operand};

/// Threads of a block where several rows share one.
const THREADS: u32 = 128;
/// The longest row that a warp holds in registers.
const WARP_ROW: usize = 1024;

/// The four kernels of one of the functions.
struct Variants {
    /// One slot a thread, rows of up to 32 slots.
    slot: &'static str,
    /// Rows of up to [`WARP_ROW`] elements.
    warp: &'static str,
    /// Rows that shared memory has room for.
    held: &'static str,
    /// Any rows.
    any: &'static str,
}

macro_rules! names {
    ($name:literal) => {
        &Variants {
            slot: concat!($name, "_slot"),
            warp: concat!($name, "_warp"),
            held: concat!($name, "_held"),
            any: concat!($name, "_any"),
        }
    };
}

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    let (names, operands, cols): (_, &[&Operand], _) = match kernel {
        Kernel::Softmax { src, dst, cols } => (names!("softmax"), &[src, dst], *cols),
        Kernel::LogSoftmax { src, dst, cols } => (names!("log_softmax"), &[src, dst], *cols),
        Kernel::SoftmaxBackward { output, grad, dst, cols } => {
            (names!("softmax_backward"), &[output, grad, dst], *cols)
        }
        Kernel::LogSoftmaxBackward { output, grad, dst, cols } => {
            (names!("log_softmax_backward"), &[output, grad, dst], *cols)
        }
        _ => return Err(Refusal::unsupported(kernel)),
    };
    rows(queue, names, operands, cols).unwrap_or_else(|| Err(Refusal::unsupported(kernel)))
}

/// Launches the kernel for rows of this length; `None` where there is none for these operands.
fn rows(queue: &mut Queue<'_>, names: &Variants, operands: &[&Operand], cols: usize) -> Option<Result<(), Refusal>> {
    let first = *operands.first()?;
    let rows = Rows::of(first, cols)?;
    if operands.iter().any(|x| (x.dtype, x.len) != (first.dtype, first.len)) {
        return None;
    }
    if rows.rows == 0 {
        return Some(Ok(()));
    }
    let arguments = operands.iter().fold(Arguments::new(), |arguments, operand| arguments.operand(operand));
    let each = rows.vector;
    let aligned = place(first) == 0 && cols.is_multiple_of(each);
    // Slots that a row touches, wherever it begins.
    let slots = if aligned { cols / each } else { (cols + 2 * (each - 1)) / each };
    let shared = (cols + each) * VECTOR / each;
    let (name, grid, mut arguments) = if operands.iter().any(|x| place(x) != place(first)) {
        (names.any, Grid::row(rows.grid, threads_of(cols)), arguments.int(rows.width))
    } else if slots <= WARP_ROW / each {
        let lanes = slots.next_power_of_two().min(32);
        let name = if slots <= 32 { names.slot } else { names.warp };
        let grid = Grid::row(blocks_of(rows.rows * lanes, THREADS as usize), THREADS);
        (name, grid, arguments.count(rows.rows).int(rows.width).int(blocks_of(lanes, 1)))
    } else if shared <= shared_memory(queue.capability()) {
        let grid = Grid::row(rows.grid, threads_of(slots)).with_shared(blocks_of(shared, 1));
        (names.held, grid, arguments.int(rows.width))
    } else {
        (names.any, Grid::row(rows.grid, threads_of(cols)), arguments.int(rows.width))
    };
    Some(queue.launch(name, &[first.dtype], grid, &mut arguments))
}

/// Dynamic shared memory that a block may have.
const fn shared_memory(capability: u32) -> usize {
    let all = match capability {
        75 => 64,
        80 | 87 => 163,
        86 | 88 | 89 | 120.. => 99,
        90..120 => 227,
        _ => 48,
    };
    // What kernels have of their own.
    (all << 10) - 1024
}
