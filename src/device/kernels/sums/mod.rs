//! Sums over one dimension, and means.

pub(super) mod cpu;
pub(super) mod cuda;
mod selftest;

use super::family::Family;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work};
use crate::{ChannelShape, Operand};

/// Sums over one dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Sums {
    /// `dst[c] = Σ_r src[r,c]`.
    Columns { src: Operand, dst: Operand, rows: usize, cols: usize },
    /// `dst[c] = Σ_{n,i} src[n,c,i]`: the gradient of a convolution's bias.
    Channels { src: Operand, dst: Operand, shape: ChannelShape },
    /// `dst[o,i] = Σ_m src[o,m,i] / middle`.
    Mean { src: Operand, dst: Operand, outer: usize, middle: usize, inner: usize },
    /// Gradient of [`Self::Mean`]: `dst[o,m,i] = grad[o,i] / middle`.
    MeanBackward { grad: Operand, dst: Operand, outer: usize, middle: usize, inner: usize },
}

impl Family for Sums {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "sums", source: include_str!("sums.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Columns { .. } => "column_sum",
            Self::Channels { .. } => "channel_sum",
            Self::Mean { .. } => "mean",
            Self::MeanBackward { .. } => "mean_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Columns { src, dst, .. } | Self::Channels { src, dst, .. } | Self::Mean { src, dst, .. } => {
                tell.all([src, dst]);
            }
            Self::MeanBackward { grad, dst, .. } => tell.all([grad, dst]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Columns { src, dst, .. } | Self::Channels { src, dst, .. } | Self::Mean { src, dst, .. } => {
                Work::pass(OpClass::Reduction, &[src, dst])
            }
            // An expanded gradient is divided.
            Self::MeanBackward { grad, dst, .. } => Work::elementwise(&[grad, dst]).launches(2, 1.5),
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Columns { src, dst, rows, cols } => cpu::columns(on.cores, on.apart(), src, dst, rows, cols),
            Self::Channels { src, dst, shape } => cpu::channels(on.cores, on.apart(), src, dst, shape),
            Self::Mean { src, dst, outer, middle, inner } => {
                cpu::mean::forward(on.cores, on.apart(), src, dst, [outer, middle, inner])
            }
            Self::MeanBackward { grad, dst, outer, middle, inner } => {
                cpu::mean::backward(on.cores, on.apart(), grad, dst, [outer, middle, inner])
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
