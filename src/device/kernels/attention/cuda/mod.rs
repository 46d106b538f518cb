//! Attention that never stores a matrix of scores: a thread block holds some queries (or keys) and iterates over tiles
//! of the keys (or queries). Backward iterates twice, for the gradients of keys and values and for those of the
//! queries, so that every sum has one owner and a fixed order.

mod mma;
mod plain;
mod problem;

use crate::kernels::Attention;
use crate::kernels::family::Family;
use mma::Mma;
use problem::{LogSumExp, Problem};

use crate::DType;
use crate::cuda::gpu::Gpu;
use crate::cuda::queue::{Queue, Refusal};

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Attention) -> Result<(), Refusal> {
    match *kernel {
        Attention::Forward { by: _, shape, q, k, v, out, logsumexp, lse_stride } => {
            let sums = LogSumExp { address: logsumexp.address, stride: lse_stride };
            let fits = logsumexp.dtype == DType::F32 && lse_stride >= shape.rows;
            let views = [q, k, v, out];
            let problem = Problem::new(shape, shape.rows, Some(sums), &views).filter(|_| fits);
            forward(queue, &problem.ok_or_else(|| Refusal::unsupported(kernel.name()))?)
        }
        Attention::Inference { by: _, shape, keys, q, k, v, out } => {
            let fits = !shape.causal || keys == shape.rows;
            let views = [q, k, v, out];
            let problem = Problem::new(shape, keys, None, &views).filter(|_| fits);
            forward(queue, &problem.ok_or_else(|| Refusal::unsupported(kernel.name()))?)
        }
        Attention::Backward { by: _, shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
            let sums = LogSumExp { address: logsumexp.address, stride: lse_stride };
            let fits = logsumexp.dtype == DType::F32 && lse_stride >= shape.rows;
            let views = [q, k, v, out, grad, dq, dk, dv];
            let problem = Problem::new(shape, shape.rows, Some(sums), &views).filter(|_| fits);
            backward(queue, &problem.ok_or_else(|| Refusal::unsupported(kernel.name()))?)
        }
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
