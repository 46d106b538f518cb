//! Losses and their gradients.

use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::Loss;
use crate::kernels::family::Family;
use crate::{DType, Operand};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Rows or elements whose loads a thread has in flight at the same time.
const UNROLL: usize = 4;
/// The most blocks that share a mean, because one block joins their shares.
const MOST_BLOCKS: u32 = 512;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Loss) -> Result<(), Refusal> {
    let computes = |operand: Operand| matches!(operand.dtype, DType::F32 | DType::F16 | DType::Bf16);
    match *kernel {
        Loss::Nll { logp, targets, loss, total_weight, cols }
            if computes(logp) && computes(loss) && loss.dtype == total_weight.dtype && targets.dtype == DType::I64 =>
        {
            let (blocks, shares) = shares(queue, targets.len)?;
            let arguments = Arguments::new().operand(&logp).operand(&targets).at(shares).operand(&loss);
            let arguments = arguments.operand(&total_weight).count(targets.len).count(cols);
            queue.launch("nll_loss", &[logp.dtype, loss.dtype], Grid::row(blocks, THREADS), &mut { arguments })?;
            put_together(queue, blocks, shares, &loss, Some(&total_weight))
        }
        Loss::NllBackward { grad, targets, total_weight, dst, cols }
            if computes(dst) && computes(grad) && grad.dtype == total_weight.dtype && targets.dtype == DType::I64 =>
        {
            if dst.len == 0 {
                return Ok(());
            }
            let grid =
                Grid::row(blocks_of(dst.len, THREADS as usize * UNROLL * (16 / dst.dtype.size() as usize)), THREADS);
            let arguments = Arguments::new().operand(&grad).operand(&targets).operand(&total_weight).operand(&dst);
            let types = [dst.dtype, grad.dtype];
            queue.launch("nll_loss_backward", &types, grid, &mut arguments.count(dst.len).count(cols))
        }
        Loss::BceWithLogits { logits, targets, loss }
            if computes(logits) && computes(targets) && loss.dtype == logits.dtype =>
        {
            let (blocks, shares) = shares(queue, logits.len)?;
            let arguments = Arguments::new().operand(&logits).operand(&targets).at(shares).operand(&loss);
            let grid = Grid::row(blocks, THREADS);
            queue.launch("bce", &[logits.dtype, targets.dtype], grid, &mut arguments.count(logits.len))?;
            put_together(queue, blocks, shares, &loss, None)
        }
        Loss::BceWithLogitsBackward { grad, logits, targets, dst }
            if computes(logits) && computes(targets) && grad.dtype == logits.dtype && dst.dtype == logits.dtype =>
        {
            if dst.len == 0 {
                return Ok(());
            }
            let grid = Grid::row(blocks_of(dst.len, THREADS as usize * UNROLL), THREADS);
            let arguments = Arguments::new().operand(&grad).operand(&logits).operand(&targets).operand(&dst);
            queue.launch("bce_backward", &[logits.dtype, targets.dtype], grid, &mut arguments.count(dst.len))
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

/// The number of blocks for a mean of `terms`, and memory for their shares: a sum and a number of terms each.
fn shares(queue: &mut Queue<'_>, terms: usize) -> Result<(u32, Address), Refusal> {
    let blocks = blocks_of(terms, THREADS as usize * UNROLL).min(MOST_BLOCKS);
    Ok((blocks, if blocks > 1 { queue.scratch(8 * blocks as usize)? } else { Address(0) }))
}

/// Computes the mean from the shares of several blocks.
fn put_together(
    queue: &mut Queue<'_>,
    blocks: u32,
    shares: Address,
    loss: &Operand,
    weight: Option<&Operand>,
) -> Result<(), Refusal> {
    if blocks == 1 {
        return Ok(());
    }
    let arguments = Arguments::new().at(shares).operand(loss).optional(weight).int(blocks);
    queue.launch("mean_of_shares", &[loss.dtype], Grid::row(1, THREADS), &mut { arguments })
}
