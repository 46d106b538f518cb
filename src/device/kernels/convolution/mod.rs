//! Convolutions and their gradients.

mod cpu;
mod cuda;
mod selftest;

use super::family::Family;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work, count, count_bytes};
use crate::{ConvShape, DType, Operand};

/// Convolutions. [`ConvShape`] explains how transposed convolutions are expressed by them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Convolution {
    /// `dst[n,o,y,x] = bias[o] + Σ_{i,u,v} weight[o,i,u,v] · src[n, i, y·stride + u − padding, x·stride + v − padding]`,
    /// with zeros around the source. `src` is (batch, in, height, width), `weight` (out, in, kernel, kernel), `bias`
    /// (out), `dst` (batch, out, height, width). [`ConvShape`] explains how transposed convolutions are expressed by
    /// it.
    Forward { shape: ConvShape, src: Operand, weight: Operand, bias: Option<Operand>, dst: Operand },
    /// Gradient of [`Self::Forward`] with respect to its source: `grad` has the output's shape, `dst` the source's.
    BackwardInput { shape: ConvShape, grad: Operand, weight: Operand, dst: Operand },
    /// Gradient of [`Self::Forward`] with respect to its weight: `grad` has the output's shape, `dst` the weight's.
    BackwardWeight { shape: ConvShape, grad: Operand, src: Operand, dst: Operand },
}

impl Family for Convolution {
    const UNITS: &'static [TranslationUnit] =
        &[TranslationUnit { name: "convolution", source: include_str!("convolution.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "conv2d",
            Self::BackwardInput { .. } => "conv2d_backward_input",
            Self::BackwardWeight { .. } => "conv2d_backward_weight",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { src, weight, bias, dst, .. } => {
                tell.all([src, weight, dst]);
                tell.all(bias);
            }
            Self::BackwardInput { grad, weight, dst, .. } => tell.all([grad, weight, dst]),
            Self::BackwardWeight { grad, src, dst, .. } => tell.all([grad, src, dst]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Forward { shape, src, .. } => cost(shape, src.dtype, false),
            // PyTorch dispatches both gradients as one op.
            Self::BackwardInput { shape, grad, .. } | Self::BackwardWeight { shape, grad, .. } => {
                cost(shape, grad.dtype, true).launches(1, 0.5)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Forward { ref shape, src, weight, bias, dst } => {
                cpu::forward(on.cores, on.apart(), shape, src, weight, bias, dst)
            }
            Self::BackwardInput { ref shape, grad, weight, dst } => {
                cpu::backward_input(on.cores, on.apart(), shape, grad, weight, dst)
            }
            Self::BackwardWeight { ref shape, grad, src, dst } => {
                cpu::backward_weight(on.cores, on.apart(), shape, grad, src, dst)
            }
        }
    }

    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
        cuda::launch(queue, self)
    }

    fn selftest(session: &mut Session<'_>) {
        selftest::run(session);
    }
}

fn cost(shape: &ConvShape, dtype: DType, backward: bool) -> Work {
    let class = OpClass::Convolution {
        backward,
        pointwise: shape.kernel == 1,
        channels: shape.in_channels.min(shape.out_channels),
    };
    let pixels = shape.batch * shape.in_area().max(shape.out_area());
    Work {
        flops: 2.0 * count(shape.products()),
        bytes: count(shape.in_len() + shape.out_len() + shape.weight_len()) * count_bytes(dtype),
        blocks: count(pixels.div_ceil(128) * shape.out_channels.max(shape.in_channels).div_ceil(128)),
        ..Work::of(class, dtype)
    }
}
