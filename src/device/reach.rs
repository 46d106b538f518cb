//! Which memory a kernel touches.

use super::kernel::{AttentionShape, Kernel};
use super::operand::{DType, HeadView, MatrixView, Operand};
use vramlab_allocator::units::{Address, Bytes};

/// A run of device memory that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: Address,
    /// How long it is.
    pub bytes: Bytes,
}

impl From<&Operand> for Span {
    fn from(operand: &Operand) -> Self {
        Self { start: operand.address, bytes: operand.dtype.bytes(operand.len) }
    }
}

impl Span {
    /// From the first to the last element of an array of these sizes and strides, in elements.
    fn strided(start: Address, dtype: DType, dims: &[(usize, usize)]) -> Self {
        if dims.iter().any(|&(size, _)| size == 0) {
            return Self { start, bytes: Bytes::ZERO };
        }
        let last =
            dims.iter().fold(0_usize, |last, &(size, stride)| last.saturating_add((size - 1).saturating_mul(stride)));
        Self { start, bytes: Bytes(dtype.size().saturating_mul(last as u64 + 1)) }
    }

    fn matrix(view: &MatrixView, [batch, rows, cols]: [usize; 3]) -> Self {
        let dims = [(batch, view.batch_stride), (rows, view.row_stride), (cols, view.col_stride)];
        Self::strided(view.address, view.dtype, &dims)
    }

    fn heads(view: &HeadView, shape: &AttentionShape, rows: usize) -> Self {
        let dims = [
            (shape.batch, view.batch_stride),
            (shape.heads, view.head_stride),
            (rows, view.row_stride),
            (shape.head_size, 1),
        ];
        Self::strided(view.address, view.dtype, &dims)
    }
}

impl Kernel<'_> {
    /// Tells every run of memory that it touches. The match names every kernel, so that none is forgotten.
    pub fn reach(&self, mut tell: impl FnMut(Span)) {
        let mut all = |operands: &[&Operand]| operands.iter().for_each(|&operand| tell(operand.into()));
        match self {
            Self::Fill { dst, .. } | Self::Arange { dst } | Self::Identity { dst, .. } => all(&[dst]),
            Self::Cast { src, dst }
            | Self::ColumnSum { src, dst, .. }
            | Self::ChannelSum { src, dst, .. }
            | Self::Scale { src, dst, .. }
            | Self::Dropout { src, dst, .. }
            | Self::AddScalar { src, dst, .. }
            | Self::Relu { src, dst }
            | Self::LeakyRelu { src, dst, .. }
            | Self::AtMost { src, dst, .. }
            | Self::Tanh { src, dst }
            | Self::Sigmoid { src, dst }
            | Self::Silu { src, dst }
            | Self::Rsqrt { src, dst }
            | Self::Gelu { src, dst, .. }
            | Self::Softmax { src, dst, .. }
            | Self::LogSoftmax { src, dst, .. }
            | Self::Mean { src, dst, .. }
            | Self::RowNorm { src, dst, .. }
            | Self::Reciprocal { src, dst } => all(&[src, dst]),
            Self::MeanBackward { grad, dst, .. } => all(&[grad, dst]),
            Self::Add { a, b, dst }
            | Self::Sub { a, b, dst }
            | Self::Mul { a, b, dst }
            | Self::Div { a, b, dst }
            | Self::MulRows { a, b, dst, .. } => all(&[a, b, dst]),
            Self::ReluBackward { output, grad, dst }
            | Self::LeakyReluBackward { output, grad, dst, .. }
            | Self::SigmoidBackward { output, grad, dst }
            | Self::TanhBackward { output, grad, dst }
            | Self::SoftmaxBackward { output, grad, dst, .. }
            | Self::LogSoftmaxBackward { output, grad, dst, .. } => all(&[output, grad, dst]),
            Self::GeluBackward { src, grad, dst, .. }
            | Self::SiluBackward { src, grad, dst }
            | Self::AtMostBackward { src, grad, dst, .. } => all(&[src, grad, dst]),
            Self::GeluBackwardSum { src, grad, dst, sums, .. } => all(&[src, grad, dst, sums]),
            Self::CastStrided { src, src_dtype, dst, dst_dtype, shape, src_strides, dst_strides } => {
                let dims = |strides: &[usize; 4]| std::array::from_fn::<_, 4, _>(|i| (shape[i], strides[i]));
                tell(Span::strided(*src, *src_dtype, &dims(src_strides)));
                tell(Span::strided(*dst, *dst_dtype, &dims(dst_strides)));
            }
            Self::CopyStrided { src, dst, dtype, shape, src_strides, dst_strides } => {
                let dims = |strides: &[usize; 4]| std::array::from_fn::<_, 4, _>(|i| (shape[i], strides[i]));
                tell(Span::strided(*src, *dtype, &dims(src_strides)));
                tell(Span::strided(*dst, *dtype, &dims(dst_strides)));
            }
            Self::Gemm { m, n, k, batch, a, b, c, bias, .. } => {
                all(&bias.iter().collect::<Vec<_>>());
                tell(Span::matrix(a, [*batch, *m, *k]));
                tell(Span::matrix(b, [*batch, *k, *n]));
                tell(Span::matrix(c, [*batch, *m, *n]));
            }
            Self::AbsMax { src, dst, .. } | Self::Float8Scale { amax: src, dst, .. } => all(&[src, dst]),
            Self::QuantizeFloat8 { src, scale, dst, .. } => all(&[src, scale, dst]),
            Self::ScaledGemm { m, n, k, a, b, c, inverse: [of_a, of_b], .. } => {
                all(&[of_a, of_b]);
                tell(Span::matrix(a, [1, *m, *k]));
                tell(Span::matrix(b, [1, *k, *n]));
                tell(Span::matrix(c, [1, *m, *n]));
            }
            Self::GatedSilu { gate, up, dst } => all(&[gate, up, dst]),
            Self::GatedSiluBackward { grad, gate, up, dgate, dup } => all(&[grad, gate, up, dgate, dup]),
            Self::RmsNorm { src, weight, dst, rstd, .. } => all(&[src, weight, dst, rstd]),
            Self::RmsNormBackward { grad, src, rstd, weight, dsrc, dweight, .. } => {
                all(&[grad, src, rstd, weight, dsrc, dweight]);
            }
            Self::LayerNorm { src, weight, bias, dst, mean, rstd, .. } => all(&[src, weight, bias, dst, mean, rstd]),
            Self::LayerNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, .. }
            | Self::BatchNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, .. } => {
                all(&[grad, src, mean, rstd, weight, dsrc, dweight, dbias]);
            }
            Self::AddLayerNorm { src, add, weight, bias, dst, copy, mean, rstd, .. } => {
                all(&[src, weight, bias, dst, mean, rstd]);
                all(&add.iter().flat_map(|(add, sum)| [add, sum]).chain(copy).collect::<Vec<_>>());
            }
            Self::AddLayerNormBackward {
                grad,
                second,
                residual,
                src,
                mean,
                rstd,
                weight,
                dsrc,
                copy,
                dweight,
                dbias,
                ..
            } => {
                all(&[grad, src, mean, rstd, weight, dsrc, dweight, dbias]);
                all(&[second, residual, copy].into_iter().flatten().collect::<Vec<_>>());
            }
            Self::Embedding { weight, indices, dst, .. } => all(&[weight, indices, dst]),
            Self::EmbeddingBackward { grad, indices, dst, .. } => all(&[grad, indices, dst]),
            Self::TopK { src, values, indices, .. } => all(&[src, values, indices]),
            Self::TopKBackward { grad, indices, dst, .. } => all(&[grad, indices, dst]),
            Self::GroupRows { groups, sorted, order, rows, .. } => all(&[groups, sorted, order, rows]),
            Self::GroupEnds { groups, ends } => all(&[groups, ends]),
            Self::Invert { order, dst } => all(&[order, dst]),
            Self::GroupedGemm { n, k, a, b, dst, ends } => {
                all(&[a, dst, ends]);
                tell(Span::matrix(b, [ends.len, *k, *n]));
            }
            Self::GroupedGemmOuter { a, b, dst, ends, .. } => all(&[a, b, dst, ends]),
            Self::Attention { shape, q, k, v, out, logsumexp, .. } => {
                all(&[logsumexp]);
                for (view, shape) in [(q, *shape), (k, shape.of_keys()), (v, shape.of_keys()), (out, *shape)] {
                    tell(Span::heads(view, &shape, shape.rows));
                }
            }
            Self::AttentionInference { by: _, shape, keys, q, k, v, out } => {
                for view in [q, out] {
                    tell(Span::heads(view, shape, shape.rows));
                }
                for view in [k, v] {
                    tell(Span::heads(view, &shape.of_keys(), *keys));
                }
            }
            Self::AttentionBackward { shape, q, k, v, out, logsumexp, grad, dq, dk, dv, .. } => {
                all(&[logsumexp]);
                for view in [k, v] {
                    tell(Span::heads(view, &shape.of_keys(), shape.rows));
                }
                for view in [q, out, grad, dq, dk, dv] {
                    tell(Span::heads(view, shape, shape.rows));
                }
            }
            Self::RotaryTables { frequencies, cos, sin, .. } => all(&[frequencies, cos, sin]),
            Self::Rotary { shape, src, dst, pass } => {
                pass.tables().iter().flatten().for_each(|table| all(&[table]));
                for view in [src, dst] {
                    tell(Span::strided(view.address, view.dtype, &shape.dims(view)));
                }
            }
            Self::QuantizeNf4 { src, dst, absmax } | Self::DequantizeNf4 { src, absmax, dst } => {
                all(&[src, absmax, dst])
            }
            Self::QuantizeBytes { src, codes, dst, absmax } | Self::DequantizeBytes { src, codes, absmax, dst } => {
                all(&[src, codes, absmax, dst]);
            }
            Self::GemmNf4 { a, w, magnitudes, bias, dst, .. } => {
                all(&[a, w, dst]);
                all(&magnitudes.operands().chain(bias).collect::<Vec<_>>());
            }
            Self::NllLoss { logp, targets, loss, total_weight, .. } => all(&[logp, targets, loss, total_weight]),
            Self::NllLossBackward { grad, targets, total_weight, dst, .. } => all(&[grad, targets, total_weight, dst]),
            Self::CrossEntropy { logits, targets, loss, total_weight, logsumexp, .. } => {
                all(&[logits, targets, loss, total_weight, logsumexp]);
            }
            Self::CrossEntropyBackward { grad, logits, targets, total_weight, logsumexp, .. } => {
                all(&[grad, logits, targets, total_weight, logsumexp]);
            }
            Self::BceWithLogits { logits, targets, loss } => all(&[logits, targets, loss]),
            Self::BceWithLogitsBackward { grad, logits, targets, dst } => all(&[grad, logits, targets, dst]),
            Self::Conv2d { src, weight, bias, dst, .. } => {
                all(&[src, weight, dst]);
                all(&bias.iter().collect::<Vec<_>>());
            }
            Self::Conv2dBackwardInput { grad, weight, dst, .. } => all(&[grad, weight, dst]),
            Self::Conv2dBackwardWeight { grad, src, dst, .. } => all(&[grad, src, dst]),
            Self::BatchNorm { src, weight, bias, dst, mean, rstd, running_mean, running_var, .. } => {
                all(&[src, weight, bias, dst, mean, rstd, running_mean, running_var]);
            }
            Self::BatchNormActivation {
                src,
                residual,
                weight,
                bias,
                dst,
                mean,
                rstd,
                running_mean,
                running_var,
                ..
            } => {
                all(&[src, weight, bias, dst, mean, rstd, running_mean, running_var]);
                all(&residual.iter().collect::<Vec<_>>());
            }
            Self::BatchNormActivationBackward {
                grad,
                src,
                residual,
                mean,
                rstd,
                weight,
                bias,
                dsrc,
                dweight,
                dbias,
                ..
            } => {
                all(&[grad, src, mean, rstd, weight, bias, dsrc, dweight, dbias]);
                let residual = residual.iter().flat_map(|residual| [&residual.output, &residual.dresidual]);
                all(&residual.collect::<Vec<_>>());
            }
            Self::BatchNormInference { src, weight, bias, running_mean, running_var, dst, .. } => {
                all(&[src, weight, bias, running_mean, running_var, dst]);
            }
            Self::BatchNormInferenceBackward {
                grad,
                src,
                weight,
                running_mean,
                running_var,
                dsrc,
                dweight,
                dbias,
                ..
            } => all(&[grad, src, weight, running_mean, running_var, dsrc, dweight, dbias]),
            Self::MaxPool { src, dst, indices, .. } => all(&[src, dst, indices]),
            Self::MaxPoolBackward { grad, indices, dst, .. } => all(&[grad, indices, dst]),
            Self::Sgd { updates, scaling, .. } | Self::Adam { updates, scaling, .. } => {
                for update in *updates {
                    all(&[&update.parameter, &update.gradient]);
                    all(&[&update.first, &update.second].into_iter().flatten().collect::<Vec<_>>());
                }
                all(&scaling.iter().flat_map(|scaling| [&scaling.scale, &scaling.found_inf]).collect::<Vec<_>>());
            }
            Self::AdamOfBytes { parameter, gradient, moments, .. } => {
                all(&[parameter, gradient]);
                all(&moments.operands().collect::<Vec<_>>());
            }
            Self::Unscale { gradients, inverse_scale, found_inf } => {
                all(&[inverse_scale, found_inf]);
                all(&gradients.iter().collect::<Vec<_>>());
            }
            Self::SquareSums { tensors, sums } => {
                all(&[sums]);
                all(&tensors.iter().collect::<Vec<_>>());
            }
            Self::ClipFactor { sums, factor, .. } => all(&[sums, factor]),
            Self::UpdateScale { scale, tracker, found_inf, .. } => all(&[scale, tracker, found_inf]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_reach_from_their_first_to_their_last_element() {
        let view =
            MatrixView { address: Address(512), dtype: DType::F32, row_stride: 10, col_stride: 1, batch_stride: 100 };
        assert_eq!(Span::matrix(&view, [2, 3, 4]), Span { start: Address(512), bytes: Bytes(4 * (100 + 20 + 3 + 1)) });
        assert_eq!(Span::matrix(&view, [2, 0, 4]).bytes, Bytes::ZERO);
        let repeated = MatrixView { row_stride: 0, ..view };
        assert_eq!(Span::matrix(&repeated, [1, 1000, 4]).bytes, Bytes(16));
        let heads =
            HeadView { address: Address(0), dtype: DType::Bf16, batch_stride: 96, head_stride: 8, row_stride: 24 };
        let shape = AttentionShape {
            batch: 2,
            heads: 3,
            group: 1,
            rows: 4,
            head_size: 8,
            causal: true,
            window: None,
            masked: false,
            scale: 1.0,
            dropout: None,
        };
        assert_eq!(Span::heads(&heads, &shape, shape.rows).bytes, Bytes(2 * (96 + 16 + 72 + 8)));
    }

    #[test]
    fn optimizers_reach_every_tensor_of_every_parameter() {
        let operand = |address| Operand { address: Address(address), dtype: DType::F32, len: 8 };
        let update = |at: u64| super::super::ParameterUpdate {
            parameter: operand(at),
            gradient: operand(at + 1),
            first: Some(operand(at + 2)),
            second: None,
        };
        let updates = [update(1000), update(2000)];
        let kernel = Kernel::Sgd {
            updates: &updates,
            lr: 0.1,
            momentum: 0.9,
            weight_decay: 0.0,
            first_step: true,
            scaling: None,
            passes: super::super::UpdatePasses::One,
        };
        let mut starts = Vec::new();
        kernel.reach(|span| starts.push(span.start.0));
        assert_eq!(starts, [1000, 1001, 1002, 2000, 2001, 2002]);
    }
}
