//! Element-wise kernels.

mod cpu;
pub(super) mod cuda;
mod selftest;

use super::family::Family;
use crate::cpu::map;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{CAST, OpClass, Work, count};
use crate::{DropoutMask, Operand};

/// Element-wise kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Elementwise {
    /// Sets every element of `dst` to `value`.
    Fill { dst: Operand, value: f64 },
    /// `dst[i] = i`.
    Arange { dst: Operand },
    /// Rows of `cols` zeros, except `dst[r,r] = 1`.
    Identity { dst: Operand, cols: usize },
    /// `dst[i] = src[i]` in dst's type; lengths equal.
    Cast { src: Operand, dst: Operand },
    /// `dst[i] = a[i] + b[i % b.len]`; dst may be a.
    Add { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = a[i] − b[i % b.len]`; dst may be a.
    Sub { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = a[i] · b[i % b.len]`; dst may be a.
    Mul { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = a[i] / b[i % b.len]`; dst may be a.
    Div { a: Operand, b: Operand, dst: Operand },
    /// `dst[i] = factor · src[i]`; dst may be src.
    Scale { src: Operand, dst: Operand, factor: f64 },
    /// `dst[i]` is 0 if the mask drops the element, otherwise `src[i]` times the mask's factor.
    Dropout { src: Operand, dst: Operand, mask: DropoutMask },
    /// `dst[i] = max(src[i], 0)`; dst may be src.
    Relu { src: Operand, dst: Operand },
    /// `dst[i] = output[i] > 0 ? grad[i] : 0`.
    ReluBackward { output: Operand, grad: Operand, dst: Operand },
    /// `dst[i] = src[i] / (1 + exp(−src[i]))`; dst may be src.
    Silu { src: Operand, dst: Operand },
    /// `dst = grad · silu'(src)`; dst may be grad.
    SiluBackward { src: Operand, grad: Operand, dst: Operand },
    /// `dst[i] = 1 / √src[i]`; dst may be src.
    Rsqrt { src: Operand, dst: Operand },
    /// `dst[i] = a[i] · b[i / cols]`: every row of `cols` elements times its own factor; dst may be a.
    MulRows { a: Operand, b: Operand, dst: Operand, cols: usize },
    /// `dst[i] = silu(gate[i]) · up[i]`: the equivalent of two PyTorch ops.
    GatedSilu { gate: Operand, up: Operand, dst: Operand },
    /// Gradients of [`Self::GatedSilu`].
    GatedSiluBackward { grad: Operand, gate: Operand, up: Operand, dgate: Operand, dup: Operand },
    /// GELU, exact (erf) or its tanh form.
    Gelu { src: Operand, dst: Operand, tanh: bool },
    /// `dst = grad · gelu'(src)`.
    GeluBackward { src: Operand, grad: Operand, dst: Operand, tanh: bool },
    /// [`Self::GeluBackward`] for rows of `cols`, and `sums[c] = Σ_r dst[r,c]`; dst may be grad.
    GeluBackwardSum { src: Operand, grad: Operand, dst: Operand, sums: Operand, cols: usize, tanh: bool },
    /// `dst[i] = src[i] + value`; dst may be src.
    AddScalar { src: Operand, dst: Operand, value: f64 },
    /// `dst[i] = src[i] > 0 ? src[i] : slope · src[i]`; dst may be src.
    LeakyRelu { src: Operand, dst: Operand, slope: f32 },
    /// `dst[i] = output[i] > 0 ? grad[i] : slope · grad[i]`, for slopes ≥ 0; dst may be grad.
    LeakyReluBackward { output: Operand, grad: Operand, dst: Operand, slope: f32 },
    /// `dst = min(src, most)`; NaN stays NaN.
    AtMost { src: Operand, dst: Operand, most: f32 },
    /// `dst = grad` where `src` is at most `most`, 0 elsewhere.
    AtMostBackward { src: Operand, grad: Operand, dst: Operand, most: f32 },
    /// `dst[i] = 1 / (1 + exp(−src[i]))`; dst may be src.
    Sigmoid { src: Operand, dst: Operand },
    /// `dst[i] = grad[i] · output[i] · (1 − output[i])`; dst may be grad.
    SigmoidBackward { output: Operand, grad: Operand, dst: Operand },
    /// `dst[i] = tanh(src[i])`; dst may be src.
    Tanh { src: Operand, dst: Operand },
    /// `dst[i] = grad[i] · (1 − output[i]²)`; dst may be grad.
    TanhBackward { output: Operand, grad: Operand, dst: Operand },
}

impl Family for Elementwise {
    const UNITS: &'static [TranslationUnit] = &[
        TranslationUnit {
            name: "elementwise",
            source: concat!(include_str!("gelu.cuh"), include_str!("elementwise.cu")),
        },
        TranslationUnit { name: "gelu_sums", source: concat!(include_str!("gelu.cuh"), include_str!("gelu_sums.cu")) },
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Fill { .. } => "fill",
            Self::Arange { .. } => "arange",
            Self::Identity { .. } => "identity",
            Self::Cast { .. } => "cast",
            Self::Add { .. } => "add",
            Self::Sub { .. } => "sub",
            Self::Mul { .. } => "mul",
            Self::Div { .. } => "div",
            Self::Scale { .. } => "scale",
            Self::Dropout { .. } => "dropout",
            Self::Relu { .. } => "relu",
            Self::ReluBackward { .. } => "relu_backward",
            Self::Silu { .. } => "silu",
            Self::SiluBackward { .. } => "silu_backward",
            Self::Rsqrt { .. } => "rsqrt",
            Self::MulRows { .. } => "mul_rows",
            Self::GatedSilu { .. } => "gated_silu",
            Self::GatedSiluBackward { .. } => "gated_silu_backward",
            Self::Gelu { .. } => "gelu",
            Self::GeluBackward { .. } => "gelu_backward",
            Self::GeluBackwardSum { .. } => "gelu_backward_sum",
            Self::AddScalar { .. } => "add_scalar",
            Self::LeakyRelu { .. } => "leaky_relu",
            Self::LeakyReluBackward { .. } => "leaky_relu_backward",
            Self::AtMost { .. } => "at_most",
            Self::AtMostBackward { .. } => "at_most_backward",
            Self::Sigmoid { .. } => "sigmoid",
            Self::SigmoidBackward { .. } => "sigmoid_backward",
            Self::Tanh { .. } => "tanh",
            Self::TanhBackward { .. } => "tanh_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Fill { dst, .. } | Self::Arange { dst } | Self::Identity { dst, .. } => tell.all([dst]),
            Self::Cast { src, dst }
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
            | Self::Gelu { src, dst, .. } => tell.all([src, dst]),
            Self::Add { a, b, dst }
            | Self::Sub { a, b, dst }
            | Self::Mul { a, b, dst }
            | Self::Div { a, b, dst }
            | Self::MulRows { a, b, dst, .. } => tell.all([a, b, dst]),
            Self::ReluBackward { output, grad, dst }
            | Self::LeakyReluBackward { output, grad, dst, .. }
            | Self::SigmoidBackward { output, grad, dst }
            | Self::TanhBackward { output, grad, dst } => tell.all([output, grad, dst]),
            Self::GeluBackward { src, grad, dst, .. }
            | Self::SiluBackward { src, grad, dst }
            | Self::AtMostBackward { src, grad, dst, .. } => tell.all([src, grad, dst]),
            Self::GeluBackwardSum { src, grad, dst, sums, .. } => tell.all([src, grad, dst, sums]),
            Self::GatedSilu { gate, up, dst } => tell.all([gate, up, dst]),
            Self::GatedSiluBackward { grad, gate, up, dgate, dup } => tell.all([grad, gate, up, dgate, dup]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Fill { dst, .. } | Self::Arange { dst } => Work::pass(OpClass::Elementwise, &[dst]),
            // First zeros, then the diagonal.
            Self::Identity { dst, .. } => Work::pass(OpClass::Elementwise, &[dst]).launches(2, 1.0),
            Self::Cast { src, dst } => Work::elementwise(&[src, dst]).launches(1, CAST),
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
            // PyTorch also writes (or reads) a byte mask.
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
            Self::GatedSilu { gate, up, dst } => Work::elementwise(&[gate, up, dst]),
            Self::GatedSiluBackward { grad, gate, up, dgate, dup } => Work::elementwise(&[grad, gate, up, dgate, dup]),
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Fill { dst, value } => cpu::fill(on.cores, on.in_place(), dst, value),
            Self::Arange { dst } => cpu::arange(on.cores, on.in_place(), dst),
            Self::Identity { dst, cols } => cpu::identity(on.cores, on.in_place(), dst, cols),
            Self::Cast { src, dst } => map::cast(on.cores, on.in_place(), src, dst),
            Self::Add { a, b, dst } => cpu::binary(on.cores, on.in_place(), a, b, dst, cpu::Binary::Add),
            Self::Sub { a, b, dst } => cpu::binary(on.cores, on.in_place(), a, b, dst, cpu::Binary::Sub),
            Self::Mul { a, b, dst } => cpu::binary(on.cores, on.in_place(), a, b, dst, cpu::Binary::Mul),
            Self::Div { a, b, dst } => cpu::binary(on.cores, on.in_place(), a, b, dst, cpu::Binary::Div),
            Self::Scale { src, dst, factor } => cpu::scale(on.cores, on.in_place(), src, dst, factor),
            Self::Dropout { src, dst, mask } => cpu::dropout(on.cores, on.in_place(), src, dst, mask),
            Self::Relu { src, dst } => cpu::activation::relu(on.cores, on.in_place(), src, dst),
            Self::ReluBackward { output, grad, dst } => {
                cpu::activation::relu_backward(on.cores, on.in_place(), output, grad, dst)
            }
            Self::Silu { src, dst } => cpu::activation::silu(on.cores, on.in_place(), src, dst),
            Self::SiluBackward { src, grad, dst } => {
                cpu::activation::silu_backward(on.cores, on.in_place(), src, grad, dst)
            }
            Self::Rsqrt { src, dst } => cpu::activation::rsqrt(on.cores, on.in_place(), src, dst),
            Self::MulRows { a, b, dst, cols } => cpu::mul_rows(on.cores, on.in_place(), [a, b, dst], cols),
            Self::GatedSilu { gate, up, dst } => cpu::activation::gated_silu(on.cores, on.in_place(), [gate, up, dst]),
            Self::GatedSiluBackward { grad, gate, up, dgate, dup } => {
                cpu::activation::gated_silu_backward(on.cores, on.in_place(), [grad, gate, up], [dgate, dup])
            }
            Self::Gelu { src, dst, tanh } => cpu::activation::gelu(on.cores, on.in_place(), src, dst, tanh),
            Self::GeluBackward { src, grad, dst, tanh } => {
                cpu::activation::gelu_backward(on.cores, on.in_place(), src, grad, dst, tanh)
            }
            Self::GeluBackwardSum { src, grad, dst, sums, cols, tanh } => {
                cpu::activation::gelu_backward(on.cores, on.in_place(), src, grad, dst, tanh)?;
                super::sums::cpu::columns(on.cores, on.apart(), dst, sums, dst.len.checked_div(cols).unwrap_or(0), cols)
            }
            Self::AddScalar { src, dst, value } => cpu::add_scalar(on.cores, on.in_place(), src, dst, value),
            Self::LeakyRelu { src, dst, slope } => {
                cpu::activation::leaky_relu(on.cores, on.in_place(), src, dst, slope)
            }
            Self::LeakyReluBackward { output, grad, dst, slope } => {
                cpu::activation::leaky_relu_backward(on.cores, on.in_place(), output, grad, dst, slope)
            }
            Self::AtMost { src, dst, most } => cpu::activation::at_most(on.cores, on.in_place(), src, dst, most),
            Self::AtMostBackward { src, grad, dst, most } => {
                cpu::activation::at_most_backward(on.cores, on.in_place(), [src, grad], dst, most)
            }
            Self::Sigmoid { src, dst } => cpu::activation::sigmoid(on.cores, on.in_place(), src, dst),
            Self::SigmoidBackward { output, grad, dst } => {
                cpu::activation::sigmoid_backward(on.cores, on.in_place(), output, grad, dst)
            }
            Self::Tanh { src, dst } => cpu::activation::tanh(on.cores, on.in_place(), src, dst),
            Self::TanhBackward { output, grad, dst } => {
                cpu::activation::tanh_backward(on.cores, on.in_place(), output, grad, dst)
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
        match *self {
            Self::Fill { dst, value } => cuda::fill(queue, &dst, value),
            Self::Arange { dst } => cuda::arange(queue, &dst),
            Self::Identity { dst, cols } => cuda::identity(queue, self, &dst, cols),
            Self::Cast { src, dst } if cuda::computes(src) && cuda::computes(dst) => {
                cuda::unary(queue, self, "cast", [src, dst], 0.0)
            }
            Self::Cast { src, dst } => cuda::exact(queue, self, [src, dst], 0.0),
            Self::Scale { src, dst, factor } => cuda::unary(queue, self, "scale", [src, dst], factor as f32),
            Self::Dropout { src, dst, mask } => cuda::map(queue, self, "dropout", [src, dst], |arguments| {
                arguments.bits(mask.seed()).bits(mask.threshold()).float(mask.factor())
            }),
            Self::AddScalar { src, dst, value } if !(cuda::computes(src) && cuda::computes(dst)) => {
                cuda::exact(queue, self, [src, dst], value)
            }
            Self::AddScalar { src, dst, value } => cuda::unary(queue, self, "add_scalar", [src, dst], value as f32),
            Self::Relu { src, dst } => cuda::unary(queue, self, "relu", [src, dst], 0.0),
            Self::LeakyRelu { src, dst, slope } => cuda::unary(queue, self, "leaky_relu", [src, dst], slope),
            Self::AtMost { src, dst, most } => cuda::unary(queue, self, "at_most", [src, dst], most),
            Self::Tanh { src, dst } => cuda::unary(queue, self, "tanh_of", [src, dst], 0.0),
            Self::Silu { src, dst } => cuda::unary(queue, self, "silu", [src, dst], 0.0),
            Self::Rsqrt { src, dst } => cuda::unary(queue, self, "rsqrt_of", [src, dst], 0.0),
            Self::SiluBackward { src, grad, dst } => cuda::binary(queue, self, "silu_backward", [src, grad, dst], 0.0),
            Self::GatedSilu { gate, up, dst } => cuda::binary(queue, self, "gated_silu", [gate, up, dst], 0.0),
            Self::GatedSiluBackward { grad, gate, up, dgate, dup } => {
                cuda::gated_backward(queue, self, [grad, gate, up, dgate, dup])
            }
            Self::MulRows { a, b, dst, cols } => cuda::rows(queue, self, [a, b, dst], cols),
            Self::Gelu { src, dst, tanh } => {
                cuda::unary(queue, self, if tanh { "gelu_tanh" } else { "gelu_erf" }, [src, dst], 0.0)
            }
            Self::Add { a, b, dst } => cuda::binary(queue, self, "add", [a, b, dst], 0.0),
            Self::Sub { a, b, dst } => cuda::binary(queue, self, "sub", [a, b, dst], 0.0),
            Self::Mul { a, b, dst } => cuda::binary(queue, self, "mul", [a, b, dst], 0.0),
            Self::Div { a, b, dst } => cuda::binary(queue, self, "divide", [a, b, dst], 0.0),
            Self::ReluBackward { output, grad, dst } => {
                cuda::binary(queue, self, "relu_backward", [output, grad, dst], 0.0)
            }
            Self::LeakyReluBackward { output, grad, dst, slope } => {
                cuda::binary(queue, self, "leaky_relu_backward", [output, grad, dst], slope)
            }
            Self::AtMostBackward { src, grad, dst, most } => {
                cuda::binary(queue, self, "at_most_backward", [src, grad, dst], most)
            }
            Self::Sigmoid { src, dst } => cuda::unary(queue, self, "sigmoid", [src, dst], 0.0),
            Self::SigmoidBackward { output, grad, dst } => {
                cuda::binary(queue, self, "sigmoid_backward", [output, grad, dst], 0.0)
            }
            Self::TanhBackward { output, grad, dst } => {
                cuda::binary(queue, self, "tanh_backward", [output, grad, dst], 0.0)
            }
            Self::GeluBackward { src, grad, dst, tanh } => {
                let name = if tanh { "gelu_tanh_backward" } else { "gelu_erf_backward" };
                cuda::binary(queue, self, name, [src, grad, dst], 0.0)
            }
            Self::GeluBackwardSum { .. } => cuda::gelu_backward_sum(queue, self),
        }
    }

    fn selftest(session: &mut Session<'_>) {
        selftest::run(session);
    }
}
