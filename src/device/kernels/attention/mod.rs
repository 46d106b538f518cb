//! Scaled dot-product attention that stores no matrix of scores.

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
use crate::{AttentionShape, DType, Earlier, FusedAttention, HeadView, Operand};
use vramlab_allocator::units::Address;

/// Scaled dot-product attention.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Attention {
    /// Scaled dot-product attention. `logsumexp` is f32 of (batch, heads, `lse_stride`); elements beyond
    /// [`AttentionShape::rows`] unused.
    Forward {
        by: FusedAttention,
        shape: AttentionShape,
        q: HeadView,
        k: HeadView,
        v: HeadView,
        out: HeadView,
        logsumexp: Operand,
        lse_stride: usize,
    },
    /// The same for when no gradients are needed, with [`AttentionShape::rows`] queries over `keys` positions of keys
    /// and values; causal only if both numbers are equal.
    Inference {
        by: FusedAttention,
        shape: AttentionShape,
        keys: usize,
        q: HeadView,
        k: HeadView,
        v: HeadView,
        out: HeadView,
    },
    /// Gradients of [`Self::Forward`]. Those of keys and values (`dk`, `dv`) are per query head, even if heads share
    /// keys: the caller computes their sum if needed.
    Backward {
        by: FusedAttention,
        shape: AttentionShape,
        q: HeadView,
        k: HeadView,
        v: HeadView,
        out: HeadView,
        logsumexp: Operand,
        lse_stride: usize,
        grad: HeadView,
        dq: HeadView,
        dk: HeadView,
        dv: HeadView,
    },
}

impl Family for Attention {
    const UNITS: &'static [TranslationUnit] = &[
        TranslationUnit {
            name: "attention",
            source: concat!(include_str!("attention.cuh"), include_str!("attention.cu")),
        },
        TranslationUnit {
            name: "attention_mma",
            source: concat!(include_str!("attention.cuh"), include_str!("attention_mma.cu")),
        },
    ];

    fn name(&self) -> &'static str {
        match self {
            Self::Forward { .. } => "attention",
            Self::Inference { .. } => "attention_inference",
            Self::Backward { .. } => "attention_backward",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Forward { shape, q, k, v, out, logsumexp, .. } => {
                tell.all([logsumexp]);
                for (view, shape) in
                    [(q, *shape), (k, shape.of_keys()), (v, shape.of_values()), (out, shape.of_result())]
                {
                    tell.span(Span::heads(view, &shape, shape.rows));
                }
            }
            Self::Inference { by: _, shape, keys, q, k, v, out } => {
                for (view, shape) in [(q, *shape), (out, shape.of_result())] {
                    tell.span(Span::heads(view, &shape, shape.rows));
                }
                for (view, shape) in [(k, shape.of_keys()), (v, shape.of_values())] {
                    tell.span(Span::heads(view, &shape, *keys));
                }
            }
            Self::Backward { shape, q, k, v, out, logsumexp, grad, dq, dk, dv, .. } => {
                tell.all([logsumexp]);
                for (view, shape) in [(k, shape.of_keys()), (v, shape.of_values())] {
                    tell.span(Span::heads(view, &shape, shape.rows));
                }
                for view in [q, dq, dk] {
                    tell.span(Span::heads(view, shape, shape.rows));
                }
                for view in [out, grad, dv] {
                    tell.span(Span::heads(view, &shape.of_result(), shape.rows));
                }
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            // Views split the heads and join them again.
            Self::Forward { by, shape, q, .. } => {
                cost(OpClass::Attention(*by), shape, shape.rows, q.dtype, 2.0).launches(1, 3.0)
            }
            Self::Inference { by, shape, keys, q, .. } => {
                cost(OpClass::Attention(*by), shape, *keys, q.dtype, 2.0).launches(1, 3.0)
            }
            Self::Backward { by, shape, q, .. } => {
                cost(OpClass::AttentionBackward(*by), shape, shape.rows, q.dtype, 5.0).launches(3, 3.0)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        if let Some(mut chunks) = self.chunks() {
            return chunks.try_for_each(|chunk| chunk.on_cpu(on));
        }
        match *self {
            Self::Forward { by: _, ref shape, q, k, v, out, logsumexp, lse_stride } => {
                cpu::forward(on.cores, on.apart(), shape, [q, k, v, out], logsumexp, lse_stride)
            }
            Self::Inference { by: _, ref shape, keys, q, k, v, out } => {
                cpu::inference(on.cores, on.apart(), shape, keys, [q, k, v, out])
            }
            Self::Backward { by: _, ref shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
                cpu::backward(on.cores, on.apart(), shape, [q, k, v, out, grad], logsumexp, lse_stride, [dq, dk, dv])
            }
        }
    }

    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
        match self.chunks() {
            Some(mut chunks) => chunks.try_for_each(|chunk| cuda::launch(queue, &chunk)),
            None => cuda::launch(queue, self),
        }
    }

    fn selftest(session: &mut Session<'_>) {
        selftest::run(session);
    }
}

impl Attention {
    const fn shape(&self) -> &AttentionShape {
        match self {
            Self::Forward { shape, .. } | Self::Inference { shape, .. } | Self::Backward { shape, .. } => shape,
        }
    }

    /// A call for each chunk, if positions only see those of their own.
    fn chunks(&self) -> Option<impl Iterator<Item = Self>> {
        let AttentionShape { rows, causal, earlier, .. } = *self.shape();
        let Earlier::Chunk(chunk @ 1..) = earlier else { return None };
        causal.then(|| (0..rows).step_by(chunk).map(move |first| self.chunk(first, chunk.min(rows - first))))
    }

    /// The same for `rows` positions from `first` on, which see none of the others.
    fn chunk(&self, first: usize, rows: usize) -> Self {
        let within = |shape: AttentionShape| AttentionShape { rows, earlier: Earlier::All, ..shape };
        let behind = |view: HeadView| {
            let before = view.dtype.size() * (first * view.row_stride) as u64;
            HeadView { address: Address(view.address.0 + before), ..view }
        };
        let sums_behind = |sums: Operand| {
            let before = sums.dtype.size() * first as u64;
            Operand { address: Address(sums.address.0 + before), len: sums.len.saturating_sub(first), ..sums }
        };
        match *self {
            Self::Forward { by, shape, q, k, v, out, logsumexp, lse_stride } => {
                let ([q, k, v, out], logsumexp) = ([q, k, v, out].map(behind), sums_behind(logsumexp));
                Self::Forward { by, shape: within(shape), q, k, v, out, logsumexp, lse_stride }
            }
            Self::Inference { by, shape, keys: _, q, k, v, out } => {
                let [q, k, v, out] = [q, k, v, out].map(behind);
                Self::Inference { by, shape: within(shape), keys: rows, q, k, v, out }
            }
            Self::Backward { by, shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv } => {
                let ([q, k, v, out], logsumexp) = ([q, k, v, out].map(behind), sums_behind(logsumexp));
                let [grad, dq, dk, dv] = [grad, dq, dk, dv].map(behind);
                Self::Backward { by, shape: within(shape), q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv }
            }
        }
    }
}

/// The cost of `products` products the size of queries with keys.
fn cost(class: OpClass, shape: &AttentionShape, keys: usize, dtype: DType, products: f64) -> Work {
    // In whole tiles of 64 positions. Causal attention skips the tiles above the diagonal, but none if there is a mask.
    let (rows, keys) = (count(shape.rows.next_multiple_of(64)), count(keys.next_multiple_of(64)));
    let seen = if shape.causal && !shape.masked { 0.5 } else { 1.0 };
    let [heads, shared] = [shape.heads, shape.of_keys().heads].map(|heads| count(shape.batch * heads));
    // About half of the products are of queries with keys, the others of weights with values.
    let size = 0.5 * (count(shape.head_size) + count(shape.value_size));
    Work {
        flops: 2.0 * products * heads * rows * keys * size * seen,
        bytes: 2.0 * (heads * rows + shared * keys) * size * count_bytes(dtype),
        blocks: heads * count(shape.rows.div_ceil(64)),
        ..Work::of(class, dtype)
    }
}
