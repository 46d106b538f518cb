//! Attention that never holds a matrix of scores: a block of threads keeps some queries (or keys) and goes over tiles of
//! the keys (or queries). Backward runs twice over the tiles, for the gradients of keys and values and for those of the
//! queries, so that every sum has one owner and a fixed order.

mod mma;
mod plain;
mod problem;

use mma::Mma;
use problem::{Problem, Sums};

use crate::cuda::gpu::Gpu;
use crate::cuda::queue::{Queue, Refusal};
use crate::{DType, Kernel};

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    match *kernel {
        Kernel::Attention { by: _, shape, q, k, v, out, logsumexp, lse_stride } => {
            let sums = Sums { address: logsumexp.address, stride: lse_stride };
            let fits = logsumexp.dtype == DType::F32 && lse_stride >= shape.rows;
            let views = [q, k, v, out];
            let problem = Problem::new(shape, shape.rows, Some(sums), &views).filter(|_| fits);
            forward(queue, &problem.ok_or_else(|| Refusal::unsupported(kernel))?)
        }
        Kernel::AttentionInference { by: _, shape, keys, q, k, v, out } => {
            let fits = !shape.causal || keys == shape.rows;
            let views = [q, k, v, out];
            let problem = Problem::new(shape, keys, None, &views).filter(|_| fits);
            forward(queue, &problem.ok_or_else(|| Refusal::unsupported(kernel))?)
        }
        Kernel::AttentionBackward { by: _, shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
            let sums = Sums { address: logsumexp.address, stride: lse_stride };
            let fits = logsumexp.dtype == DType::F32 && lse_stride >= shape.rows;
            let views = [q, k, v, out, grad, dq, dk, dv];
            let problem = Problem::new(shape, shape.rows, Some(sums), &views).filter(|_| fits);
            backward(queue, &problem.ok_or_else(|| Refusal::unsupported(kernel))?)
        }
        _ => Err(Refusal::unsupported(kernel)),
    }
}

fn forward(queue: &mut Queue<'_>, problem: &Problem<'_>) -> Result<(), Refusal> {
    let Gpu { dnn, scratch, .. } = &mut *queue.gpu;
    if problem.is_empty() || dnn.attend(&problem.of_library(), scratch, queue.stream)? {
        return Ok(());
    }
    match Mma::choose(queue, problem) {
        Some(mma) => mma.forward(queue, problem),
        None => plain::forward(queue, problem),
    }
}

fn backward(queue: &mut Queue<'_>, problem: &Problem<'_>) -> Result<(), Refusal> {
    let Gpu { dnn, scratch, properties, .. } = &mut *queue.gpu;
    if problem.is_empty() || dnn.attend_backward(&problem.of_library(), properties.capability, scratch, queue.stream)? {
        return Ok(());
    }
    let delta = queue.scratch(problem.all_rows() * size_of::<f32>())?;
    plain::delta(queue, problem, delta)?;
    match Mma::choose(queue, problem) {
        Some(mma) => mma.backward(queue, problem, delta),
        None => plain::backward(queue, problem, delta),
    }
}
