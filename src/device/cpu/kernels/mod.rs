//! Loops for every [`Kernel`]. All of them compute in f32, or in f64 where an operand is f64, and convert elements
//! as they are loaded and stored.

mod attention;
mod convolution;
mod elementwise;
mod embedding;
mod gemm;
mod layer_norm;
mod loss;
mod optimizer;
mod partial;
mod rows;
mod strided;
mod tile;

use super::arena::Arena;
use super::cores::Cores;
use super::operand::{Access, KernelResult, Sharing, View};
use super::real::Real;
use crate::device::{DType, Kernel};

/// Calls a function generic over [`Real`] with f64 if any of the types needs it, with f32 otherwise.
macro_rules! real {
    ($dtypes:expr, $function:ident($($argument:expr),* $(,)?)) => {
        if $dtypes.into_iter().any($crate::device::cpu::kernels::needs_f64) {
            $function::<f64>($($argument),*)
        } else {
            $function::<f32>($($argument),*)
        }
    };
}
use real;

/// Integers of 32 and 64 bits are exact in f64 (up to 2⁵³), not in f32.
const fn needs_f64(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::I64 | DType::I32)
}

/// Elements that one task of a flat kernel handles.
const TASK: usize = 16 * 1024;

/// `n` times `nanos`.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
fn estimate(n: usize, nanos: f64) -> usize {
    (n as f64 * nanos) as usize
}

/// One element as f64.
fn scalar(view: &View<'_>) -> f64 {
    let mut value = [0.0];
    f64::load(view, 0, &mut value);
    value[0]
}

/// Runs `kernel` to its end.
pub(super) fn run(kernel: &Kernel<'_>, arena: &Arena, cores: &Cores) -> KernelResult {
    let in_place = || Access::new(arena, Sharing::InPlace);
    let apart = || Access::new(arena, Sharing::Never);
    match *kernel {
        Kernel::Fill { dst, value } => elementwise::fill(cores, in_place(), dst, value),
        Kernel::Arange { dst } => elementwise::arange(cores, in_place(), dst),
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
        Kernel::ColumnSum { src, dst, rows, cols } => rows::column_sum(cores, apart(), src, dst, rows, cols),
        Kernel::Add { a, b, dst } => elementwise::binary(cores, in_place(), a, b, dst, elementwise::Binary::Add),
        Kernel::Mul { a, b, dst } => elementwise::binary(cores, in_place(), a, b, dst, elementwise::Binary::Mul),
        Kernel::Scale { src, dst, factor } => elementwise::scale(cores, in_place(), src, dst, factor),
        Kernel::Relu { src, dst } => elementwise::relu(cores, in_place(), src, dst),
        Kernel::ReluBackward { output, grad, dst } => elementwise::relu_backward(cores, in_place(), output, grad, dst),
        Kernel::Gelu { src, dst, tanh } => elementwise::gelu(cores, in_place(), src, dst, tanh),
        Kernel::GeluBackward { src, grad, dst, tanh } => {
            elementwise::gelu_backward(cores, in_place(), src, grad, dst, tanh)
        }
        Kernel::LayerNorm { src, weight, bias, dst, mean, rstd, cols, eps } => {
            let operands = layer_norm::Forward { src, weight, bias, dst, mean, rstd };
            layer_norm::forward(cores, in_place(), &operands, cols, eps)
        }
        Kernel::LayerNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, cols } => {
            let operands = layer_norm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
            layer_norm::backward(cores, in_place(), &operands, cols)
        }
        Kernel::Embedding { weight, indices, dst, width } => {
            embedding::forward(cores, apart(), weight, indices, dst, width)
        }
        Kernel::EmbeddingBackward { grad, indices, dst, width } => {
            embedding::backward(cores, apart(), grad, indices, dst, width)
        }
        Kernel::Attention { ref shape, q, k, v, out, logsumexp, lse_stride } => {
            attention::forward(cores, apart(), shape, [q, k, v, out], logsumexp, lse_stride)
        }
        Kernel::AttentionInference { ref shape, keys, q, k, v, out } => {
            attention::inference(cores, apart(), shape, keys, [q, k, v, out])
        }
        Kernel::AttentionBackward { ref shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
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
        Kernel::Conv2d { ref shape, src, weight, bias, dst } => {
            convolution::forward(cores, apart(), shape, src, weight, bias, dst)
        }
        Kernel::Conv2dBackwardInput { ref shape, grad, weight, dst } => {
            convolution::backward_input(cores, apart(), shape, grad, weight, dst)
        }
        Kernel::Conv2dBackwardWeight { ref shape, grad, src, dst } => {
            convolution::backward_weight(cores, apart(), shape, grad, src, dst)
        }
        Kernel::AddScalar { .. }
        | Kernel::LeakyRelu { .. }
        | Kernel::LeakyReluBackward { .. }
        | Kernel::Tanh { .. }
        | Kernel::TanhBackward { .. }
        | Kernel::ChannelSum { .. }
        | Kernel::BatchNorm { .. }
        | Kernel::BatchNormInference { .. }
        | Kernel::BatchNormBackward { .. }
        | Kernel::MaxPool { .. }
        | Kernel::MaxPoolBackward { .. }
        | Kernel::Mean { .. }
        | Kernel::MeanBackward { .. }
        | Kernel::BceWithLogits { .. }
        | Kernel::BceWithLogitsBackward { .. } => Err(super::operand::Refused("this kernel is not written yet".into())),
        Kernel::Sgd { updates, lr, momentum, weight_decay, first_step, scaling } => {
            let rule = optimizer::SgdRule { lr, momentum, weight_decay, first_step };
            optimizer::sgd(cores, arena, updates, rule, scaling)
        }
        Kernel::Adam { updates, ref parameters, scaling } => {
            optimizer::adam(cores, arena, updates, parameters, scaling)
        }
        Kernel::Unscale { gradients, inverse_scale, found_inf } => {
            optimizer::unscale(cores, arena, gradients, inverse_scale, found_inf)
        }
        Kernel::Reciprocal { src, dst } => optimizer::reciprocal(in_place(), src, dst),
        Kernel::UpdateScale { scale, tracker, found_inf, growth, backoff, interval } => {
            let rule = optimizer::ScaleRule { growth, backoff, interval };
            optimizer::update_scale(apart(), scale, tracker, found_inf, rule)
        }
    }
}
