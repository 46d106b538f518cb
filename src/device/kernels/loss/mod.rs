//! Losses and their gradients.

mod cpu;
mod cuda;
mod selftest;

use super::family::Family;
use crate::Operand;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work};

/// Losses.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Loss {
    /// Mean negative log-likelihood of `targets` (i64) under `logp` (rows × cols): `loss` and `total_weight`
    /// are one element each.
    Nll { logp: Operand, targets: Operand, loss: Operand, total_weight: Operand, cols: usize },
    /// `dst[r, targets[r]] = −grad / total_weight`, everything else 0.
    NllBackward { grad: Operand, targets: Operand, total_weight: Operand, dst: Operand, cols: usize },
    /// Mean cross-entropy of rows of `cols` logits, which start `stride` elements apart, against `targets` (i64; rows
    /// with -100 are ignored). `loss` and `total_weight` (the number of counted rows) are one f32 element each,
    /// `logsumexp` (f32) has one per row. Elements between the rows are not read.
    CrossEntropy {
        logits: Operand,
        targets: Operand,
        loss: Operand,
        total_weight: Operand,
        logsumexp: Operand,
        cols: usize,
        stride: usize,
    },
    /// Gradient of [`Self::CrossEntropy`] with respect to its logits, which it overwrites: `(exp(logits − logsumexp) −
    /// [column = target]) · grad / total_weight`, and zero between the rows; `grad` is one f32 element.
    CrossEntropyBackward {
        grad: Operand,
        logits: Operand,
        targets: Operand,
        total_weight: Operand,
        logsumexp: Operand,
        cols: usize,
        stride: usize,
    },
    /// Mean over all elements of `−t·ln σ(x) − (1 − t)·ln(1 − σ(x))` for `x` of `logits` and `t` of `targets`, in a
    /// form that does not overflow; `loss` is one element.
    BceWithLogits { logits: Operand, targets: Operand, loss: Operand },
    /// Gradient of [`Self::BceWithLogits`] with respect to its logits: `dst = grad · (σ(logits) − targets) / len`;
    /// `grad` is one element.
    BceWithLogitsBackward { grad: Operand, logits: Operand, targets: Operand, dst: Operand },
}

impl Family for Loss {
    const UNITS: &'static [TranslationUnit] = &[
        TranslationUnit { name: "classifier", source: include_str!("classifier.cu") },
        TranslationUnit { name: "loss", source: include_str!("loss.cu") },
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Nll { .. } => "nll_loss",
            Self::NllBackward { .. } => "nll_loss_backward",
            Self::CrossEntropy { .. } => "cross_entropy",
            Self::CrossEntropyBackward { .. } => "cross_entropy_backward",
            Self::BceWithLogits { .. } => "bce_with_logits",
            Self::BceWithLogitsBackward { .. } => "bce_with_logits_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Nll { logp, targets, loss, total_weight, .. } => tell.all([logp, targets, loss, total_weight]),
            Self::NllBackward { grad, targets, total_weight, dst, .. } => tell.all([grad, targets, total_weight, dst]),
            Self::CrossEntropy { logits, targets, loss, total_weight, logsumexp, .. } => {
                tell.all([logits, targets, loss, total_weight, logsumexp]);
            }
            Self::CrossEntropyBackward { grad, logits, targets, total_weight, logsumexp, .. } => {
                tell.all([grad, logits, targets, total_weight, logsumexp]);
            }
            Self::BceWithLogits { logits, targets, loss } => tell.all([logits, targets, loss]),
            Self::BceWithLogitsBackward { grad, logits, targets, dst } => tell.all([grad, logits, targets, dst]),
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Nll { targets, .. } => Work::pass(OpClass::Elementwise, &[targets]),
            // Everything is zeroed, then one element of each row written.
            Self::NllBackward { dst, .. } => Work::pass(OpClass::Elementwise, &[dst]).launches(2, 1.2),
            Self::CrossEntropy { logits, .. } => Work::pass(OpClass::Softmax, &[logits]),
            Self::CrossEntropyBackward { logits, .. } => Work::pass(OpClass::Softmax, &[logits, logits]),
            Self::BceWithLogits { logits, .. } => Work::pass(OpClass::Elementwise, &[logits]).launches(8, 3.0),
            Self::BceWithLogitsBackward { dst, .. } => Work::pass(OpClass::Elementwise, &[dst]).launches(3, 2.0),
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Nll { logp, targets, loss, total_weight, cols } => {
                cpu::nll::forward(on.apart(), logp, targets, loss, total_weight, cols)
            }
            Self::NllBackward { grad, targets, total_weight, dst, cols } => {
                cpu::nll::backward(on.cores, on.apart(), grad, targets, total_weight, dst, cols)
            }
            Self::CrossEntropy { logits, targets, loss, total_weight, logsumexp, cols, stride } => {
                let results = cpu::cross_entropy::Results { loss, total_weight, logsumexp };
                cpu::cross_entropy::forward(on.cores, on.apart(), [logits, targets], results, [cols, stride])
            }
            Self::CrossEntropyBackward { grad, logits, targets, total_weight, logsumexp, cols, stride } => {
                cpu::cross_entropy::backward(
                    on.cores,
                    on.apart(),
                    [grad, total_weight, logsumexp],
                    [logits, targets],
                    [cols, stride],
                )
            }
            Self::BceWithLogits { logits, targets, loss } => cpu::bce::forward(on.apart(), logits, targets, loss),
            Self::BceWithLogitsBackward { grad, logits, targets, dst } => {
                cpu::bce::backward(on.cores, on.in_place(), grad, logits, targets, dst)
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
