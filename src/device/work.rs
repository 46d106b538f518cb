//! The abstract cost of a kernel: arithmetic, memory traffic, and its launches in PyTorch's eager mode.
//!
//! A simulated device turns this into time. The cost is that of PyTorch's chain of kernels, which is longer than
//! vramlab's in places: the fused optimizer of this crate stands for ten passes over all parameters in the foreach
//! form.

use super::attention::FusedAttention;
use super::operand::{DType, MatrixView, Operand};

/// Kernels that reach the same share of a device's peak rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpClass {
    /// Reads and writes runs of elements of one type.
    Elementwise,
    /// Reads one type or layout and writes another.
    Convert,
    /// Reads in one layout's order and writes in another's, so that not both can use whole lines.
    Transpose,
    /// Sums over rows.
    Reduction,
    /// Layer norm.
    Norm,
    /// Its gradients.
    NormBackward,
    /// Batch norm: a thread block per channel.
    BatchNorm,
    /// Its gradients.
    BatchNormBackward,
    /// Row-wise softmax, log-softmax and their gradients.
    Softmax,
    /// Sums rows by index.
    Scatter,
    /// Pooling windows.
    Pool,
    /// A matrix product.
    Gemm {
        /// The largest power of two, at most 16, that divides the byte offset of every row of every operand.
        alignment: u64,
        /// The number of factors whose inner dimension is contiguous.
        inner_contiguous: u8,
        /// Length of the inner dimension.
        inner: usize,
    },
    /// A convolution.
    Convolution {
        /// True for one of its gradients.
        backward: bool,
        /// True if its kernel covers one pixel.
        pointwise: bool,
        /// The smaller number of channels.
        channels: usize,
    },
    /// Scaled dot-product attention.
    Attention(FusedAttention),
    /// Its gradients.
    AttentionBackward(FusedAttention),
    /// Passes of a multi-tensor optimizer.
    Optimizer,
}

/// The cost of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The class, which decides the share of the peaks that is reached.
    pub class: OpClass,
    /// Type of the factors, which decides the peak.
    pub dtype: DType,
    /// Floating-point operations of matrix products; zero if memory traffic decides the time.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Thread blocks that can run concurrently.
    pub blocks: f64,
    /// Kernels that PyTorch's eager mode launches for it.
    pub kernels: u32,
    /// The work of PyTorch's host thread, in multiples of a usual op: one call from Python or from the backward pass,
    /// with the views around it.
    pub dispatches: f64,
}

/// Enough thread blocks for any device.
const PLENTY: f64 = 1e9;
/// Dispatches of a cast by autocast, which involves no Python.
pub(crate) const CAST: f64 = 0.38;

impl Work {
    pub(crate) const fn of(class: OpClass, dtype: DType) -> Self {
        Self { class, dtype, flops: 0.0, bytes: 0.0, blocks: PLENTY, kernels: 1, dispatches: 1.0 }
    }

    /// One pass that reads and writes `operands`.
    pub(crate) fn pass(class: OpClass, operands: &[&Operand]) -> Self {
        let dtype = operands.first().map_or(DType::F32, |operand| operand.dtype);
        Self { bytes: operands.iter().map(|operand| size(operand)).sum(), ..Self::of(class, dtype) }
    }

    /// The same, but the types of operands decide the class: a kernel over mixed types reads element by element.
    pub(crate) fn elementwise(operands: &[&Operand]) -> Self {
        let mixed = operands.windows(2).any(|pair| pair[0].dtype != pair[1].dtype && pair[1].len > 1);
        Self::pass(if mixed { OpClass::Convert } else { OpClass::Elementwise }, operands)
    }

    pub(crate) const fn launches(mut self, kernels: u32, dispatches: f64) -> Self {
        self.kernels = kernels;
        self.dispatches = dispatches;
        self
    }

    pub(crate) fn gemm([m, n, k]: [usize; 3], batch: usize, [a, b, c]: [&MatrixView; 3]) -> Self {
        let alignment = [a, b, c].map(alignment).into_iter().min().unwrap_or(16);
        let inner_contiguous = u8::from(a.col_stride == 1) + u8::from(b.row_stride == 1);
        let elements = batch * (m * k + k * n + m * n);
        Self {
            flops: 2.0 * count(batch) * count(m) * count(n) * count(k),
            bytes: count(elements) * count_bytes(a.dtype),
            blocks: count(batch * m.div_ceil(128) * n.div_ceil(128)),
            ..Self::of(OpClass::Gemm { alignment, inner_contiguous, inner: k }, a.dtype)
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
pub(crate) const fn count(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "8 at most")]
pub(crate) const fn count_bytes(dtype: DType) -> f64 {
    dtype.size() as f64
}

pub(crate) const fn size(operand: &Operand) -> f64 {
    count(operand.len) * count_bytes(operand.dtype)
}

/// The largest power of two, at most 16, that divides the distance of rows in bytes.
fn alignment(view: &MatrixView) -> u64 {
    let leading = view.row_stride.max(view.col_stride) as u64 * view.dtype.size();
    1 << leading.trailing_zeros().min(4)
}
