//! Attention that never holds a matrix of scores: a block of threads keeps some queries (or keys) and goes over tiles of
//! the keys (or queries). Backward runs twice over the tiles, for the gradients of keys and values and for those of the
//! queries, so that every sum has one owner and a fixed order.

mod mma;
mod plain;

use mma::Mma;

use super::unsupported;
use crate::device::cuda::dnn;
use crate::device::cuda::queue::{Arguments, Queue, Refusal};
use crate::device::{AttentionShape, DType, HeadView, Kernel};
use crate::units::Address;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    match *kernel {
        Kernel::Attention { shape, q, k, v, out, logsumexp, lse_stride } => {
            let sums = Sums { address: logsumexp.address, stride: lse_stride };
            let fits = logsumexp.dtype == DType::F32 && lse_stride >= shape.rows;
            let views = [q, k, v, out];
            let problem = Problem::new(shape, shape.rows, Some(sums), &views).filter(|_| fits);
            forward(queue, &problem.ok_or_else(|| unsupported(kernel))?)
        }
        Kernel::AttentionInference { shape, keys, q, k, v, out } => {
            let fits = !shape.causal || keys == shape.rows;
            let views = [q, k, v, out];
            let problem = Problem::new(shape, keys, None, &views).filter(|_| fits);
            forward(queue, &problem.ok_or_else(|| unsupported(kernel))?)
        }
        Kernel::AttentionBackward { shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
            let sums = Sums { address: logsumexp.address, stride: lse_stride };
            let fits = logsumexp.dtype == DType::F32 && lse_stride >= shape.rows;
            let views = [q, k, v, out, grad, dq, dk, dv];
            let problem = Problem::new(shape, shape.rows, Some(sums), &views).filter(|_| fits);
            backward(queue, &problem.ok_or_else(|| unsupported(kernel))?)
        }
        _ => Err(unsupported(kernel)),
    }
}

fn forward(queue: &mut Queue<'_>, problem: &Problem<'_>) -> Result<(), Refusal> {
    if problem.is_empty() || dnn::attend(queue, &problem.of_library())? {
        return Ok(());
    }
    match Mma::choose(queue, problem) {
        Some(mma) => mma.forward(queue, problem),
        None => plain::forward(queue, problem),
    }
}

fn backward(queue: &mut Queue<'_>, problem: &Problem<'_>) -> Result<(), Refusal> {
    if problem.is_empty() || dnn::attend_backward(queue, &problem.of_library())? {
        return Ok(());
    }
    let delta = queue.scratch(problem.all_rows() * size_of::<f32>())?;
    plain::delta(queue, problem, delta)?;
    match Mma::choose(queue, problem) {
        Some(mma) => mma.backward(queue, problem, delta),
        None => plain::backward(queue, problem, delta),
    }
}

/// Logarithms of sums of exponents.
#[derive(Clone, Copy)]
struct Sums {
    address: Address,
    stride: usize,
}

/// What all kernels of one attention are given.
struct Problem<'a> {
    shape: AttentionShape,
    keys: usize,
    sums: Option<Sums>,
    views: &'a [HeadView],
    dtype: DType,
}

impl<'a> Problem<'a> {
    /// Nothing where there is no kernel for the types or the size of heads.
    fn new(shape: AttentionShape, keys: usize, sums: Option<Sums>, views: &'a [HeadView]) -> Option<Self> {
        let dtype = views.first()?.dtype;
        let one_type = views.iter().all(|view| view.dtype == dtype);
        let known = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        // A running maximum of scores is one of products only for a factor that keeps their order.
        let fits = shape.head_size <= plain::WIDEST && shape.scale >= 0.0;
        let counted = shape.rows.max(keys) <= i32::MAX as usize / 2;
        (one_type && known && fits && counted).then_some(Self { shape, keys, sums, views, dtype })
    }

    /// The same as cuDNN is asked for it.
    fn of_library(&self) -> dnn::Attention<'_> {
        let sums = self.sums.map(|sums| (sums.address, sums.stride));
        dnn::Attention { shape: &self.shape, keys: self.keys, views: self.views, sums }
    }

    fn is_empty(&self) -> bool {
        self.all_rows() * self.keys * self.shape.head_size == 0
    }

    fn heads(&self) -> usize {
        self.shape.batch * self.shape.heads
    }

    /// Queries of all heads.
    fn all_rows(&self) -> usize {
        self.heads() * self.shape.rows
    }

    /// Every row begins at a multiple of `n` elements in memory, and has one of them in it.
    fn aligned(&self, n: usize) -> bool {
        let bytes = self.dtype.size() * n as u64;
        let of_view = |view: &HeadView| {
            let strides = [view.batch_stride, view.head_stride, view.row_stride];
            view.address.0.is_multiple_of(bytes) && strides.iter().all(|stride| stride.is_multiple_of(n))
        };
        self.shape.head_size.is_multiple_of(n) && self.views.iter().all(of_view)
    }

    /// The arguments of a kernel that moves `n` elements at once where it can; those of backward end with `delta`.
    fn arguments(&self, n: usize, delta: Option<Address>) -> Arguments {
        let shape = &self.shape;
        let (sums, stride) = self.sums.map_or((0, 0), |sums| (sums.address.0, sums.stride));
        let mut fields = Vec::with_capacity(9 + 4 * self.views.len());
        fields.extend([shape.heads, shape.rows, self.keys, shape.head_size].map(|n| n as u64));
        fields.extend([u64::from(shape.causal), u64::from(self.aligned(n)), sums, stride as u64]);
        for view in self.views {
            let strides = [view.batch_stride, view.head_stride, view.row_stride];
            fields.push(view.address.0);
            fields.extend(strides.map(|stride| stride as u64));
        }
        fields.extend(delta.map(|address| address.0));
        Arguments::new().float(shape.scale).structure(&fields)
    }
}
