//! Loops for every [`Kernel`]. All of them compute in f32, or in f64 where an operand is f64, and convert elements
//! as they are loaded and stored.

mod activation;
mod attention;
mod batch_norm;
mod classifier;
mod convolution;
mod cross_entropy;
mod dispatch;
mod elementwise;
mod embedding;
mod float8;
mod gemm;
mod layer_norm;
mod loss;
mod mean;
mod nf4;
mod optimizer;
mod optimizer_bytes;
mod partial;
mod planes;
mod pool;
mod rms_norm;
mod rotary;
mod routing;
mod rows;
mod strided;
mod tasks;
mod tile;
mod windows;

use super::arena::Arena;
use super::cores::Cores;
use super::operand::{Access, KernelResult, Sharing};
use crate::Kernel;

/// Runs `kernel` to its end.
pub(super) fn run(kernel: &Kernel<'_>, arena: &Arena, cores: &Cores) -> KernelResult {
    start(kernel, arena, cores).and(cores.finish())
}

fn start(kernel: &Kernel<'_>, arena: &Arena, cores: &Cores) -> KernelResult {
    let in_place = || Access::new(arena, Sharing::InPlace);
    let apart = || Access::new(arena, Sharing::Never);
    match *kernel {
        Kernel::Fill { dst, value } => elementwise::fill(cores, in_place(), dst, value),
        Kernel::Arange { dst } => elementwise::arange(cores, in_place(), dst),
        Kernel::Identity { dst, cols } => elementwise::identity(cores, in_place(), dst, cols),
        Kernel::Cast { src, dst } => elementwise::cast(cores, in_place(), src, dst),
        Kernel::CastStrided { src, src_dtype, dst, dst_dtype, shape, src_strides, dst_strides } => {
            strided::cast(cores, apart(), shape, (src, src_dtype, src_strides), (dst, dst_dtype, dst_strides))
        }
        Kernel::CopyStrided { src, dst, dtype, shape, src_strides, dst_strides } => {
            strided::copy(cores, apart(), dtype, shape, (src, src_strides), (dst, dst_strides))
        }
        Kernel::Gemm { m, n, k, batch, a, b, c, bias, alpha, accumulate } => {
            gemm::gemm(cores, apart(), &gemm::Gemm { m, n, k, batch, a, b, c, bias, alpha, accumulate })
        }
        Kernel::AbsMax { src, dst, cols, groups, copied: _ } => {
            float8::abs_max(cores, apart(), [src, dst], float8::Groups { cols, groups })
        }
        Kernel::Float8Scale { amax, dst, most, power } => float8::scale(apart(), amax, dst, most, power),
        Kernel::QuantizeFloat8 { src, scale, dst, cols, groups } => {
            float8::quantize(cores, apart(), [src, scale], dst, float8::Groups { cols, groups })
        }
        Kernel::ScaledGemm { m, n, k, a, b, c, inverse, fast: _ } => {
            let alpha = float8::factor(apart(), inverse)?.unwrap_or(1.0);
            let (batch, bias, accumulate) = (1, None, false);
            gemm::gemm(cores, apart(), &gemm::Gemm { m, n, k, batch, a, b, c, bias, alpha, accumulate })?;
            float8::scale_product(cores, apart(), c, inverse, [m, n])
        }
        Kernel::ColumnSum { src, dst, rows, cols } => rows::column_sum(cores, apart(), src, dst, rows, cols),
        Kernel::Add { a, b, dst } => elementwise::binary(cores, in_place(), a, b, dst, elementwise::Binary::Add),
        Kernel::Sub { a, b, dst } => elementwise::binary(cores, in_place(), a, b, dst, elementwise::Binary::Sub),
        Kernel::Mul { a, b, dst } => elementwise::binary(cores, in_place(), a, b, dst, elementwise::Binary::Mul),
        Kernel::Div { a, b, dst } => elementwise::binary(cores, in_place(), a, b, dst, elementwise::Binary::Div),
        Kernel::Scale { src, dst, factor } => elementwise::scale(cores, in_place(), src, dst, factor),
        Kernel::Dropout { src, dst, mask } => elementwise::dropout(cores, in_place(), src, dst, mask),
        Kernel::Relu { src, dst } => activation::relu(cores, in_place(), src, dst),
        Kernel::ReluBackward { output, grad, dst } => activation::relu_backward(cores, in_place(), output, grad, dst),
        Kernel::Silu { src, dst } => activation::silu(cores, in_place(), src, dst),
        Kernel::SiluBackward { src, grad, dst } => activation::silu_backward(cores, in_place(), src, grad, dst),
        Kernel::Rsqrt { src, dst } => activation::rsqrt(cores, in_place(), src, dst),
        Kernel::MulRows { a, b, dst, cols } => elementwise::mul_rows(cores, in_place(), [a, b, dst], cols),
        Kernel::GatedSilu { gate, up, dst } => activation::gated_silu(cores, in_place(), [gate, up, dst]),
        Kernel::GatedSiluBackward { grad, gate, up, dgate, dup } => {
            activation::gated_silu_backward(cores, in_place(), [grad, gate, up], [dgate, dup])
        }
        Kernel::Gelu { src, dst, tanh } => activation::gelu(cores, in_place(), src, dst, tanh),
        Kernel::GeluBackward { src, grad, dst, tanh } => {
            activation::gelu_backward(cores, in_place(), src, grad, dst, tanh)
        }
        Kernel::GeluBackwardSum { src, grad, dst, sums, cols, tanh } => {
            activation::gelu_backward(cores, in_place(), src, grad, dst, tanh)?;
            rows::column_sum(cores, apart(), dst, sums, dst.len.checked_div(cols).unwrap_or(0), cols)
        }
        Kernel::RowNorm { src, dst, cols } => rms_norm::row_norm(cores, apart(), src, dst, cols),
        Kernel::RmsNorm { src, weight, dst, rstd, cols, eps } => {
            rms_norm::forward(cores, in_place(), &rms_norm::Forward { src, weight, dst, rstd }, cols, eps)
        }
        Kernel::RmsNormBackward { grad, src, rstd, weight, dsrc, dweight, cols } => {
            let operands = rms_norm::Backward { grad, src, rstd, weight, dsrc, dweight };
            rms_norm::backward(cores, in_place(), &operands, cols)
        }
        Kernel::LayerNorm { src, weight, bias, dst, mean, rstd, cols, eps } => {
            let operands = layer_norm::Forward { src, add: None, weight, bias, dst, copy: None, mean, rstd };
            layer_norm::forward(cores, in_place(), &operands, cols, eps)
        }
        Kernel::AddLayerNorm { src, add, weight, bias, dst, copy, mean, rstd, cols, eps } => {
            let operands = layer_norm::Forward { src, add, weight, bias, dst, copy, mean, rstd };
            layer_norm::forward(cores, in_place(), &operands, cols, eps)
        }
        Kernel::LayerNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, cols } => {
            let optional = layer_norm::Optional { second: None, residual: None, copy: None };
            let operands = layer_norm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, optional };
            layer_norm::backward(cores, in_place(), &operands, cols)
        }
        Kernel::AddLayerNormBackward {
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
            cols,
        } => {
            let optional = layer_norm::Optional { second, residual, copy };
            let operands = layer_norm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, optional };
            layer_norm::backward(cores, in_place(), &operands, cols)
        }
        Kernel::Embedding { weight, indices, dst, width } => {
            embedding::forward(cores, apart(), weight, indices, dst, width)
        }
        Kernel::EmbeddingBackward { grad, indices, dst, width } => {
            embedding::backward(cores, apart(), grad, indices, dst, width)
        }
        Kernel::TopK { src, values, indices, cols, k } => {
            routing::top_k(cores, apart(), src, [values, indices], [cols, k])
        }
        Kernel::TopKBackward { grad, indices, dst, cols, k } => {
            routing::top_k_backward(cores, apart(), [grad, indices, dst], [cols, k])
        }
        Kernel::GroupRows { groups, sorted, order, rows, count, each } => {
            routing::group_rows(cores, apart(), groups, [sorted, order, rows], [count, each])
        }
        Kernel::GroupEnds { groups, ends } => routing::group_ends(apart(), [groups, ends]),
        Kernel::Invert { order, dst } => routing::invert(apart(), [order, dst]),
        Kernel::GroupedGemm { n, k, a, b, dst, ends } => routing::grouped_gemm(cores, apart, [n, k], a, b, [dst, ends]),
        Kernel::GroupedGemmOuter { m, n, a, b, dst, ends } => {
            routing::grouped_outer(cores, apart, [m, n], [a, b], [dst, ends])
        }
        Kernel::RotaryTables { frequencies, cos, sin, scaling, copies } => {
            rotary::tables(cores, apart(), frequencies, [cos, sin], (scaling, copies))
        }
        Kernel::Rotary { shape, src, dst, pass } => rotary::rotate(cores, apart(), shape, [src, dst], pass),
        Kernel::QuantizeNf4 { src, dst, absmax } => nf4::quantize(cores, apart(), src, [dst, absmax]),
        Kernel::DequantizeNf4 { src, absmax, dst } => nf4::dequantize(cores, apart(), [src, absmax], dst),
        Kernel::QuantizeBytes { src, codes, dst, absmax } => {
            nf4::quantize_bytes(cores, apart(), [src, codes], [dst, absmax])
        }
        Kernel::DequantizeBytes { src, codes, absmax, dst } => {
            nf4::dequantize_bytes(cores, apart(), [src, codes, absmax], dst)
        }
        Kernel::GemmNf4 { m, n, k, a, w, magnitudes, bias, dst } => {
            nf4::gemm(cores, apart(), [m, n, k], &nf4::Gemm { a, w, magnitudes, bias, dst })
        }
        Kernel::Attention { by: _, ref shape, q, k, v, out, logsumexp, lse_stride } => {
            attention::forward(cores, apart(), shape, [q, k, v, out], logsumexp, lse_stride)
        }
        Kernel::AttentionInference { by: _, ref shape, keys, q, k, v, out } => {
            attention::inference(cores, apart(), shape, keys, [q, k, v, out])
        }
        Kernel::AttentionBackward { by: _, ref shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
            attention::backward(cores, apart(), shape, [q, k, v, out, grad], logsumexp, lse_stride, [dq, dk, dv])
        }
        Kernel::Softmax { src, dst, cols } => rows::softmax(cores, in_place(), src, dst, cols, false),
        Kernel::LogSoftmax { src, dst, cols } => rows::softmax(cores, in_place(), src, dst, cols, true),
        Kernel::SoftmaxBackward { output, grad, dst, cols } => {
            rows::softmax_backward(cores, in_place(), output, grad, dst, cols, false)
        }
        Kernel::LogSoftmaxBackward { output, grad, dst, cols } => {
            rows::softmax_backward(cores, in_place(), output, grad, dst, cols, true)
        }
        Kernel::NllLoss { logp, targets, loss, total_weight, cols } => {
            loss::forward(apart(), logp, targets, loss, total_weight, cols)
        }
        Kernel::NllLossBackward { grad, targets, total_weight, dst, cols } => {
            loss::backward(cores, apart(), grad, targets, total_weight, dst, cols)
        }
        Kernel::CrossEntropy { logits, targets, loss, total_weight, logsumexp, cols, stride } => {
            let results = classifier::Results { loss, total_weight, logsumexp };
            classifier::forward(cores, apart(), [logits, targets], results, [cols, stride])
        }
        Kernel::CrossEntropyBackward { grad, logits, targets, total_weight, logsumexp, cols, stride } => {
            classifier::backward(cores, apart(), [grad, total_weight, logsumexp], [logits, targets], [cols, stride])
        }
        Kernel::AddScalar { src, dst, value } => elementwise::add_scalar(cores, in_place(), src, dst, value),
        Kernel::LeakyRelu { src, dst, slope } => activation::leaky_relu(cores, in_place(), src, dst, slope),
        Kernel::LeakyReluBackward { output, grad, dst, slope } => {
            activation::leaky_relu_backward(cores, in_place(), output, grad, dst, slope)
        }
        Kernel::AtMost { src, dst, most } => activation::at_most(cores, in_place(), src, dst, most),
        Kernel::AtMostBackward { src, grad, dst, most } => {
            activation::at_most_backward(cores, in_place(), [src, grad], dst, most)
        }
        Kernel::Tanh { src, dst } => activation::tanh(cores, in_place(), src, dst),
        Kernel::Sigmoid { src, dst } => activation::sigmoid(cores, in_place(), src, dst),
        Kernel::SigmoidBackward { output, grad, dst } => {
            activation::sigmoid_backward(cores, in_place(), output, grad, dst)
        }
        Kernel::TanhBackward { output, grad, dst } => activation::tanh_backward(cores, in_place(), output, grad, dst),
        Kernel::Conv2d { ref shape, src, weight, bias, dst } => {
            convolution::forward(cores, apart(), shape, src, weight, bias, dst)
        }
        Kernel::Conv2dBackwardInput { ref shape, grad, weight, dst } => {
            convolution::backward_input(cores, apart(), shape, grad, weight, dst)
        }
        Kernel::Conv2dBackwardWeight { ref shape, grad, src, dst } => {
            convolution::backward_weight(cores, apart(), shape, grad, src, dst)
        }
        Kernel::ChannelSum { src, dst, shape } => batch_norm::channel_sum(cores, apart(), src, dst, shape),
        Kernel::BatchNorm { src, weight, bias, dst, mean, rstd, running_mean, running_var, shape, eps, momentum } => {
            let operands = batch_norm::Forward { src, weight, bias, dst, mean, rstd, running_mean, running_var };
            batch_norm::forward(cores, in_place(), &operands, shape, [eps, momentum])
        }
        Kernel::BatchNormActivation {
            src,
            residual,
            weight,
            bias,
            dst,
            mean,
            rstd,
            running_mean,
            running_var,
            shape,
            eps,
            momentum,
            slope,
        } => {
            let operands = batch_norm::Forward { src, weight, bias, dst, mean, rstd, running_mean, running_var };
            let tail = batch_norm::Tail { residual, slope };
            batch_norm::activated(cores, in_place(), &operands, &tail, shape, [eps, momentum])
        }
        Kernel::BatchNormActivationBackward {
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
            shape,
            slope,
        } => {
            let operands = batch_norm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
            let gate = batch_norm::Passed {
                bias,
                residual: residual.map(|residual| [residual.output, residual.dresidual]),
                slope,
            };
            batch_norm::activated_backward(cores, in_place(), &operands, &gate, shape)
        }
        Kernel::BatchNormInference { src, weight, bias, running_mean, running_var, dst, shape, eps } => {
            let operands = batch_norm::Inference { src, weight, bias, running_mean, running_var, dst };
            batch_norm::inference(cores, in_place(), &operands, shape, eps)
        }
        Kernel::BatchNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, shape } => {
            let operands = batch_norm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
            batch_norm::backward(cores, in_place(), &operands, shape, batch_norm::Statistics::OfBatch)
        }
        Kernel::BatchNormInferenceBackward {
            grad,
            src,
            weight,
            running_mean: mean,
            running_var: rstd,
            dsrc,
            dweight,
            dbias,
            shape,
            eps,
        } => {
            let operands = batch_norm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
            batch_norm::backward(cores, in_place(), &operands, shape, batch_norm::Statistics::Running { eps })
        }
        Kernel::MaxPool { src, dst, indices, ref shape } => pool::forward(cores, apart(), src, dst, indices, shape),
        Kernel::MaxPoolBackward { grad, indices, dst, ref shape } => {
            pool::backward(cores, apart(), grad, indices, dst, shape)
        }
        Kernel::Mean { src, dst, outer, middle, inner } => {
            mean::forward(cores, apart(), src, dst, [outer, middle, inner])
        }
        Kernel::MeanBackward { grad, dst, outer, middle, inner } => {
            mean::backward(cores, apart(), grad, dst, [outer, middle, inner])
        }
        Kernel::BceWithLogits { logits, targets, loss } => cross_entropy::forward(apart(), logits, targets, loss),
        Kernel::BceWithLogitsBackward { grad, logits, targets, dst } => {
            cross_entropy::backward(cores, in_place(), grad, logits, targets, dst)
        }
        Kernel::Sgd { updates, lr, momentum, weight_decay, first_step, scaling, .. } => {
            let rule = optimizer::SgdRule { lr, momentum, weight_decay, first_step };
            optimizer::sgd(cores, arena, updates, rule, scaling)
        }
        Kernel::Adam { updates, ref parameters, scaling, .. } => {
            optimizer::adam(cores, arena, updates, parameters, scaling)
        }
        Kernel::AdamOfBytes { parameter, gradient, ref moments, ref rule } => {
            optimizer_bytes::adam(cores, apart(), [parameter, gradient], moments, rule)
        }
        Kernel::Unscale { gradients, inverse_scale, found_inf } => {
            optimizer::unscale(cores, arena, gradients, inverse_scale, found_inf)
        }
        Kernel::SquareSums { tensors, sums } => optimizer::square_sums(cores, arena, tensors, sums),
        Kernel::ClipFactor { sums, rows, factor, most } => optimizer::clip_factor(apart(), sums, rows, factor, most),
        Kernel::Reciprocal { src, dst } => optimizer::reciprocal(in_place(), src, dst),
        Kernel::UpdateScale { scale, tracker, found_inf, growth, backoff, interval } => {
            let rule = optimizer::ScaleRule { growth, backoff, interval };
            optimizer::update_scale(apart(), scale, tracker, found_inf, rule)
        }
    }
}
