//! Pooling over windows.

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
use crate::work::{OpClass, Work};
use crate::{Operand, PoolShape};

/// Pooling over windows.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Pool {
    /// The largest element of each window, and its index in the plane (i64, row · in_width + column; the first of equal
    /// elements, and NaN counts as the largest).
    Max { src: Operand, dst: Operand, indices: Operand, shape: PoolShape },
    /// Gradient of [`Self::Max`]: `dst` (planes × input area) is the sum of `grad` at the positions in `indices`.
    MaxBackward { grad: Operand, indices: Operand, dst: Operand, shape: PoolShape },
}

impl Family for Pool {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "pool", source: include_str!("pool.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Max { .. } => "max_pool",
            Self::MaxBackward { .. } => "max_pool_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Max { src, dst, indices, .. } => tell.all([src, dst, indices]),
            Self::MaxBackward { grad, indices, dst, .. } => tell.all([grad, indices, dst]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Max { src, dst, indices, .. } => Work::pass(OpClass::Pool, &[src, dst, indices]),
            Self::MaxBackward { grad, indices, dst, .. } => {
                Work::pass(OpClass::Pool, &[grad, indices, dst]).launches(2, 1.2)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Max { src, dst, indices, ref shape } => cpu::forward(on.cores, on.apart(), src, dst, indices, shape),
            Self::MaxBackward { grad, indices, dst, ref shape } => {
                cpu::backward(on.cores, on.apart(), grad, indices, dst, shape)
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
