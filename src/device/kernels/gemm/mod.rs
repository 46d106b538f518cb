//! Matrix products.

pub(super) mod cpu;
mod cuda;
mod selftest;

use super::family::Family;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::Work;
use crate::{MatrixView, Operand};

/// `c[m,n] = alpha · a[m,k] b[k,n] (+ bias[n]) + beta · c` for each matrix of the batch; if `beta` is 0, `c` is not
/// read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub struct Gemm {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
    pub a: MatrixView,
    pub b: MatrixView,
    pub c: MatrixView,
    pub bias: Option<Operand>,
    pub alpha: f32,
    pub beta: f32,
}

impl Family for Gemm {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "gemm", source: include_str!("gemm.cu") }];

    fn name(&self) -> &'static str {
        "gemm"
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        let Self { m, n, k, batch, a, b, c, bias, .. } = self;
        tell.all(bias);
        tell.span(Span::matrix(a, [*batch, *m, *k]));
        tell.span(Span::matrix(b, [*batch, *k, *n]));
        tell.span(Span::matrix(c, [*batch, *m, *n]));
    }

    fn work(&self) -> Work {
        Work::gemm([self.m, self.n, self.k], self.batch, [&self.a, &self.b, &self.c])
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        cpu::gemm(on.cores, on.apart(), self)
    }

    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
        cuda::launch(queue, self)
    }

    fn selftest(session: &mut Session<'_>) {
        selftest::run(session);
    }
}
