//! 4-bit and 8-bit values with one magnitude for each run of values: bitsandbytes' blockwise quantisation.

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
        /// One byte for each run.
        bytes: Operand,
        /// 256 values in f32.
        codes: Operand,
        /// The largest magnitude of each 256 of the runs' magnitudes, in f32.
        absmax: Operand,
        /// One f32 element.
        offset: Operand,
    },
}

impl Magnitudes {
    /// All of its operands.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let all = match self {
            Self::Plain(absmax) => [Some(absmax), None, None, None],
            Self::Nested { bytes, codes, absmax, offset } => [Some(bytes), Some(codes), Some(absmax), Some(offset)],
        };
        all.into_iter().flatten()
    }
}

/// An optimizer's 8-bit moment ([`Blockwise::QuantizeBytes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteMoment {
    /// One code for each element of the parameter (u8).
    pub bytes: Operand,
    /// The values of the codes: 256, ascending (f32).
    pub codes: Operand,
    /// The largest magnitude of each run of [`BYTES_RUN`](crate::BYTES_RUN) (f32).
    pub absmax: Operand,
}

impl ByteMoment {
    /// All of its operands.
    #[must_use]
    pub const fn operands(&self) -> [&Operand; 3] {
        [&self.bytes, &self.codes, &self.absmax]
    }
}

/// The two moments of a parameter, as bitsandbytes stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMoments {
    /// In 8 bits.
    Bytes([ByteMoment; 2]),
    /// In f32, for small parameters.
    Wide([Operand; 2]),
}

impl KeptMoments {
    /// All of their operands.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let (bytes, wide) = match self {
            Self::Bytes(moments) => (Some(moments), None),
            Self::Wide(moments) => (None, Some(moments)),
        };
        bytes.into_iter().flatten().flat_map(ByteMoment::operands).chain(wide.into_iter().flatten())
    }
}

/// The only moment of a parameter, as bitsandbytes stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMoment {
    /// In 8 bits.
    Bytes(ByteMoment),
    /// In f32.
    Wide(Operand),
}

impl KeptMoment {
    /// All of its operands.
    pub fn operands(&self) -> impl Iterator<Item = &Operand> {
        let (bytes, wide) = match self {
            Self::Bytes(moment) => (Some(moment), None),
            Self::Wide(moment) => (None, Some(moment)),
        };
        bytes.into_iter().flat_map(ByteMoment::operands).chain(wide)
    }
}

/// Hyper-parameters of one Lion update, by bitsandbytes' names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionParameters {
    /// Learning rate.
    pub lr: f64,
    /// The moment's share of the update's direction.
    pub beta1: f64,
    /// Decay of the moment.
    pub beta2: f64,
    /// The weight's decay, applied before its step.
    pub weight_decay: f64,
}

/// Kernels of bitsandbytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Blockwise {
    /// Packs two codes into each byte of `dst` (u8), the first in the high half. `absmax` (f32) receives the largest
    /// magnitude of each run of [`NF4_RUN`](crate::NF4_RUN) elements, and a code is the index in [`NF4`](crate::NF4) of
    /// the value nearest to the element divided by that.
    QuantizeNf4 { src: Operand, dst: Operand, absmax: Operand },
    /// `dst[i] = NF4[half i of src] · absmax[i / NF4_RUN]`.
    DequantizeNf4 { src: Operand, absmax: Operand, dst: Operand },
    /// `absmax` (f32) receives the largest magnitude of each run of [`BYTES_RUN`](crate::BYTES_RUN) elements, and each
    /// byte of `dst` is the index in `codes` (256, ascending) of the value nearest to the element divided by that.
    QuantizeBytes { src: Operand, codes: Operand, dst: Operand, absmax: Operand },
    /// `dst[i] = codes[src[i]] · absmax[i / BYTES_RUN]`.
    DequantizeBytes { src: Operand, codes: Operand, absmax: Operand, dst: Operand },
    /// `dst[m,n] = a[m,k] w[n,k]ᵀ (+ bias[n])`, with `w` packed by [`Self::QuantizeNf4`] and rows of whole runs.
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
    /// AdamW for one parameter as in bitsandbytes: weights decay after their update and are rounded to their type in
    /// between. The code chosen for a first moment keeps its sign.
    AdamOfBytes { parameter: Operand, gradient: Operand, moments: KeptMoments, rule: AdamParameters },
    /// Lion for one parameter as in bitsandbytes: `p = p·(1 − lr·decay) − lr·sign(β₁m + (1−β₁)g)`, then `m = β₂m +
    /// (1−β₂)g`. Decayed weights are rounded to their type, and so is the step if the moment has 8 bits.
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
            // The type of the output decides the type of the conversion.
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

/// One launch for each parameter: reads and writes weights and state, reads gradients.
fn update<'a>(parameter: &Operand, gradient: &Operand, state: impl Iterator<Item = &'a Operand>) -> Work {
    let state: f64 = state.map(size).sum();
    let bytes = 2.0 * size(parameter) + size(gradient) + 2.0 * state;
    Work { bytes, ..Work::of(OpClass::Optimizer, DType::F32) }
}
