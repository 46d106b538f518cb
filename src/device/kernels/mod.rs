//! The kernels that ops launch, as data, and their implementation on every device.
//!
//! A family contains everything about its kernels: their operands, names, reach and cost, the processor's loops, the
//! CUDA C and its launches, and the cases of the selftest. [`Kernel`] is a kernel of any family and delegates to its
//! family. 16-bit operands are read and written as such; arithmetic is in f32 (f64 if any float operand is f64), and
//! elements are converted as they are loaded and stored. On a GPU sums run in a fixed order, so that a run can be
//! repeated bit for bit.

mod attention;
mod batch_norm;
mod blockwise;
mod convolution;
mod elementwise;
mod embedding;
pub(crate) mod family;
mod float8;
mod gemm;
mod layer_norm;
mod loss;
mod muon;
mod optimizer;
mod pool;
mod rms_norm;
mod rotary;
mod routing;
mod softmax;
mod strided;
mod sums;

use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::Span;
use crate::work::Work;
use family::Family;

pub use batch_norm::ResidualGradient;
pub use blockwise::{ByteMoment, KeptMoment, KeptMoments, LionParameters, Magnitudes};
pub use float8::ScaleGroups;
pub use optimizer::{AdamParameters, GradScaling, NORM_RUN, ParameterUpdate, UpdatePasses};

macro_rules! families {
    ($($module:ident::$family:ident$(<$borrowed:lifetime>)?,)*) => {
        $(pub use $module::$family;)*

        /// A unit of device work.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[expect(missing_docs, reason = "each is a family, which says what it is")]
        pub enum Kernel<'a> {
            $($family($family$(<$borrowed>)?),)*
        }

        $(impl<'a> From<$family$(<$borrowed>)?> for Kernel<'a> {
            fn from(kernel: $family$(<$borrowed>)?) -> Self {
                Self::$family(kernel)
            }
        })*

        impl Kernel<'_> {
            /// The kernel's name in errors and logs.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$family(kernel) => kernel.name(),)* }
            }

            /// Passes every span of memory that it accesses to `tell`.
            pub fn reach(&self, mut tell: impl FnMut(Span)) {
                match self { $(Self::$family(kernel) => kernel.reach(&mut tell),)* }
            }

            /// Its cost.
            #[must_use]
            pub fn work(&self) -> Work {
                match self { $(Self::$family(kernel) => kernel.work(),)* }
            }

            /// Runs it on the processor.
            pub(crate) fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
                match self { $(Self::$family(kernel) => kernel.on_cpu(on),)* }
            }

            /// Launches it on a GPU.
            pub(crate) fn on_cuda(&self, queue: &mut Queue<'_>) -> Result<(), Refusal> {
                match self { $(Self::$family(kernel) => kernel.on_cuda(queue),)* }
            }
        }

        /// The CUDA C of all families.
        pub(crate) fn units() -> impl Iterator<Item = &'static TranslationUnit> {
            [$($family::UNITS,)*].into_iter().flatten()
        }

        /// Tests all families.
        pub(crate) fn selftest(session: &mut Session<'_>) {
            $($family::selftest(session);)*
        }
    };
}

families! {
    elementwise::Elementwise,
    strided::Strided,
    sums::Sums,
    softmax::Softmax,
    layer_norm::LayerNorm,
    rms_norm::RmsNorm,
    gemm::Gemm,
    embedding::Embedding,
    loss::Loss,
    attention::Attention,
    rotary::Rotary,
    routing::Routing,
    blockwise::Blockwise,
    float8::Float8,
    convolution::Convolution,
    batch_norm::BatchNorm,
    pool::Pool,
    optimizer::Optimizer<'a>,
    muon::Muon,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Names of the files of CUDA C below a folder, without their ending.
    fn cuda_c(folder: &Path, found: &mut BTreeSet<String>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                cuda_c(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "cu") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                assert!(found.insert(name), "{} has the name of another", path.display());
            }
        }
    }

    #[test]
    fn every_file_of_cuda_c_is_a_unit_of_a_family_in_the_list() {
        let mut files = BTreeSet::new();
        cuda_c(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/device/kernels"), &mut files);
        let listed: Vec<String> = units().map(|unit| unit.name.to_owned()).collect();
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), files);
        assert_eq!(listed.len(), files.len(), "a unit is listed twice");
    }
}
