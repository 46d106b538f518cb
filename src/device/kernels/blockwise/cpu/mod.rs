//! 4-bit and 8-bit values, as bitsandbytes quantises them.

pub(super) mod adam;
mod codes;
pub(super) mod lion;
mod moment;

use codes::Codes;

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::{real, scalar};
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::{BYTES_RUN, DType, Magnitudes, NF4, NF4_RUN, Operand};

/// Runs in one task.
const RUNS: usize = 64;
/// Rows of a packed matrix that one task multiplies by.
const ROWS: usize = 16;
/// The code of zero, which a run of zeros consists of.
const ZERO: u8 = 7;

/// The factor that scales a run's largest magnitude to 1, and that magnitude.
pub(super) fn normaliser<R: Real>(run: &[R]) -> (R, R) {
    let absmax = run.iter().fold(R::ZERO, |most, &x| most.maximum(if x < R::ZERO { -x } else { x }));
    (if absmax > R::ZERO { R::ONE / absmax } else { R::ZERO }, absmax)
}

fn nf4<R: Real>() -> Codes<R, 16> {
    Codes::new(NF4.map(|value| R::of(f64::from(value))))
}

fn halves<R: Real>(codes: &Codes<R, 16>, byte: u8) -> [R; 2] {
    [codes.value(byte >> 4), codes.value(byte & 15)]
}

fn is_packed(packed: &Operand, absmax: &Operand, len: usize) -> KernelResult {
    let fits = packed.dtype == DType::U8 && packed.len == len.div_ceil(2) && absmax.len == len.div_ceil(NF4_RUN);
    require(fits, || format!("{len} elements make neither {} bytes nor {} runs of {NF4_RUN}", packed.len, absmax.len))
}

pub(super) fn quantize(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    [dst, absmax]: [Operand; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, from: View<'_>, [to, absmax]: [View<'_>; 2]) {
        let codes = nf4::<R>();
        cores.for_each(absmax.len().div_ceil(RUNS), from.len() * 8, |task| {
            let mut values = [R::ZERO; NF4_RUN];
            for run in task * RUNS..absmax.len().min((task + 1) * RUNS) {
                let start = run * NF4_RUN;
                let values = &mut values[..NF4_RUN.min(from.len() - start)];
                R::load(&from, start, values);
                let (factor, most) = normaliser(values);
                R::store(&absmax, run, &[most]);
                let code = |x: R| if most > R::ZERO { codes.nearest(x * factor) } else { ZERO };
                let bytes = to.slice_mut::<u8>(start / 2, values.len().div_ceil(2));
                for (byte, pair) in bytes.iter_mut().zip(values.chunks(2)) {
                    *byte = code(pair[0]) << 4 | pair.get(1).map_or(ZERO, |&x| code(x));
                }
            }
        });
    }
    is_packed(&dst, &absmax, src.len)?;
    let from = access.read(&src)?;
    let to = [access.write(&dst)?, access.write(&absmax)?];
    real!([src.dtype, absmax.dtype], go(cores, from, to));
    Ok(())
}

pub(super) fn dequantize(
    cores: &Cores,
    mut access: Access<'_>,
    [src, absmax]: [Operand; 2],
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [from, absmax]: [View<'_>; 2], to: View<'_>) {
        let codes = nf4::<R>();
        cores.for_each(absmax.len().div_ceil(RUNS), to.len(), |task| {
            let (mut values, mut most) = ([R::ZERO; NF4_RUN], [R::ZERO]);
            for run in task * RUNS..absmax.len().min((task + 1) * RUNS) {
                let start = run * NF4_RUN;
                let values = &mut values[..NF4_RUN.min(to.len() - start)];
                R::load(&absmax, run, &mut most);
                unpack(&codes, from.slice(start / 2, values.len().div_ceil(2)), most[0], values);
                R::store(&to, start, values);
            }
        });
    }
    is_packed(&src, &absmax, dst.len)?;
    let from = [access.read(&src)?, access.read(&absmax)?];
    let to = access.write(&dst)?;
    real!([absmax.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

/// Quantises one run.
#[inline(always)]
fn unpack<R: Real>(codes: &Codes<R, 16>, bytes: &[u8], absmax: R, values: &mut [R]) {
    for (pair, &byte) in values.chunks_mut(2).zip(bytes) {
        for (value, code) in pair.iter_mut().zip(halves(codes, byte)) {
            *value = code * absmax;
        }
    }
}

pub(super) fn are_bytes(bytes: &Operand, codes: &Operand, absmax: &Operand, len: usize) -> KernelResult {
    let fits =
        bytes.dtype == DType::U8 && bytes.len == len && codes.len == 256 && absmax.len == len.div_ceil(BYTES_RUN);
    require(fits, || {
        let (bytes, codes, absmax) = (bytes.len, codes.len, absmax.len);
        format!(
            "{len} elements make neither {bytes} bytes nor {absmax} runs of {BYTES_RUN}, or {codes} codes are not 256"
        )
    })
}

pub(super) fn quantize_bytes(
    cores: &Cores,
    mut access: Access<'_>,
    [src, codes]: [Operand; 2],
    [dst, absmax]: [Operand; 2],
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [from, codes]: [View<'_>; 2], [to, absmax]: [View<'_>; 2]) {
        let codes = Codes::<R, 256>::load(&codes);
        cores.for_each(absmax.len(), from.len() * 12, |run| {
            let mut values = [R::ZERO; BYTES_RUN];
            let start = run * BYTES_RUN;
            let values = &mut values[..BYTES_RUN.min(from.len() - start)];
            R::load(&from, start, values);
            let (factor, most) = normaliser(values);
            R::store(&absmax, run, &[most]);
            for (byte, &x) in to.slice_mut::<u8>(start, values.len()).iter_mut().zip(&*values) {
                *byte = codes.nearest(x * factor);
            }
        });
    }
    are_bytes(&dst, &codes, &absmax, src.len)?;
    let from = [access.read(&src)?, access.read(&codes)?];
    let to = [access.write(&dst)?, access.write(&absmax)?];
    real!([src.dtype, codes.dtype, absmax.dtype], go(cores, from, to));
    Ok(())
}

pub(super) fn dequantize_bytes(
    cores: &Cores,
    mut access: Access<'_>,
    [src, codes, absmax]: [Operand; 3],
    dst: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [from, codes, absmax]: [View<'_>; 3], to: View<'_>) {
        let codes = Codes::<R, 256>::load(&codes);
        cores.for_each(absmax.len(), to.len(), |run| {
            let (mut values, mut most) = ([R::ZERO; BYTES_RUN], [R::ZERO]);
            let start = run * BYTES_RUN;
            let values = &mut values[..BYTES_RUN.min(to.len() - start)];
            R::load(&absmax, run, &mut most);
            let bytes = from.slice::<u8>(start, values.len());
            for (value, &byte) in values.iter_mut().zip(bytes) {
                *value = codes.value(byte) * most[0];
            }
            R::store(&to, start, values);
        });
    }
    are_bytes(&src, &codes, &absmax, dst.len)?;
    let from = [access.read(&src)?, access.read(&codes)?, access.read(&absmax)?];
    let to = access.write(&dst)?;
    real!([codes.dtype, absmax.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}

/// Operands of a product with a packed matrix.
pub(super) struct PackedGemm {
    pub a: Operand,
    pub w: Operand,
    pub magnitudes: Magnitudes,
    pub bias: Option<Operand>,
    pub dst: Operand,
}

/// The loaded magnitudes of a packed matrix.
enum ReadMagnitudes<'a> {
    Plain(View<'a>),
    Nested { bytes: View<'a>, codes: View<'a>, absmax: View<'a>, offset: f64 },
}

impl ReadMagnitudes<'_> {
    /// The magnitude of one run.
    #[inline(always)]
    fn of<R: Real>(&self, run: usize) -> R {
        let one = |view: &View<'_>, place: usize| {
            let mut value = [R::ZERO];
            R::load(view, place, &mut value);
            value[0]
        };
        match self {
            Self::Plain(absmax) => one(absmax, run),
            Self::Nested { bytes, codes, absmax, offset } => {
                let code = one(codes, usize::from(bytes.slice::<u8>(run, 1)[0]));
                code * one(absmax, run / BYTES_RUN) + R::of(*offset)
            }
        }
    }
}

pub(super) fn gemm(
    cores: &Cores,
    mut access: Access<'_>,
    [m, n, k]: [usize; 3],
    operands: &PackedGemm,
) -> KernelResult {
    fn go<R: Real>(
        cores: &Cores,
        [m, n, k]: [usize; 3],
        [a, w, dst]: [View<'_>; 3],
        magnitudes: &ReadMagnitudes<'_>,
        bias: Option<View<'_>>,
    ) {
        let codes = nf4::<R>();
        cores.for_each(n.div_ceil(ROWS), m * n * k, |task| {
            let (first, rows) = (task * ROWS, ROWS.min(n - task * ROWS));
            cores.scratch((rows + 1) * k, |scratch: &mut [R]| {
                let (weights, x) = scratch.split_at_mut(rows * k);
                for (run, values) in weights.chunks_mut(NF4_RUN).enumerate() {
                    let run = first * k / NF4_RUN + run;
                    unpack(&codes, w.slice(run * NF4_RUN / 2, NF4_RUN / 2), magnitudes.of(run), values);
                }
                let (mut added, mut sums) = ([R::ZERO; ROWS], [R::ZERO; ROWS]);
                if let Some(bias) = &bias {
                    R::load(bias, first, &mut added[..rows]);
                }
                for row in 0..m {
                    R::load(&a, row * k, x);
                    for (sum, (weights, &bias)) in sums.iter_mut().zip(weights.chunks(k).zip(&added)) {
                        *sum = x.iter().zip(weights).fold(R::ZERO, |sum, (&x, &w)| sum + x * w) + bias;
                    }
                    R::store(&dst, row * n + first, &sums[..rows]);
                }
            });
        });
    }
    let PackedGemm { a, w, magnitudes, bias, dst } = operands;
    let runs = match magnitudes {
        Magnitudes::Plain(absmax) => absmax.len,
        Magnitudes::Nested { bytes, .. } => bytes.len,
    };
    let fits = k.is_multiple_of(NF4_RUN) && runs == n * k / NF4_RUN && w.dtype == DType::U8 && w.len == n * k / 2;
    let fits = fits && a.len == m * k && dst.len == m * n && bias.is_none_or(|bias| bias.len == n);
    require(fits, || format!("operands don't fit a product of {m} × {k} with {n} rows of whole runs of {NF4_RUN}"))?;
    if let Magnitudes::Nested { bytes, codes, absmax, .. } = magnitudes {
        are_bytes(bytes, codes, absmax, runs)?;
    }
    let views = [access.read(a)?, access.read(w)?, access.write(dst)?];
    let read = match magnitudes {
        Magnitudes::Plain(absmax) => ReadMagnitudes::Plain(access.read(absmax)?),
        Magnitudes::Nested { bytes, codes, absmax, offset } => ReadMagnitudes::Nested {
            bytes: access.read(bytes)?,
            codes: access.read(codes)?,
            absmax: access.read(absmax)?,
            offset: scalar(&access.read(offset)?),
        },
    };
    let bias = bias.as_ref().map(|bias| access.read(bias)).transpose()?;
    real!([a.dtype, dst.dtype], go(cores, [m, n, k], views, &read, bias));
    Ok(())
}
