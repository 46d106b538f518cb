//! Cross-entropy of logits in one pass.

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal};
use crate::kernels::Loss;
use crate::kernels::family::Family;
use crate::{DType, Operand};

/// Threads that sum the rows' losses.
const SUMMING: u32 = 1024;

/// Sizes as a grid's rows and as 32-bit columns; `None` if a number does not fit.
struct GridShape {
    rows: u32,
    cols: u32,
    aligned: bool,
    threads: u32,
}

impl GridShape {
    fn of(logits: &Operand, cols: usize, stride: usize) -> Option<Self> {
        let size = usize::try_from(logits.dtype.size()).ok()?;
        let whole = cols > 0 && cols <= stride && logits.len.is_multiple_of(stride);
        let rows = u32::try_from(i32::try_from(logits.len.checked_div(stride)?).ok()?).ok()?;
        let aligned = logits.address.0.is_multiple_of(16) && (stride * size).is_multiple_of(16);
        let pieces = cols * size / 16;
        let threads = u32::try_from(pieces.next_multiple_of(32).clamp(32, 1024)).ok()?;
        whole.then_some(Self { rows, cols: u32::try_from(i32::try_from(cols).ok()?).ok()?, aligned, threads })
    }

    const fn grid(&self) -> Grid {
        Grid::row(self.rows, self.threads)
    }
}

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Loss) -> Result<(), Refusal> {
    match kernel {
        Loss::CrossEntropy { logits, targets, loss, total_weight, logsumexp, cols, stride } => {
            let shape = GridShape::of(logits, *cols, *stride).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
            if [loss, total_weight, logsumexp].iter().any(|x| x.dtype != DType::F32) || shape.rows == 0 {
                return Err(Refusal::unsupported(kernel.name()));
            }
            let losses = queue.scratch(8 * shape.rows as usize)?;
            let name = if shape.aligned { "cross_entropy_aligned" } else { "cross_entropy" };
            let mut arguments =
                Arguments::new().operand(logits).operand(targets).operand(logsumexp).at(losses).int(shape.cols);
            arguments = arguments.count(*stride);
            queue.launch(name, &[logits.dtype], shape.grid(), &mut arguments)?;
            let mut arguments =
                Arguments::new().at(losses).count(shape.rows as usize).operand(loss).operand(total_weight);
            queue.launch("cross_entropy_mean", &[], Grid::row(1, SUMMING), &mut arguments)
        }
        Loss::CrossEntropyBackward { grad, logits, targets, total_weight, logsumexp, cols, stride } => {
            let shape = GridShape::of(logits, *cols, *stride).ok_or_else(|| Refusal::unsupported(kernel.name()))?;
            if [grad, total_weight, logsumexp].iter().any(|x| x.dtype != DType::F32) {
                return Err(Refusal::unsupported(kernel.name()));
            }
            if shape.rows == 0 {
                return Ok(());
            }
            let name = if shape.aligned { "cross_entropy_backward_aligned" } else { "cross_entropy_backward" };
            let arguments = Arguments::new().operand(logits).operand(targets).operand(logsumexp).operand(grad);
            let mut arguments = arguments.operand(total_weight).int(shape.cols).count(*stride);
            queue.launch(name, &[logits.dtype], shape.grid(), &mut arguments)
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}
