//! Batch normalisation, alone and with the activation that follows it.

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
use crate::work::{OpClass, Work, count};
use crate::{ChannelShape, DType, Operand};
use vramlab_allocator::units::Address;

/// An absent operand.
const NOTHING: Operand = Operand { address: Address(0), dtype: DType::U8, len: 0 };

/// The operands that the backward pass of a sum needs in addition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResidualGradient {
    /// The result of the forward pass, whose sign tells which elements passed.
    pub output: Operand,
    /// Receives the gradient of the sum, and so of the residual; may be the operand of the output's gradient.
    pub dresidual: Operand,
}

/// Normalises channels.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum BatchNorm {
    /// Normalises each channel over images and area, `dst = (src − mean) · rstd · weight + bias` with
    /// `rstd = 1/√(variance + eps)` and the variance of the population, as in training. `mean` and `rstd` (f32, one
    /// per channel) are kept for the backward pass. The running statistics move by `momentum` towards the mean and
    /// the variance of the sample (divided by one less). All but `src` and `dst` have one element per channel.
    Forward {
        src: Operand,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        mean: Operand,
        rstd: Operand,
        running_mean: Operand,
        running_var: Operand,
        shape: ChannelShape,
        eps: f32,
        momentum: f32,
    },
    /// [`Self::Forward`] fused with the operations after it: the sum with `residual`, if there is one, then `x > 0 ? x
    /// : slope · x`; a slope of 1 changes nothing.
    Activation {
        src: Operand,
        residual: Option<Operand>,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        mean: Operand,
        rstd: Operand,
        running_mean: Operand,
        running_var: Operand,
        shape: ChannelShape,
        eps: f32,
        momentum: f32,
        slope: f32,
    },
    /// Gradients of [`Self::Activation`] with respect to its source, weight, bias and residual. Without a residual, the
    /// output's sign is recomputed from the source, and `dsrc` may be `grad`.
    ActivationBackward {
        grad: Operand,
        src: Operand,
        residual: Option<ResidualGradient>,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        bias: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        shape: ChannelShape,
        slope: f32,
    },
    /// Normalises each channel by its running statistics, as when evaluating.
    Inference {
        src: Operand,
        weight: Operand,
        bias: Operand,
        running_mean: Operand,
        running_var: Operand,
        dst: Operand,
        shape: ChannelShape,
        eps: f32,
    },
    /// Gradients of [`Self::Forward`] with respect to its source, weight and bias.
    Backward {
        grad: Operand,
        src: Operand,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        shape: ChannelShape,
    },
    /// Gradients of [`Self::Inference`] with respect to its source, weight and bias.
    InferenceBackward {
        grad: Operand,
        src: Operand,
        weight: Operand,
        running_mean: Operand,
        running_var: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        shape: ChannelShape,
        eps: f32,
    },
}

impl Family for BatchNorm {
    const UNITS: &'static [TranslationUnit] = &[
        TranslationUnit {
            name: "batch_norm",
            source: concat!(
                include_str!("channel_values.cuh"),
                include_str!("batch_norm.cuh"),
                include_str!("batch_norm.cu")
            ),
        },
        TranslationUnit {
            name: "batch_norm_activation",
            source: concat!(
                include_str!("channel_values.cuh"),
                include_str!("batch_norm.cuh"),
                include_str!("batch_norm_activation.cu")
            ),
        },
        TranslationUnit {
            name: "batch_norm_columns",
            source: concat!(include_str!("channel_values.cuh"), include_str!("batch_norm_columns.cu")),
        },
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "batch_norm",
            Self::Activation { .. } => "batch_norm_activation",
            Self::ActivationBackward { .. } => "batch_norm_activation_backward",
            Self::Inference { .. } => "batch_norm_inference",
            Self::Backward { .. } => "batch_norm_backward",
            Self::InferenceBackward { .. } => "batch_norm_inference_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { src, weight, bias, dst, mean, rstd, running_mean, running_var, .. } => {
                tell.all([src, weight, bias, dst, mean, rstd, running_mean, running_var]);
            }
            Self::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, .. } => {
                tell.all([grad, src, mean, rstd, weight, dsrc, dweight, dbias]);
            }
            Self::Activation { src, residual, weight, bias, dst, mean, rstd, running_mean, running_var, .. } => {
                tell.all([src, weight, bias, dst, mean, rstd, running_mean, running_var]);
                tell.all(residual);
            }
            Self::ActivationBackward {
                grad, src, residual, mean, rstd, weight, bias, dsrc, dweight, dbias, ..
            } => {
                tell.all([grad, src, mean, rstd, weight, bias, dsrc, dweight, dbias]);
                tell.all(residual.iter().flat_map(|residual| [&residual.output, &residual.dresidual]));
            }
            Self::Inference { src, weight, bias, running_mean, running_var, dst, .. } => {
                tell.all([src, weight, bias, running_mean, running_var, dst]);
            }
            Self::InferenceBackward { grad, src, weight, running_mean, running_var, dsrc, dweight, dbias, .. } => {
                tell.all([grad, src, weight, running_mean, running_var, dsrc, dweight, dbias])
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Forward { src, shape, .. } => channels(OpClass::BatchNorm, shape, src.dtype, 2),
            Self::Backward { src, shape, .. } | Self::InferenceBackward { src, shape, .. } => {
                channels(OpClass::BatchNormBackward, shape, src.dtype, 3)
            }
            Self::Inference { src, dst, .. } => Work::elementwise(&[src, dst]),
            // Statistics, then a pass over everything; the third launch joins the blocks' results.
            Self::Activation { src, residual, dst, .. } => {
                let added = residual.as_ref().unwrap_or(&NOTHING);
                Work::pass(OpClass::Norm, &[src, src, added, dst]).launches(3, 1.0)
            }
            Self::ActivationBackward { grad, src, residual, dsrc, .. } => {
                let [output, dresidual] = residual.as_ref().map_or([&NOTHING; 2], |r| [&r.output, &r.dresidual]);
                let operands = [grad, grad, src, src, output, dresidual, dsrc];
                Work::pass(OpClass::NormBackward, &operands).launches(3, 1.0)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Forward { src, weight, bias, dst, mean, rstd, running_mean, running_var, shape, eps, momentum } => {
                let operands = cpu::BatchNormForward { src, weight, bias, dst, mean, rstd, running_mean, running_var };
                cpu::forward(on.cores, on.in_place(), &operands, shape, [eps, momentum])
            }
            Self::Activation {
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
                let operands = cpu::BatchNormForward { src, weight, bias, dst, mean, rstd, running_mean, running_var };
                let tail = cpu::Tail { residual, slope };
                cpu::activated(on.cores, on.in_place(), &operands, &tail, shape, [eps, momentum])
            }
            Self::ActivationBackward {
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
                let operands = cpu::BatchNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
                let gate = cpu::ActivationMask {
                    bias,
                    residual: residual.map(|residual| [residual.output, residual.dresidual]),
                    slope,
                };
                cpu::activated_backward(on.cores, on.in_place(), &operands, &gate, shape)
            }
            Self::Inference { src, weight, bias, running_mean, running_var, dst, shape, eps } => {
                let operands = cpu::Inference { src, weight, bias, running_mean, running_var, dst };
                cpu::inference(on.cores, on.in_place(), &operands, shape, eps)
            }
            Self::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, shape } => {
                let operands = cpu::BatchNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
                cpu::backward(on.cores, on.in_place(), &operands, shape, cpu::Statistics::OfBatch)
            }
            Self::InferenceBackward {
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
                let operands = cpu::BatchNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias };
                cpu::backward(on.cores, on.in_place(), &operands, shape, cpu::Statistics::Running { eps })
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

fn channels(class: OpClass, shape: &ChannelShape, dtype: DType, passes: usize) -> Work {
    // Statistics are computed in f32: 16-bit elements are no faster.
    let bytes = count(passes * shape.len()) * 4.0;
    Work { bytes, blocks: count(shape.channels), ..Work::of(class, dtype) }
}
