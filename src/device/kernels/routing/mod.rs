//! The choice of experts for each row, and the products of each expert's rows.

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
use crate::work::{OpClass, Work, count, count_bytes, size};
use crate::{DType, MatrixView, Operand};

/// Choices of experts, and products by them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Routing {
    /// The `k` largest elements of each row of `cols`, in descending order, and their indices; of equal elements the
    /// first is taken.
    TopK { src: Operand, values: Operand, indices: Operand, cols: usize, k: usize },
    /// Rows of `cols` zeros, except `dst[r, indices[r, i]] = grad[r, i]` for the `k` indices of each row.
    TopKBackward { grad: Operand, indices: Operand, dst: Operand, cols: usize, k: usize },
    /// `dst[r, i] = src[r, indices[r, i]]` for the `k` indices of each row of `cols`.
    Gather { src: Operand, indices: Operand, dst: Operand, cols: usize, k: usize },
    /// Sorts positions by their group in `groups` (below `count`), and stably within a group: `order` lists the
    /// positions, `sorted` their groups, and `rows[i] = order[i] / each`.
    GroupRows { groups: Operand, sorted: Operand, order: Operand, rows: Operand, count: usize, each: usize },
    /// The end of each group after sorting positions by group: `ends[g]` (i32) counts the positions of group g and all
    /// earlier ones.
    GroupEnds { groups: Operand, ends: Operand },
    /// `dst[order[i]] = i`.
    Invert { order: Operand, dst: Operand },
    /// Products of runs of rows with one matrix per run: `dst[r, :] = a[r, :] b[g]` for the rows r of group g, which
    /// ends before `ends[g]`; `a` has rows of `k`, each matrix is k × n.
    GroupedGemm { n: usize, k: usize, a: Operand, b: MatrixView, dst: Operand, ends: Operand },
    /// `dst[g] = Σ_r a[r, :]ᵀ b[r, :]` over the rows r of group g, m × n each; zeros for a group without rows.
    GroupedGemmOuter { m: usize, n: usize, a: Operand, b: Operand, dst: Operand, ends: Operand },
}

impl Family for Routing {
    const UNITS: &'static [TranslationUnit] =
        &[TranslationUnit { name: "routing", source: include_str!("routing.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::TopK { .. } => "top_k",
            Self::TopKBackward { .. } => "top_k_backward",
            Self::Gather { .. } => "gather",
            Self::GroupRows { .. } => "group_rows",
            Self::GroupEnds { .. } => "group_ends",
            Self::Invert { .. } => "invert",
            Self::GroupedGemm { .. } => "grouped_gemm",
            Self::GroupedGemmOuter { .. } => "grouped_gemm_outer",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::TopK { src, values, indices, .. } => tell.all([src, values, indices]),
            Self::TopKBackward { grad, indices, dst, .. } => tell.all([grad, indices, dst]),
            Self::Gather { src, indices, dst, .. } => tell.all([src, indices, dst]),
            Self::GroupRows { groups, sorted, order, rows, .. } => tell.all([groups, sorted, order, rows]),
            Self::GroupEnds { groups, ends } => tell.all([groups, ends]),
            Self::Invert { order, dst } => tell.all([order, dst]),
            Self::GroupedGemm { n, k, a, b, dst, ends } => {
                tell.all([a, dst, ends]);
                tell.span(Span::matrix(b, [ends.len, *k, *n]));
            }
            Self::GroupedGemmOuter { a, b, dst, ends, .. } => tell.all([a, b, dst, ends]),
        }
    }

    fn work(&self) -> Work {
        match self {
            // Every row is read again for each pass of a selection.
            Self::TopK { src, values, indices, .. } => Work::pass(OpClass::Reduction, &[src, src, values, indices]),
            // Zeros, and a scatter into them.
            Self::TopKBackward { grad, indices, dst, .. } => {
                Work::pass(OpClass::Scatter, &[grad, indices, dst]).launches(2, 1.5)
            }
            Self::Gather { indices, dst, .. } => Work::pass(OpClass::Scatter, &[dst, indices, dst]),
            // A sort with its passes, and a division.
            Self::GroupRows { groups, order, rows, .. } => {
                Work::pass(OpClass::Scatter, &[groups, order, order, rows]).launches(9, 3.0)
            }
            // A histogram of narrower numbers, and its running sum.
            Self::GroupEnds { groups, ends } => Work::pass(OpClass::Scatter, &[groups, groups, ends]).launches(4, 3.0),
            // Consecutive numbers, and a scatter of them.
            Self::Invert { order, dst } => Work::pass(OpClass::Scatter, &[order, dst]).launches(2, 2.0),
            Self::GroupedGemm { n, k, a, b, dst, ends } => {
                let rows = a.len / (*k).max(1);
                grouped([rows, *n, *k], ends.len, size(a) + size(dst), b.dtype)
            }
            Self::GroupedGemmOuter { m, n, a, b, ends, .. } => {
                let rows = a.len / (*m).max(1);
                grouped([rows, *n, *m], ends.len, size(a) + size(b), b.dtype)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::TopK { src, values, indices, cols, k } => {
                cpu::top_k(on.cores, on.apart(), src, [values, indices], [cols, k])
            }
            Self::TopKBackward { grad, indices, dst, cols, k } => {
                cpu::top_k_backward(on.cores, on.apart(), [grad, indices, dst], [cols, k])
            }
            Self::Gather { src, indices, dst, cols, k } => {
                cpu::gather(on.cores, on.apart(), [src, indices, dst], [cols, k])
            }
            Self::GroupRows { groups, sorted, order, rows, count, each } => {
                cpu::group_rows(on.cores, on.apart(), groups, [sorted, order, rows], [count, each])
            }
            Self::GroupEnds { groups, ends } => cpu::group_ends(on.apart(), [groups, ends]),
            Self::Invert { order, dst } => cpu::invert(on.apart(), [order, dst]),
            Self::GroupedGemm { n, k, a, b, dst, ends } => {
                cpu::grouped_gemm(on.cores, || on.apart(), [n, k], a, b, [dst, ends])
            }
            Self::GroupedGemmOuter { m, n, a, b, dst, ends } => {
                cpu::grouped_outer(on.cores, || on.apart(), [m, n], [a, b], [dst, ends])
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

/// The cost of a product of `rows` rows in total with (or into) one matrix for each of `groups`; `bytes` is the traffic
/// of all other operands. Every group starts new tiles, and one kernel sets up all products.
fn grouped([rows, n, k]: [usize; 3], groups: usize, bytes: f64, dtype: DType) -> Work {
    let tiles = rows.div_ceil(128) + groups;
    Work {
        flops: 2.0 * count(rows) * count(n) * count(k),
        bytes: bytes + count(groups * n * k) * count_bytes(dtype),
        blocks: count(tiles * n.div_ceil(128)),
        ..Work::of(OpClass::Gemm { alignment: 16, inner_contiguous: 2, inner: k }, dtype)
    }
    .launches(2, 1.5)
}
