//! What a kernel costs in the abstract: arithmetic, memory traffic, and how PyTorch's eager mode would launch it.
//!
//! A simulated device turns this into time. Counted is the chain of kernels that PyTorch launches, which is longer than
//! ours in places: the fused optimizer of this crate stands for ten passes over all parameters in the foreach form.

use super::kernel::{AttentionShape, FusedAttention, Kernel, ParameterUpdate, UpdatePasses};
use super::operand::{DType, MatrixView, Operand};
use super::rotary::RotaryPass;
use super::shape::{ChannelShape, ConvShape};
use vramlab_allocator::units::Address;

/// Kernels that reach the same share of a device's rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpClass {
    /// Reads and writes runs of elements of one type.
    Elementwise,
    /// Reads one type or layout and writes another.
    Convert,
    /// Reads along one layout and writes along another: neither can be read in whole lines.
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
        /// Bytes that every row of every operand begins at a multiple of, 16 at most.
        alignment: u64,
        /// How many of the two factors have their inner dimension contiguous.
        inner_contiguous: u8,
        /// Length of the inner dimension.
        inner: usize,
    },
    /// A convolution.
    Convolution {
        /// One of its gradients.
        backward: bool,
        /// Its kernel covers one pixel.
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
    /// Decides which share of the peaks is reached.
    pub class: OpClass,
    /// Type of the factors: decides the peak.
    pub dtype: DType,
    /// Floating-point operations of matrix products; zero where memory traffic decides.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Thread blocks that can run side by side.
    pub blocks: f64,
    /// Kernels that PyTorch's eager mode launches for it.
    pub kernels: u32,
    /// What PyTorch's host thread does for it, in usual ops: one call from Python or from the backward pass, with the
    /// views around it.
    pub dispatches: f64,
}

/// An operand that is not there.
const NOTHING: Operand = Operand { address: Address(0), dtype: DType::U8, len: 0 };
/// Enough thread blocks for any device.
const PLENTY: f64 = 1e9;
/// Tensors whose addresses fit in the arguments of one multi-tensor kernel (about; it falls with their number of lists).
const TENSORS_PER_LAUNCH: usize = 36;
/// Dispatches that a foreach op costs the host: the op itself, and each tensor in its lists.
const FOREACH: f64 = 0.3;
const FOREACH_TENSOR: f64 = 0.012;
/// Dispatches of a cast that autocast makes: no Python.
const CAST: f64 = 0.38;

impl Work {
    const fn of(class: OpClass, dtype: DType) -> Self {
        Self { class, dtype, flops: 0.0, bytes: 0.0, blocks: PLENTY, kernels: 1, dispatches: 1.0 }
    }

    /// One pass that reads and writes `operands`.
    fn pass(class: OpClass, operands: &[&Operand]) -> Self {
        let dtype = operands.first().map_or(DType::F32, |operand| operand.dtype);
        Self { bytes: operands.iter().map(|operand| size(operand)).sum(), ..Self::of(class, dtype) }
    }

    /// The same where the types of operands decide: a kernel over mixed types reads element by element.
    fn elementwise(operands: &[&Operand]) -> Self {
        let mixed = operands.windows(2).any(|pair| pair[0].dtype != pair[1].dtype && pair[1].len > 1);
        Self::pass(if mixed { OpClass::Convert } else { OpClass::Elementwise }, operands)
    }

    const fn launches(mut self, kernels: u32, dispatches: f64) -> Self {
        self.kernels = kernels;
        self.dispatches = dispatches;
        self
    }

    fn gemm([m, n, k]: [usize; 3], batch: usize, [a, b, c]: [&MatrixView; 3]) -> Self {
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

    /// A product of `rows` rows in all with (or into) one matrix of each of `groups`; `bytes` is what the rest moves. Tiles begin anew
    /// with every group, and one kernel sets the products of all up.
    fn grouped_gemm([rows, n, k]: [usize; 3], groups: usize, bytes: f64, dtype: DType) -> Self {
        let tiles = rows.div_ceil(128) + groups;
        Self {
            flops: 2.0 * count(rows) * count(n) * count(k),
            bytes: bytes + count(groups * n * k) * count_bytes(dtype),
            blocks: count(tiles * n.div_ceil(128)),
            ..Self::of(OpClass::Gemm { alignment: 16, inner_contiguous: 2, inner: k }, dtype)
        }
        .launches(2, 1.5)
    }

    fn convolution(shape: &ConvShape, dtype: DType, backward: bool) -> Self {
        let class = OpClass::Convolution {
            backward,
            pointwise: shape.kernel == 1,
            channels: shape.in_channels.min(shape.out_channels),
        };
        let pixels = shape.batch * shape.in_area().max(shape.out_area());
        Self {
            flops: 2.0 * count(shape.products()),
            bytes: count(shape.in_len() + shape.out_len() + shape.weight_len()) * count_bytes(dtype),
            blocks: count(pixels.div_ceil(128) * shape.out_channels.max(shape.in_channels).div_ceil(128)),
            ..Self::of(class, dtype)
        }
    }

    fn channels(class: OpClass, shape: &ChannelShape, dtype: DType, passes: usize) -> Self {
        // Statistics are computed in f32: 16-bit elements are no faster.
        let bytes = count(passes * shape.len()) * 4.0;
        Self { bytes, blocks: count(shape.channels), ..Self::of(class, dtype) }
    }

    fn attention(class: OpClass, shape: &AttentionShape, keys: usize, dtype: DType, products: f64) -> Self {
        // Whole tiles of 64 positions; causal attention skips the tiles above the diagonal, but none beside a mask.
        let (rows, keys) = (count(shape.rows.next_multiple_of(64)), count(keys.next_multiple_of(64)));
        let seen = if shape.causal && !shape.masked { 0.5 } else { 1.0 };
        let [heads, shared] = [shape.heads, shape.of_keys().heads].map(|heads| count(shape.batch * heads));
        Self {
            flops: 2.0 * products * heads * rows * keys * count(shape.head_size) * seen,
            bytes: 2.0 * (heads * rows + shared * keys) * count(shape.head_size) * count_bytes(dtype),
            blocks: heads * count(shape.rows.div_ceil(64)),
            ..Self::of(class, dtype)
        }
    }

    /// `passes` elementary operations over all parameters that move `bytes` per element in all.
    fn optimizer(updates: &[ParameterUpdate], passes: u32, bytes: f64) -> Self {
        let elements: f64 = updates.iter().map(|update| count(update.parameter.len)).sum();
        let launches = u32::try_from(updates.len().div_ceil(TENSORS_PER_LAUNCH)).unwrap_or(u32::MAX);
        Self { bytes: elements * bytes, ..Self::of(OpClass::Optimizer, DType::F32) }
            .launches(passes * launches, f64::from(passes) * (FOREACH + FOREACH_TENSOR * count(updates.len())))
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate of time")]
const fn count(n: usize) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "8 at most")]
const fn count_bytes(dtype: DType) -> f64 {
    dtype.size() as f64
}

const fn size(operand: &Operand) -> f64 {
    count(operand.len) * count_bytes(operand.dtype)
}

/// The largest power of two, 16 at most, that divides the distance of rows in bytes.
fn alignment(view: &MatrixView) -> u64 {
    let leading = view.row_stride.max(view.col_stride) as u64 * view.dtype.size();
    1 << leading.trailing_zeros().min(4)
}

impl Kernel<'_> {
    /// What it costs. The match names every kernel, so that none is forgotten.
    #[must_use]
    pub fn work(&self) -> Work {
        match self {
            Self::Fill { dst, .. } | Self::Arange { dst } => Work::pass(OpClass::Elementwise, &[dst]),
            // Zeros, then the diagonal.
            Self::Identity { dst, .. } => Work::pass(OpClass::Elementwise, &[dst]).launches(2, 1.0),
            Self::Cast { src, dst } => Work::elementwise(&[src, dst]).launches(1, CAST),
            Self::CopyStrided { dtype, shape, src_strides, dst_strides, .. } => {
                let class = if src_strides[3] == dst_strides[3] { OpClass::Convert } else { OpClass::Transpose };
                let elements = count(shape.iter().product());
                Work { bytes: 2.0 * elements * count_bytes(*dtype), ..Work::of(class, *dtype) }
            }
            Self::CastStrided { src_dtype, dst_dtype, shape, src_strides, dst_strides, .. } => {
                let class = if src_strides[3] == dst_strides[3] { OpClass::Convert } else { OpClass::Transpose };
                let bytes = count_bytes(*src_dtype) + count_bytes(*dst_dtype);
                Work { bytes: count(shape.iter().product()) * bytes, ..Work::of(class, *dst_dtype) }.launches(1, CAST)
            }
            Self::Gemm { m, n, k, batch, a, b, c, .. } => Work::gemm([*m, *n, *k], *batch, [a, b, c]),
            // Magnitudes, which are written, and a reduction of them; between both a copy in another order.
            Self::AbsMax { src, dst, copied, .. } => {
                let pass = Work::pass(OpClass::Reduction, &[src, src, src, dst]);
                if !copied {
                    return pass.launches(2, 2.0);
                }
                Work { bytes: pass.bytes + 2.0 * size(src), ..pass }.launches(3, 2.0)
            }
            // To f64, a bound, a reciprocal, a product, to f32; a logarithm, a whole number, a power.
            Self::Float8Scale { amax, dst, power, .. } => {
                let (launches, dispatches) = if *power { (8, 8.0) } else { (5, 5.0) };
                Work::pass(OpClass::Elementwise, &[amax, dst]).launches(launches, dispatches)
            }
            // To f32, where it is something else; a product, a bound, a cast.
            Self::QuantizeFloat8 { src, dst, .. } => {
                let to_f32 = if src.dtype == DType::F32 { 0.0 } else { size(src) + 4.0 * count(src.len) };
                let launches = if src.dtype == DType::F32 { 3 } else { 4 };
                let bytes = to_f32 + 20.0 * count(src.len) + size(dst);
                Work { bytes, ..Work::of(OpClass::Convert, DType::F32) }.launches(launches, 4.0)
            }
            Self::ScaledGemm { m, n, k, a, b, c, .. } => {
                let gemm = Work::gemm([*m, *n, *k], 1, [a, b, c]);
                let wider = count(m * n) * (count_bytes(c.dtype) - count_bytes(a.dtype));
                Work { bytes: gemm.bytes + wider, ..gemm }.launches(1, 3.0)
            }
            Self::ColumnSum { src, dst, .. } | Self::ChannelSum { src, dst, .. } => {
                Work::pass(OpClass::Reduction, &[src, dst])
            }
            Self::Mean { src, dst, .. } | Self::RowNorm { src, dst, .. } => Work::pass(OpClass::Reduction, &[src, dst]),
            Self::Add { a, b, dst }
            | Self::Sub { a, b, dst }
            | Self::Mul { a, b, dst }
            | Self::Div { a, b, dst }
            | Self::MulRows { a, b, dst, .. } => Work::elementwise(&[a, b, dst]),
            Self::Scale { src, dst, .. }
            | Self::AddScalar { src, dst, .. }
            | Self::Relu { src, dst }
            | Self::LeakyRelu { src, dst, .. }
            | Self::AtMost { src, dst, .. }
            | Self::Tanh { src, dst }
            | Self::Sigmoid { src, dst }
            | Self::Silu { src, dst }
            | Self::Rsqrt { src, dst }
            | Self::Gelu { src, dst, .. } => Work::elementwise(&[src, dst]),
            // PyTorch's mask of bytes is written by it, or read.
            Self::Dropout { src, dst, .. } => {
                let pass = Work::elementwise(&[src, dst]);
                Work { bytes: pass.bytes + count(dst.len), ..pass }
            }
            Self::ReluBackward { output, grad, dst }
            | Self::LeakyReluBackward { output, grad, dst, .. }
            | Self::SigmoidBackward { output, grad, dst }
            | Self::TanhBackward { output, grad, dst } => Work::elementwise(&[output, grad, dst]),
            Self::GeluBackward { src, grad, dst, .. }
            | Self::SiluBackward { src, grad, dst }
            | Self::AtMostBackward { src, grad, dst, .. } => Work::elementwise(&[src, grad, dst]),
            Self::GeluBackwardSum { src, grad, dst, .. } => Work::elementwise(&[src, grad, dst]).launches(2, 1.0),
            // An expanded gradient is divided.
            Self::MeanBackward { grad, dst, .. } => Work::elementwise(&[grad, dst]).launches(2, 1.5),
            Self::GatedSilu { gate, up, dst } => Work::elementwise(&[gate, up, dst]),
            Self::GatedSiluBackward { grad, gate, up, dgate, dup } => Work::elementwise(&[grad, gate, up, dgate, dup]),
            Self::RmsNorm { src, dst, .. } => Work::pass(OpClass::Norm, &[src, dst]),
            Self::RmsNormBackward { grad, src, dsrc, .. } => {
                Work::pass(OpClass::NormBackward, &[grad, src, dsrc]).launches(2, 1.0)
            }
            Self::LayerNorm { src, dst, .. } => Work::pass(OpClass::Norm, &[src, dst]),
            Self::LayerNormBackward { grad, src, dsrc, .. } => {
                Work::pass(OpClass::NormBackward, &[grad, src, dsrc]).launches(2, 1.0)
            }
            Self::AddLayerNorm { src, add, dst, copy, .. } => {
                let added = add.iter().flat_map(|(add, sum)| [add, sum]);
                Work::pass(OpClass::Norm, &[src, dst].into_iter().chain(added).chain(copy).collect::<Vec<_>>())
            }
            Self::AddLayerNormBackward { grad, second, residual, src, dsrc, copy, .. } => {
                let optional = [second, residual, copy].into_iter().flatten();
                let operands: Vec<_> = [src, grad, dsrc].into_iter().chain(optional).collect();
                Work::pass(OpClass::NormBackward, &operands).launches(2, 1.0)
            }
            Self::Embedding { dst, .. } => Work::pass(OpClass::Elementwise, &[dst, dst]),
            Self::EmbeddingBackward { grad, indices, dst, .. } => {
                let work = Work::pass(OpClass::Scatter, &[grad, dst]);
                // Many indices are sorted first: passes of a radix sort, then the distinct ones and their parts.
                if indices.len > 3072 { work.launches(16, 1.5) } else { work.launches(2, 1.2) }
            }
            // A product of positions and frequencies, put side by side; sine and cosine, each scaled and rounded.
            Self::RotaryTables { cos, sin, .. } => Work::elementwise(&[cos, sin, cos, sin, cos, sin]).launches(8, 9.0),
            // Products with both tables, a negated half, halves put together, a sum; backward fills two tensors with zeros and
            // copies a half into each, one of which is a copy of ours.
            Self::Rotary { shape, src, pass, .. } => {
                let (passes, launches, dispatches) = match pass {
                    RotaryPass::Forward(_) => (10.0, 5, 6.0),
                    RotaryPass::BackwardOfSine(_) => (9.0, 7, 4.0),
                    RotaryPass::BackwardOfCosine(_) => (3.0, 1, 1.0),
                };
                let bytes = passes * count(shape.len()) * count_bytes(src.dtype);
                Work { bytes, ..Work::of(OpClass::Elementwise, src.dtype) }.launches(launches, dispatches)
            }
            Self::QuantizeNf4 { src, dst, absmax } => Work::pass(OpClass::Reduction, &[src, absmax, dst]),
            Self::QuantizeBytes { src, dst, absmax, .. } => Work::pass(OpClass::Reduction, &[src, absmax, dst]),
            // What is written decides in which type it is converted.
            Self::DequantizeNf4 { src, absmax, dst } | Self::DequantizeBytes { src, absmax, dst, .. } => {
                Work::pass(OpClass::Convert, &[dst, src, absmax])
            }
            Self::GemmNf4 { m, n, k, a, w, dst, .. } => Work {
                flops: 2.0 * count(*m) * count(*n) * count(*k),
                bytes: size(a) + size(w) + size(dst),
                blocks: count(m.div_ceil(64) * n.div_ceil(64)),
                ..Work::of(OpClass::Gemm { alignment: 16, inner_contiguous: 2, inner: *k }, a.dtype)
            },
            // Every row is read again for each pass of a selection.
            Self::TopK { src, values, indices, .. } => Work::pass(OpClass::Reduction, &[src, src, values, indices]),
            // Zeros, and a scatter into them.
            Self::TopKBackward { grad, indices, dst, .. } => {
                Work::pass(OpClass::Scatter, &[grad, indices, dst]).launches(2, 1.5)
            }
            // A sort with its passes, and a division.
            Self::GroupRows { groups, order, rows, .. } => {
                Work::pass(OpClass::Scatter, &[groups, order, order, rows]).launches(9, 3.0)
            }
            // A histogram of narrower numbers, and its running sum.
            Self::GroupEnds { groups, ends } => Work::pass(OpClass::Scatter, &[groups, groups, ends]).launches(4, 3.0),
            // Numbers in a row, and a scatter of them.
            Self::Invert { order, dst } => Work::pass(OpClass::Scatter, &[order, dst]).launches(2, 2.0),
            Self::GroupedGemm { n, k, a, b, dst, ends } => {
                let rows = a.len / (*k).max(1);
                Work::grouped_gemm([rows, *n, *k], ends.len, size(a) + size(dst), b.dtype)
            }
            Self::GroupedGemmOuter { m, n, a, b, ends, .. } => {
                let rows = a.len / (*m).max(1);
                Work::grouped_gemm([rows, *n, *m], ends.len, size(a) + size(b), b.dtype)
            }
            Self::Attention { by, shape, q, .. } => {
                // Heads are split off and joined again by views.
                Work::attention(OpClass::Attention(*by), shape, shape.rows, q.dtype, 2.0).launches(1, 3.0)
            }
            Self::AttentionInference { by, shape, keys, q, .. } => {
                Work::attention(OpClass::Attention(*by), shape, *keys, q.dtype, 2.0).launches(1, 3.0)
            }
            Self::AttentionBackward { by, shape, q, .. } => {
                Work::attention(OpClass::AttentionBackward(*by), shape, shape.rows, q.dtype, 5.0).launches(3, 3.0)
            }
            Self::Softmax { src, dst, .. } | Self::LogSoftmax { src, dst, .. } => {
                Work::pass(OpClass::Softmax, &[src, dst])
            }
            Self::SoftmaxBackward { output, grad, dst, .. } | Self::LogSoftmaxBackward { output, grad, dst, .. } => {
                Work::pass(OpClass::Softmax, &[output, grad, dst])
            }
            Self::NllLoss { targets, .. } => Work::pass(OpClass::Elementwise, &[targets]),
            Self::CrossEntropy { logits, .. } => Work::pass(OpClass::Softmax, &[logits]),
            Self::CrossEntropyBackward { logits, .. } => Work::pass(OpClass::Softmax, &[logits, logits]),
            // Everything is zeroed, then one element of each row written.
            Self::NllLossBackward { dst, .. } => Work::pass(OpClass::Elementwise, &[dst]).launches(2, 1.2),
            Self::BceWithLogits { logits, .. } => Work::pass(OpClass::Elementwise, &[logits]).launches(8, 3.0),
            Self::BceWithLogitsBackward { dst, .. } => Work::pass(OpClass::Elementwise, &[dst]).launches(3, 2.0),
            Self::Conv2d { shape, src, .. } => Work::convolution(shape, src.dtype, false),
            // PyTorch dispatches both gradients as one op.
            Self::Conv2dBackwardInput { shape, grad, .. } => {
                Work::convolution(shape, grad.dtype, true).launches(1, 0.5)
            }
            Self::Conv2dBackwardWeight { shape, grad, .. } => {
                Work::convolution(shape, grad.dtype, true).launches(1, 0.5)
            }
            Self::BatchNorm { src, shape, .. } => Work::channels(OpClass::BatchNorm, shape, src.dtype, 2),
            // Statistics, then a pass over everything; the third launch joins what blocks found.
            Self::BatchNormActivation { src, residual, dst, .. } => {
                let added = residual.as_ref().unwrap_or(&NOTHING);
                Work::pass(OpClass::Norm, &[src, src, added, dst]).launches(3, 1.0)
            }
            Self::BatchNormActivationBackward { grad, src, residual, dsrc, .. } => {
                let [output, dresidual] = residual.as_ref().map_or([&NOTHING; 2], |r| [&r.output, &r.dresidual]);
                let operands = [grad, grad, src, src, output, dresidual, dsrc];
                Work::pass(OpClass::NormBackward, &operands).launches(3, 1.0)
            }
            Self::BatchNormInference { src, dst, .. } => Work::elementwise(&[src, dst]),
            Self::BatchNormBackward { src, shape, .. } | Self::BatchNormInferenceBackward { src, shape, .. } => {
                Work::channels(OpClass::BatchNormBackward, shape, src.dtype, 3)
            }
            Self::MaxPool { src, dst, indices, .. } => Work::pass(OpClass::Pool, &[src, dst, indices]),
            Self::MaxPoolBackward { grad, indices, dst, .. } => {
                Work::pass(OpClass::Pool, &[grad, indices, dst]).launches(2, 1.2)
            }
            // Reads weights, gradients and state once, writes weights and state.
            Self::Sgd { updates, momentum, passes: UpdatePasses::One, .. } => {
                Work::optimizer(updates, 1, if *momentum == 0.0 { 12.0 } else { 20.0 })
            }
            Self::Adam { updates, passes: UpdatePasses::One, .. } => Work::optimizer(updates, 1, 28.0),
            Self::Sgd { updates, momentum, weight_decay, first_step, .. } => {
                // buf ·= μ, buf += g (a copy in the first step), p −= lr·buf; decay adds to the gradients.
                let decay = if *weight_decay == 0.0 { (0, 0.0) } else { (1, 12.0) };
                let (passes, bytes) = match (*momentum == 0.0, *first_step) {
                    (true, _) => (1, 12.0),
                    (false, true) => (2, 20.0),
                    (false, false) => (3, 32.0),
                };
                Work::optimizer(updates, passes + decay.0, bytes + decay.1)
            }
            Self::Adam { updates, parameters, .. } => {
                // p ·= 1 − lr·λ; m = lerp; v ·= β₂; v += g²; √v; ÷; + ε; p += m ÷ √v; and two lists of step counts.
                let decay = if parameters.weight_decay == 0.0 { (0, 0.0) } else { (1, 8.0) };
                Work::optimizer(updates, 10 + decay.0, 72.0 + decay.1)
            }
            // One launch a parameter: reads and writes weights and state, reads gradients.
            Self::AdamOfBytes { parameter, gradient, moments, .. } => {
                let state: f64 = moments.operands().map(size).sum();
                let bytes = 2.0 * size(parameter) + size(gradient) + 2.0 * state;
                Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }
            }
            Self::Unscale { gradients, .. } => {
                let bytes = gradients.iter().map(|gradient| 2.0 * size(gradient)).sum();
                let launches = u32::try_from(gradients.len().div_ceil(TENSORS_PER_LAUNCH)).unwrap_or(u32::MAX);
                let dispatches = 1.0 + FOREACH_TENSOR * count(gradients.len());
                Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }.launches(launches, dispatches)
            }
            Self::SquareSums { tensors, sums } => {
                let bytes = size(sums) + tensors.iter().map(size).sum::<f64>();
                let launches = u32::try_from(2 * tensors.len().div_ceil(TENSORS_PER_LAUNCH)).unwrap_or(u32::MAX);
                let dispatches = 1.0 + FOREACH_TENSOR * count(tensors.len());
                Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }.launches(launches, dispatches)
            }
            // Stack, norm, sum, reciprocal, product, clamp.
            Self::ClipFactor { sums, .. } => Work::pass(OpClass::Elementwise, &[sums]).launches(6, 6.0),
            Self::Reciprocal { src, dst } => Work::pass(OpClass::Elementwise, &[src, dst]).launches(3, 1.0),
            Self::UpdateScale { scale, .. } => Work::pass(OpClass::Elementwise, &[scale]),
        }
    }
}
