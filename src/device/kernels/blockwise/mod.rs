//! Values in 4 and in 8 bits with a magnitude for each run of them, as bitsandbytes quantises blockwise.

mod cpu;
mod cuda;
mod selftest;

use super::family::Family;
use super::optimizer::AdamParameters;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{OpClass, Work, count, size};
use crate::{DType, Operand};

/// The largest magnitudes of the runs of a packed matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitudes {
    /// In f32.
    Plain(Operand),
    /// In 8 bits: `codes[bytes[i]] · absmax[i / 256] + offset`.
    Nested {
        /// A byte for each run.
        bytes: Operand,
        /// 256 values in f32.
        codes: Operand,
        /// The largest magnitude of each 256 of them, in f32.
        absmax: Operand,
        /// One element, in f32.
        offset: Operand,
    },
}

impl Magnitudes {
    /// Every operand of it.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let all = match self {
            Self::Plain(absmax) => [Some(absmax), None, None, None],
            Self::Nested { bytes, codes, absmax, offset } => [Some(bytes), Some(codes), Some(absmax), Some(offset)],
        };
        all.into_iter().flatten()
    }
}

/// A moment of an optimizer in 8 bits ([`Blockwise::QuantizeBytes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMoment {
    /// As many as elements of the parameter (u8).
    pub bytes: Operand,
    /// What they stand for: 256, ascending (f32).
    pub codes: Operand,
    /// The largest magnitude of each run of [`BYTES_RUN`](crate::BYTES_RUN) (f32).
    pub absmax: Operand,
}

impl ByteMoment {
    /// All that it is made of.
    #[must_use]
    pub const fn operands(&self) -> [&Operand; 3] {
        [&self.bytes, &self.codes, &self.absmax]
    }
}

/// What bitsandbytes keeps of a parameter's two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMoments {
    /// In 8 bits.
    Bytes([ByteMoment; 2]),
    /// In f32, of small parameters.
    Wide([Operand; 2]),
}

impl KeptMoments {
    /// All that they are made of.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let (bytes, wide) = match self {
            Self::Bytes(moments) => (Some(moments), None),
            Self::Wide(moments) => (None, Some(moments)),
        };
        bytes.into_iter().flatten().flat_map(ByteMoment::operands).chain(wide.into_iter().flatten())
    }
}

/// What bitsandbytes keeps of a parameter's only moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMoment {
    /// In 8 bits.
    Bytes(ByteMoment),
    /// In f32.
    Wide(Operand),
}

impl KeptMoment {
    /// All that it is made of.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let (bytes, wide) = match self {
            Self::Bytes(moment) => (Some(moment), None),
            Self::Wide(moment) => (None, Some(moment)),
        };
        bytes.into_iter().flat_map(ByteMoment::operands).chain(wide)
    }
}

/// Hyper-parameters of one Lion update, with bitsandbytes' names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionParameters {
    /// Learning rate.
    pub lr: f64,
    /// Share of the moment in the direction of the update.
    pub beta1: f64,
    /// Decay of the moment.
    pub beta2: f64,
    /// Decay of the weight itself, before its step.
    pub weight_decay: f64,
}

/// bitsandbytes' kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Blockwise {
    /// Two elements a byte of `dst` (u8), the first in its high half: the place in [`NF4`](crate::NF4) of what is nearest to each of
    /// `src` over the largest magnitude of its run of [`NF4_RUN`](crate::NF4_RUN), which `absmax` (f32) becomes.
    QuantizeNf4 { src: Operand, dst: Operand, absmax: Operand },
    /// `dst[i] = NF4[half i of src] · absmax[i / NF4_RUN]`.
    DequantizeNf4 { src: Operand, absmax: Operand, dst: Operand },
    /// Each byte of `dst` is the place in `codes` (256, ascending) of what is nearest to each of `src` over the largest magnitude of
    /// its run of [`BYTES_RUN`](crate::BYTES_RUN), which `absmax` (f32) becomes.
    QuantizeBytes { src: Operand, codes: Operand, dst: Operand, absmax: Operand },
    /// `dst[i] = codes[src[i]] · absmax[i / BYTES_RUN]`.
    DequantizeBytes { src: Operand, codes: Operand, absmax: Operand, dst: Operand },
    /// `dst[m,n] = a[m,k] w[n,k]ᵀ (+ bias[n])`, where `w` is packed as [`Self::QuantizeNf4`] leaves it; rows of whole runs.
    GemmNf4 {
        m: usize,
        n: usize,
        k: usize,
        a: Operand,
        w: Operand,
        magnitudes: Magnitudes,
        bias: Option<Operand>,
        dst: Operand,
    },
    /// AdamW of one parameter as bitsandbytes has it: weights decay behind their update, rounded to their type in between. The byte
    /// that is nearest to a first moment keeps its sign.
    AdamOfBytes { parameter: Operand, gradient: Operand, moments: KeptMoments, rule: AdamParameters },
    /// Lion of one parameter as bitsandbytes has it: `p = p·(1 − lr·decay) − lr·sign(β₁m + (1−β₁)g)`, then `m = β₂m + (1−β₂)g`. Weights that
    /// decayed are rounded to their type, and so is the step where the moment is in 8 bits.
    Lion { parameter: Operand, gradient: Operand, moment: KeptMoment, rule: LionParameters },
}

impl Family for Blockwise {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "nf4", source: include_str!("nf4.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::QuantizeNf4 { .. } => "quantize_nf4",
            Self::DequantizeNf4 { .. } => "dequantize_nf4",
            Self::QuantizeBytes { .. } => "quantize_bytes",
            Self::DequantizeBytes { .. } => "dequantize_bytes",
            Self::GemmNf4 { .. } => "gemm_nf4",
            Self::AdamOfBytes { .. } => "adam_of_bytes",
            Self::Lion { .. } => "lion",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::QuantizeNf4 { src, dst, absmax } | Self::DequantizeNf4 { src, absmax, dst } => {
                tell.all([src, absmax, dst]);
            }
            Self::QuantizeBytes { src, codes, dst, absmax } | Self::DequantizeBytes { src, codes, absmax, dst } => {
                tell.all([src, codes, absmax, dst]);
            }
            Self::GemmNf4 { a, w, magnitudes, bias, dst, .. } => {
                tell.all([a, w, dst]);
                tell.all(magnitudes.operands().chain(bias));
            }
            Self::AdamOfBytes { parameter, gradient, moments, .. } => {
                tell.all([parameter, gradient]);
                tell.all(moments.operands());
            }
            Self::Lion { parameter, gradient, moment, .. } => {
                tell.all([parameter, gradient]);
                tell.all(moment.operands());
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::QuantizeNf4 { src, dst, absmax } | Self::QuantizeBytes { src, dst, absmax, .. } => {
                Work::pass(OpClass::Reduction, &[src, absmax, dst])
            }
            // What is written decides in which type it is converted.
            Self::DequantizeNf4 { src, absmax, dst } | Self::DequantizeBytes { src, absmax, dst, .. } => {
                Work::pass(OpClass::Convert, &[dst, src, absmax])
            }
            Self::GemmNf4 { m, n, k, a, w, dst, .. } => Work {
                flops: 2.0 * count(*m) * count(*n) * count(*k),
                bytes: size(a) + size(w) + size(dst),
                blocks: count(m.div_ceil(64) * n.div_ceil(64)),
                ..Work::of(OpClass::Gemm { alignment: 16, inner_contiguous: 2, inner: *k }, a.dtype)
            },
            Self::AdamOfBytes { parameter, gradient, moments, .. } => update(parameter, gradient, moments.operands()),
            Self::Lion { parameter, gradient, moment, .. } => update(parameter, gradient, moment.operands()),
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::QuantizeNf4 { src, dst, absmax } => cpu::quantize(on.cores, on.apart(), src, [dst, absmax]),
            Self::DequantizeNf4 { src, absmax, dst } => cpu::dequantize(on.cores, on.apart(), [src, absmax], dst),
            Self::QuantizeBytes { src, codes, dst, absmax } => {
                cpu::quantize_bytes(on.cores, on.apart(), [src, codes], [dst, absmax])
            }
            Self::DequantizeBytes { src, codes, absmax, dst } => {
                cpu::dequantize_bytes(on.cores, on.apart(), [src, codes, absmax], dst)
            }
            Self::GemmNf4 { m, n, k, a, w, magnitudes, bias, dst } => {
                cpu::gemm(on.cores, on.apart(), [m, n, k], &cpu::PackedGemm { a, w, magnitudes, bias, dst })
            }
            Self::AdamOfBytes { parameter, gradient, ref moments, ref rule } => {
                cpu::adam::update(on.cores, on.apart(), [parameter, gradient], moments, rule)
            }
            Self::Lion { parameter, gradient, ref moment, ref rule } => {
                cpu::lion::update(on.cores, on.apart(), [parameter, gradient], moment, rule)
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

/// One launch a parameter: reads and writes weights and state, reads gradients.
fn update<'a>(parameter: &Operand, gradient: &Operand, state: impl Iterator<Item = &'a Operand>) -> Work {
    let state: f64 = state.map(size).sum();
    let bytes = 2.0 * size(parameter) + size(gradient) + 2.0 * state;
    Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }
}
