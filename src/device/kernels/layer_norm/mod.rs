//! Layer normalisation, alone and fused with the operations around it in a residual network.

mod cpu;
pub(super) mod cuda;
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

/// Normalises rows of `cols`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum LayerNorm {
    /// Normalises each row of `cols` elements; `mean` and `rstd` are f32, one per row. A weight without elements means
    /// ones, a bias without elements means zeros.
    Forward {
        src: Operand,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        mean: Operand,
        rstd: Operand,
        cols: usize,
        eps: f32,
    },
    /// Gradients of [`Self::Forward`] with respect to its source, weight and bias. Those of weight and bias are not
    /// computed if they have no elements.
    Backward {
        grad: Operand,
        src: Operand,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        dweight: Operand,
        dbias: Operand,
        cols: usize,
    },
    /// [`Self::Forward`] of `src`, or of the sum of `src` and `add`, which it writes to `sum` in src's type: eager's
    /// add, norm and cast in one. The result goes to `dst` and, if given, also to `copy` in another type.
    Add {
        src: Operand,
        add: Option<(Operand, Operand)>,
        weight: Operand,
        bias: Operand,
        dst: Operand,
        copy: Option<Operand>,
        mean: Operand,
        rstd: Operand,
        cols: usize,
        eps: f32,
    },
    /// Gradients of [`Self::Add`] with respect to the normalised operand (`src`: the source or the sum), weight and
    /// bias. The gradient of the result is `grad`, plus `second` if given. `residual` is added to dsrc and may be the
    /// same operand; `copy` gets dsrc in another type.
    AddBackward {
        grad: Operand,
        second: Option<Operand>,
        residual: Option<Operand>,
        src: Operand,
        mean: Operand,
        rstd: Operand,
        weight: Operand,
        dsrc: Operand,
        copy: Option<Operand>,
        dweight: Operand,
        dbias: Operand,
        cols: usize,
    },
}

impl Family for LayerNorm {
    const UNITS: &'static [TranslationUnit] = &[
        TranslationUnit {
            name: "add_layer_norm",
            source: concat!(include_str!("layer_norm.cuh"), include_str!("add_layer_norm.cu")),
        },
        TranslationUnit {
            name: "layer_norm",
            source: concat!(include_str!("layer_norm.cuh"), include_str!("layer_norm.cu")),
        },
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "layer_norm",
            Self::Backward { .. } => "layer_norm_backward",
            Self::Add { .. } => "add_layer_norm",
            Self::AddBackward { .. } => "add_layer_norm_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { src, weight, bias, dst, mean, rstd, .. } => tell.all([src, weight, bias, dst, mean, rstd]),
            Self::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, .. } => {
                tell.all([grad, src, mean, rstd, weight, dsrc, dweight, dbias]);
            }
            Self::Add { src, add, weight, bias, dst, copy, mean, rstd, .. } => {
                tell.all([src, weight, bias, dst, mean, rstd]);
                tell.all(add.iter().flat_map(|(add, sum)| [add, sum]).chain(copy));
            }
            Self::AddBackward {
                grad, second, residual, src, mean, rstd, weight, dsrc, copy, dweight, dbias, ..
            } => {
                tell.all([grad, src, mean, rstd, weight, dsrc, dweight, dbias]);
                tell.all([second, residual, copy].into_iter().flatten());
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Forward { src, dst, .. } => Work::pass(OpClass::Norm, &[src, dst]),
            Self::Backward { grad, src, dsrc, .. } => {
                Work::pass(OpClass::NormBackward, &[grad, src, dsrc]).launches(2, 1.0)
            }
            Self::Add { src, add, dst, copy, .. } => {
                let added = add.iter().flat_map(|(add, sum)| [add, sum]);
                Work::pass(OpClass::Norm, &[src, dst].into_iter().chain(added).chain(copy).collect::<Vec<_>>())
            }
            Self::AddBackward { grad, second, residual, src, dsrc, copy, .. } => {
                let optional = [second, residual, copy].into_iter().flatten();
                let operands: Vec<_> = [src, grad, dsrc].into_iter().chain(optional).collect();
                Work::pass(OpClass::NormBackward, &operands).launches(2, 1.0)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Forward { src, weight, bias, dst, mean, rstd, cols, eps } => {
                let operands = cpu::LayerNormForward { src, add: None, weight, bias, dst, copy: None, mean, rstd };
                cpu::forward(on.cores, on.in_place(), &operands, cols, eps)
            }
            Self::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, cols } => {
                let optional = cpu::Optional { second: None, residual: None, copy: None };
                let operands = cpu::LayerNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, optional };
                cpu::backward(on.cores, on.in_place(), &operands, cols)
            }
            Self::Add { src, add, weight, bias, dst, copy, mean, rstd, cols, eps } => {
                let operands = cpu::LayerNormForward { src, add, weight, bias, dst, copy, mean, rstd };
                cpu::forward(on.cores, on.in_place(), &operands, cols, eps)
            }
            Self::AddBackward { grad, second, residual, src, mean, rstd, weight, dsrc, copy, dweight, dbias, cols } => {
                let optional = cpu::Optional { second, residual, copy };
                let operands = cpu::LayerNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, optional };
                cpu::backward(on.cores, on.in_place(), &operands, cols)
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
