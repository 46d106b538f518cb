//! Copies between layouts.

mod cpu;
mod cuda;
mod selftest;

use super::family::Family;
use crate::DType;
use crate::cpu::operand::KernelResult;
use crate::cpu::processor::Processor;
use crate::cuda::modules::TranslationUnit;
use crate::cuda::queue::{Queue, Refusal};
use crate::selftest::session::Session;
use crate::span::{Span, Tell};
use crate::work::{CAST, OpClass, Work, count, count_bytes};
use vramlab_allocator::units::Address;

/// Copies of four-dimensional arrays between layouts. Strides in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Strided {
    /// Copies a four-dimensional array between layouts, and between f32, f16 and bf16; other types only to themselves.
    /// Strides in elements.
    Cast {
        src: Address,
        src_dtype: DType,
        dst: Address,
        dst_dtype: DType,
        shape: [usize; 4],
        src_strides: [usize; 4],
        dst_strides: [usize; 4],
    },
    /// [`Self::Cast`] within one type: nothing is rounded or computed.
    Copy {
        src: Address,
        dst: Address,
        dtype: DType,
        shape: [usize; 4],
        src_strides: [usize; 4],
        dst_strides: [usize; 4],
    },
}

impl Family for Strided {
    const UNITS: &'static [TranslationUnit] =
        &[TranslationUnit { name: "strided", source: include_str!("strided.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::Cast { .. } => "cast_strided",
            Self::Copy { .. } => "copy_strided",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::Cast { src, src_dtype, dst, dst_dtype, shape, src_strides, dst_strides } => {
                tell.span(Span::strided(*src, *src_dtype, &dims(shape, src_strides)));
                tell.span(Span::strided(*dst, *dst_dtype, &dims(shape, dst_strides)));
            }
            Self::Copy { src, dst, dtype, shape, src_strides, dst_strides } => {
                tell.span(Span::strided(*src, *dtype, &dims(shape, src_strides)));
                tell.span(Span::strided(*dst, *dtype, &dims(shape, dst_strides)));
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            Self::Copy { dtype, shape, src_strides, dst_strides, .. } => {
                let elements = count(shape.iter().product());
                let bytes = 2.0 * elements * count_bytes(*dtype);
                Work { bytes, ..Work::of(class(src_strides, dst_strides), *dtype) }
            }
            Self::Cast { src_dtype, dst_dtype, shape, src_strides, dst_strides, .. } => {
                let bytes = count_bytes(*src_dtype) + count_bytes(*dst_dtype);
                let class = class(src_strides, dst_strides);
                Work { bytes: count(shape.iter().product()) * bytes, ..Work::of(class, *dst_dtype) }.launches(1, CAST)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::Cast { src, src_dtype, dst, dst_dtype, shape, src_strides, dst_strides } => {
                cpu::cast(on.cores, on.apart(), shape, (src, src_dtype, src_strides), (dst, dst_dtype, dst_strides))
            }
            Self::Copy { src, dst, dtype, shape, src_strides, dst_strides } => {
                cpu::copy(on.cores, on.apart(), dtype, shape, (src, src_strides), (dst, dst_strides))
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

/// Each dimension's size and stride.
fn dims(shape: &[usize; 4], strides: &[usize; 4]) -> [(usize, usize); 4] {
    std::array::from_fn(|i| (shape[i], strides[i]))
}

/// If both sides are traversed in the same order, they are read in whole lines.
const fn class(src_strides: &[usize; 4], dst_strides: &[usize; 4]) -> OpClass {
    if src_strides[3] == dst_strides[3] { OpClass::Convert } else { OpClass::Transpose }
}
