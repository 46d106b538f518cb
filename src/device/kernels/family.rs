//! The interface of a family of kernels.

use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::Span;
use crate::work::Work;

/// Kernels that belong together, usually those of one file of CUDA C.
pub(crate) trait Family {
    /// Its CUDA C.
    const UNITS: &'static [TranslationUnit];

    /// The kernel's name in errors and logs.
    fn name(&self) -> &'static str;

    /// Passes every span of memory that it accesses to `tell`.
    fn reach(&self, tell: &mut impl FnMut(Span));

    /// Its cost.
    fn work(&self) -> Work;

    /// Runs it on the processor.
    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult;

    /// Launches it on a GPU.
    fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal>;

    /// Compares every kernel of the family, in every type, with the processor in f64.
    fn selftest(session: &mut Session<'_>);
}
