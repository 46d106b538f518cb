//! 8-bit floats: the scale of a tensor, its scaled values, and products of them.

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

/// Which elements of a matrix share a scale, for its rows as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleGroups {
    /// All elements.
    All,
    /// The elements of a row.
    Rows,
    /// The elements of a column.
    Columns,
}

impl ScaleGroups {
    /// The number of groups for `len` elements in rows of `cols`.
    #[must_use]
    pub fn count(self, len: usize, cols: usize) -> usize {
        match self {
            Self::All => 1,
            Self::Rows => len.checked_div(cols).unwrap_or(0),
            Self::Columns => cols,
        }
    }
}

/// Kernels of 8-bit floats.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub enum Float8 {
    /// The largest magnitude of each of the `groups` of elements in rows of `cols`, in src's type; NaN if the group
    /// contains NaN. `copied`: the elements don't lie in the order of their matrix, so that PyTorch copies the
    /// magnitudes in order first.
    AbsMax { src: Operand, dst: Operand, cols: usize, groups: ScaleGroups, copied: bool },
    /// `dst[i] = most / max(amax[i], 10⁻¹²)`, computed in f64: the scale that maps the largest magnitude to `most`.
    /// With `power` it is rounded down to a power of two, computed in f32 as in PyTorch.
    Scale { amax: Operand, dst: Operand, most: f64, power: bool },
    /// `dst[i] = src[i] · scale` as an 8-bit float, clamped to the type's largest values. The scale (f32) is that of
    /// the element's group, in rows of `cols`.
    Quantize { src: Operand, scale: Operand, dst: Operand, cols: usize, groups: ScaleGroups },
    /// `c[m,n] = a[m,k] b[k,n] · inverse[0] · inverse[1]`, where a and b are 8-bit floats. Each inverse scale is one
    /// f32 element, or one for each row of a and each column of b; the latter are powers of two, which round nothing.
    /// `fast`: sums may be kept with fewer bits (`use_fast_accum`).
    Gemm {
        m: usize,
        n: usize,
        k: usize,
        a: MatrixView,
        b: MatrixView,
        c: MatrixView,
        inverse: [Operand; 2],
        fast: bool,
    },
}

impl Family for Float8 {
    const UNITS: &'static [TranslationUnit] = &[TranslationUnit { name: "float8", source: include_str!("float8.cu") }];

    fn name(&self) -> &'static str {
        match self {
            Self::AbsMax { .. } => "abs_max",
            Self::Scale { .. } => "float8_scale",
            Self::Quantize { .. } => "quantize_float8",
            Self::Gemm { .. } => "scaled_gemm",
        }
    }

    fn reach(&self, tell: &mut impl FnMut(Span)) {
        match self {
            Self::AbsMax { src, dst, .. } | Self::Scale { amax: src, dst, .. } => tell.all([src, dst]),
            Self::Quantize { src, scale, dst, .. } => tell.all([src, scale, dst]),
            Self::Gemm { m, n, k, a, b, c, inverse, .. } => {
                tell.all(inverse);
                tell.span(Span::matrix(a, [1, *m, *k]));
                tell.span(Span::matrix(b, [1, *k, *n]));
                tell.span(Span::matrix(c, [1, *m, *n]));
            }
        }
    }

    fn work(&self) -> Work {
        match self {
            // Magnitudes, which are written, and their reduction; between the two, a copy if the order differs.
            Self::AbsMax { src, dst, copied, .. } => {
                let pass = Work::pass(OpClass::Reduction, &[src, src, src, dst]);
                if !copied {
                    return pass.launches(2, 2.0);
                }
                Work { bytes: pass.bytes + 2.0 * size(src), ..pass }.launches(3, 2.0)
            }
            // To f64, a bound, a reciprocal, a product, to f32; a logarithm, a whole number, a power.
            Self::Scale { amax, dst, power, .. } => {
                let (launches, dispatches) = if *power { (8, 8.0) } else { (5, 5.0) };
                Work::pass(OpClass::Elementwise, &[amax, dst]).launches(launches, dispatches)
            }
            // To f32, if it is another type; a product, a bound, a cast.
            Self::Quantize { src, dst, .. } => {
                let to_f32 = if src.dtype == DType::F32 { 0.0 } else { size(src) + 4.0 * count(src.len) };
                let launches = if src.dtype == DType::F32 { 3 } else { 4 };
                let bytes = to_f32 + 20.0 * count(src.len) + size(dst);
                Work { bytes, ..Work::of(OpClass::Convert, DType::F32) }.launches(launches, 4.0)
            }
            Self::Gemm { m, n, k, a, b, c, .. } => {
                let gemm = Work::gemm([*m, *n, *k], 1, [a, b, c]);
                let wider = count(m * n) * (count_bytes(c.dtype) - count_bytes(a.dtype));
                Work { bytes: gemm.bytes + wider, ..gemm }.launches(1, 3.0)
            }
        }
    }

    fn on_cpu(&self, on: &Processor<'_>) -> KernelResult {
        match *self {
            Self::AbsMax { src, dst, cols, groups, copied: _ } => {
                cpu::abs_max(on.cores, on.apart(), [src, dst], cpu::Groups { cols, groups })
            }
            Self::Scale { amax, dst, most, power } => cpu::scale(on.apart(), amax, dst, most, power),
            Self::Quantize { src, scale, dst, cols, groups } => {
                cpu::quantize(on.cores, on.apart(), [src, scale], dst, cpu::Groups { cols, groups })
            }
            Self::Gemm { m, n, k, a, b, c, inverse, fast: _ } => {
                let alpha = cpu::factor(on.apart(), inverse)?.unwrap_or(1.0);
                let (batch, bias, beta) = (1, None, 0.0);
                super::gemm::cpu::gemm(
                    on.cores,
                    on.apart(),
                    &super::Gemm { m, n, k, batch, a, b, c, bias, alpha, beta },
                )?;
                cpu::scale_product(on.cores, on.apart(), c, inverse, [m, n])
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
