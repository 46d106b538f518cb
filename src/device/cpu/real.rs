//! The types in which arithmetic happens, and conversions between them and the types of storage.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};
use std::thread::LocalKey;

use gemm_common::Parallelism;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use pulp::Simd;

use super::operand::{Element, View};
use crate::{DType, HostVec, Plain, from_e4m3, from_e5m2, to_e4m3, to_e5m2};

/// A matrix product `dst = alpha·dst + beta·lhs·rhs`. Parameters: rows, columns and terms; pointer, column stride and
/// row stride of the result, whether it is read, and the same strides and pointers of both factors; alpha and beta;
/// three flags for complex numbers; threads.
type GemmFunction<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// A type that kernels compute in: f32, or f64 where an operand is f64 (or an integer).
///
/// Conversions to 16 bits round to nearest even.
pub(crate) trait Real:
    Copy
    + Debug
    + Plain
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
    + Element
{
    /// The storage type that needs no conversion.
    const DTYPE: DType;
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;

    /// A vector register of `S`, filled with elements.
    type Vector<S: Simd>: Copy;

    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// a·b + c, fused if the processor supports that.
    fn multiply_add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// The sum of a vector's elements.
    fn sum_lanes<S: Simd>(simd: S, vector: Self::Vector<S>) -> Self;
    /// The whole vectors at the start of a slice.
    fn vectors<S: Simd>(slice: &[Self]) -> &[Self::Vector<S>];
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [Self::Vector<S>];

    fn of(x: f64) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn is_finite(self) -> bool;

    fn is_nan(self) -> bool;

    /// The larger one; NaN if either is NaN, as in PyTorch.
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        if other > self || other.is_nan() { other } else { self }
    }

    /// Elements `[start, start + out.len())` of `from`.
    #[inline(always)]
    fn load(from: &View<'_>, start: usize, out: &mut [Self]) {
        if from.dtype() == Self::DTYPE {
            out.copy_from_slice(from.slice(start, out.len()));
        } else {
            Self::load_converted(from, start, out);
        }
    }

    /// Writes elements `[start, start + values.len())` of `to`.
    #[inline(always)]
    fn store(to: &View<'_>, start: usize, values: &[Self]) {
        if to.dtype() == Self::DTYPE {
            to.slice_mut(start, values.len()).copy_from_slice(values);
        } else {
            Self::store_converted(to, start, values);
        }
    }

    /// [`Real::load`] from another type. It is a separate function, because with a loop for each type in each kernel
    /// conversions were most of this crate's code.
    fn load_converted(from: &View<'_>, start: usize, out: &mut [Self]);

    /// [`Real::store`] as another type; see [`Real::load_converted`].
    fn store_converted(to: &View<'_>, start: usize, values: &[Self]);

    /// The matrix product for this processor.
    fn gemm() -> GemmFunction<Self>;

    /// Scratch that this thread keeps between kernels.
    fn scratch() -> &'static LocalKey<RefCell<Vec<HostVec<Self>>>>;
}

/// `n` elements of `view` from `start`: in place if they are stored as `R`, otherwise converted into `buffer`.
#[inline(always)]
pub(crate) fn elements<'a, R: Real>(view: &'a View<'_>, start: usize, buffer: &'a mut [R]) -> &'a [R] {
    if view.dtype() == R::DTYPE {
        return view.slice(start, buffer.len());
    }
    R::load(view, start, buffer);
    buffer
}

/// A sum in sixteen interleaved lanes. It vectorises, and its order depends only on the length.
#[inline(always)]
pub(crate) fn sum_by<R: Real>(n: usize, term: impl Fn(usize) -> R) -> R {
    const LANES: usize = 16;
    let mut lanes = [R::ZERO; LANES];
    let whole = n / LANES * LANES;
    let mut i = 0;
    while i < whole {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(i + lane);
        }
        i += LANES;
    }
    for (lane, i) in (whole..n).enumerate() {
        lanes[lane] += term(i);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            let other = lanes[lane + width];
            lanes[lane] += other;
        }
        width /= 2;
    }
    lanes[0]
}

/// The largest element, or NaN if there is one.
#[inline(always)]
pub(crate) fn max_of<R: Real>(values: &[R]) -> R {
    const LANES: usize = 16;
    let mut lanes = [R::NEG_INFINITY; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = lane.maximum(x);
        }
    }
    let mut max = R::NEG_INFINITY;
    for &x in lanes.iter().chain(chunks.remainder()) {
        max = max.maximum(x);
    }
    max
}

/// e^x to about one unit in the last place, in a form that vectorises: x = n·ln 2 + r with |r| ≤ ½ ln 2, the Taylor
/// series of e^r up to r⁷, and 2^n assembled from two exponents so that subnormal results are right.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it rounds to an integer
    const LN2_HIGH: f32 = 0.693_359_4; // ln 2 in two parts, the first with few bits: n · LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let inside = if x > 89.0 { 89.0 } else { x };
    let inside = if inside < -104.0 { -104.0 } else { inside };
    let n = (inside * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let r = (inside - n * LN2_HIGH) - n * LN2_LOW;
    // Unrolled by hand: a loop over coefficients would keep the loop around it from vectorising.
    let series = 1.0 / 720.0 + r * (1.0 / 5040.0);
    let series = 1.0 / 24.0 + r * (1.0 / 120.0 + r * series);
    let series = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * series)));
    // SAFETY: `inside` lies in [-104, 89] or is NaN; NaN is replaced by 0 before the conversion.
    let n = unsafe { (if n.is_nan() { 0.0 } else { n }).to_int_unchecked::<i32>() };
    let half = n >> 1;
    let power = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    series * power(half) * power(n - half)
}

/// tanh: a continued fraction near zero, where 1 − 2/(e^2x + 1) would cancel, and that formula elsewhere.
#[inline(always)]
fn tanh_f32(x: f32) -> f32 {
    let z = x * x;
    let near = x * (945.0 + z * (105.0 + z)) / (945.0 + z * (420.0 + 15.0 * z));
    let far = 1.0 - 2.0 / (exp_f32(2.0 * x.abs()) + 1.0);
    if z < 0.36 { near } else { far.copysign(x) }
}

/// erf: x + x·P(x²) near zero, 1 − e^P(|x|) elsewhere, with polynomials fitted for the least relative error of the
/// result.
#[inline(always)]
fn erf_f32(x: f32) -> f32 {
    const END: f32 = 4.0; // the next value to 1 is 6e-8 away, erfc(4) is 1.5e-8
    let z = x * x;
    // Unrolled by hand, as in `exp_f32`.
    let series = -8.010_597_7e-4 + z * 7.855_119e-5;
    let series = 0.112_835_86 + z * (-2.685_384e-2 + z * (5.188_377_6e-3 + z * series));
    let near = x + x * (0.128_379_17 + z * (-0.376_126_26 + z * series));
    let t = x.abs();
    let t = if t > END { END } else { t };
    let series = 2.183_714_3e-2 + t * (-2.947_416e-3 + t * 1.863_535_7e-4);
    let series = -3.417_558_3e-4 + t * (-1.127_088_2 + t * (-0.638_146_76 + t * (-0.103_104_96 + t * series)));
    let far = (1.0 - exp_f32(series)).copysign(x);
    if z < 1.0 { near } else { far }
}

#[inline(always)]
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if x.is_nan() { (bits >> 16) as u16 | 0x40 } else { rounded }
}

thread_local! {
    static SCRATCH_F32: RefCell<Vec<HostVec<f32>>> = const { RefCell::new(Vec::new()) };
    static SCRATCH_F64: RefCell<Vec<HostVec<f64>>> = const { RefCell::new(Vec::new()) };
}

#[inline(always)]
fn convert_from<S: Copy, R>(from: &[S], out: &mut [R], convert: impl Fn(S) -> R) {
    for (out, &x) in out.iter_mut().zip(from) {
        *out = convert(x);
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "integers are stored as asked")]
impl Real for f32 {
    const DTYPE: DType = DType::F32;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = Self::NEG_INFINITY;

    type Vector<S: Simd> = S::f32s;

    #[inline(always)]
    fn splat<S: Simd>(simd: S, value: Self) -> S::f32s {
        simd.splat_f32s(value)
    }
    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        simd.mul_add_e_f32s(a, b, c)
    }
    #[inline(always)]
    fn sum_lanes<S: Simd>(simd: S, vector: S::f32s) -> Self {
        simd.reduce_sum_f32s(vector)
    }
    #[inline(always)]
    fn vectors<S: Simd>(slice: &[Self]) -> &[S::f32s] {
        S::as_simd_f32s(slice).0
    }
    #[inline(always)]
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(slice).0
    }
    #[inline(always)]
    fn of(x: f64) -> Self {
        x as Self
    }
    #[inline(always)]
    fn exp(self) -> Self {
        exp_f32(self)
    }
    fn ln(self) -> Self {
        Self::ln(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self::sqrt(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        tanh_f32(self)
    }
    #[inline(always)]
    fn erf(self) -> Self {
        erf_f32(self)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        Self::is_finite(self)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        Self::is_nan(self)
    }

    #[inline(never)]
    fn load_converted(from: &View<'_>, start: usize, out: &mut [Self]) {
        let n = out.len();
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || match from.dtype() {
                DType::F32 => out.copy_from_slice(from.slice::<f32>(start, n)),
                DType::F16 => from.slice::<f16>(start, n).convert_to_f32_slice(out),
                DType::Bf16 => convert_from(from.slice::<u16>(start, n), out, bf16_to_f32),
                DType::F64 => convert_from(from.slice::<f64>(start, n), out, |x| x as f32),
                DType::I64 => convert_from(from.slice::<i64>(start, n), out, |x| x as f32),
                DType::I32 => convert_from(from.slice::<i32>(start, n), out, |x| x as f32),
                DType::U8 => convert_from(from.slice::<u8>(start, n), out, f32::from),
                DType::E4M3 => convert_from(from.slice::<u8>(start, n), out, from_e4m3),
                DType::E5M2 => convert_from(from.slice::<u8>(start, n), out, from_e5m2),
            },
        );
    }

    #[inline(never)]
    fn store_converted(to: &View<'_>, start: usize, values: &[Self]) {
        let n = values.len();
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || match to.dtype() {
                DType::F32 => to.slice_mut::<f32>(start, n).copy_from_slice(values),
                DType::F16 => to.slice_mut::<f16>(start, n).convert_from_f32_slice(values),
                DType::Bf16 => convert_from(values, to.slice_mut::<u16>(start, n), f32_to_bf16),
                DType::F64 => convert_from(values, to.slice_mut::<f64>(start, n), f64::from),
                DType::I64 => convert_from(values, to.slice_mut::<i64>(start, n), |x| x as i64),
                DType::I32 => convert_from(values, to.slice_mut::<i32>(start, n), |x| x as i32),
                DType::U8 => convert_from(values, to.slice_mut::<u8>(start, n), |x| x as u8),
                DType::E4M3 => convert_from(values, to.slice_mut::<u8>(start, n), to_e4m3),
                DType::E5M2 => convert_from(values, to.slice_mut::<u8>(start, n), to_e5m2),
            },
        );
    }

    fn gemm() -> GemmFunction<Self> {
        gemm_f32::gemm::f32::get_gemm_fn()
    }

    fn scratch() -> &'static LocalKey<RefCell<Vec<HostVec<Self>>>> {
        &SCRATCH_F32
    }
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "integers are stored as asked")]
#[expect(clippy::cast_sign_loss, reason = "integers are stored as asked")]
impl Real for f64 {
    const DTYPE: DType = DType::F64;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const NEG_INFINITY: Self = Self::NEG_INFINITY;

    type Vector<S: Simd> = S::f64s;

    #[inline(always)]
    fn splat<S: Simd>(simd: S, value: Self) -> S::f64s {
        simd.splat_f64s(value)
    }
    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, a: S::f64s, b: S::f64s, c: S::f64s) -> S::f64s {
        simd.mul_add_e_f64s(a, b, c)
    }
    #[inline(always)]
    fn sum_lanes<S: Simd>(simd: S, vector: S::f64s) -> Self {
        simd.reduce_sum_f64s(vector)
    }
    #[inline(always)]
    fn vectors<S: Simd>(slice: &[Self]) -> &[S::f64s] {
        S::as_simd_f64s(slice).0
    }
    #[inline(always)]
    fn vectors_mut<S: Simd>(slice: &mut [Self]) -> &mut [S::f64s] {
        S::as_mut_simd_f64s(slice).0
    }
    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }
    fn exp(self) -> Self {
        Self::exp(self)
    }
    fn ln(self) -> Self {
        Self::ln(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self::sqrt(self)
    }
    fn tanh(self) -> Self {
        Self::tanh(self)
    }
    fn erf(self) -> Self {
        libm::erf(self)
    }
    #[inline(always)]
    fn is_finite(self) -> bool {
        Self::is_finite(self)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        Self::is_nan(self)
    }

    #[inline(never)]
    fn load_converted(from: &View<'_>, start: usize, out: &mut [Self]) {
        let n = out.len();
        match from.dtype() {
            DType::F64 => out.copy_from_slice(from.slice::<f64>(start, n)),
            DType::F32 => convert_from(from.slice::<f32>(start, n), out, f64::from),
            DType::F16 => convert_from(from.slice::<f16>(start, n), out, f64::from),
            DType::Bf16 => convert_from(from.slice::<bf16>(start, n), out, f64::from),
            DType::I64 => convert_from(from.slice::<i64>(start, n), out, |x| x as f64),
            DType::I32 => convert_from(from.slice::<i32>(start, n), out, f64::from),
            DType::U8 => convert_from(from.slice::<u8>(start, n), out, f64::from),
            DType::E4M3 => convert_from(from.slice::<u8>(start, n), out, |x| f64::from(from_e4m3(x))),
            DType::E5M2 => convert_from(from.slice::<u8>(start, n), out, |x| f64::from(from_e5m2(x))),
        }
    }

    #[inline(never)]
    fn store_converted(to: &View<'_>, start: usize, values: &[Self]) {
        let n = values.len();
        match to.dtype() {
            DType::F64 => to.slice_mut::<f64>(start, n).copy_from_slice(values),
            DType::F32 => convert_from(values, to.slice_mut::<f32>(start, n), |x| x as f32),
            DType::F16 => convert_from(values, to.slice_mut::<f16>(start, n), f16::from_f64),
            DType::Bf16 => convert_from(values, to.slice_mut::<bf16>(start, n), bf16::from_f64),
            DType::I64 => convert_from(values, to.slice_mut::<i64>(start, n), |x| x as i64),
            DType::I32 => convert_from(values, to.slice_mut::<i32>(start, n), |x| x as i32),
            DType::U8 => convert_from(values, to.slice_mut::<u8>(start, n), |x| x as u8),
            // PyTorch converts f64 only via f32.
            DType::E4M3 => convert_from(values, to.slice_mut::<u8>(start, n), |x| to_e4m3(x as f32)),
            DType::E5M2 => convert_from(values, to.slice_mut::<u8>(start, n), |x| to_e5m2(x as f32)),
        }
    }

    fn gemm() -> GemmFunction<Self> {
        gemm_f64::gemm::f64::get_gemm_fn()
    }

    fn scratch() -> &'static LocalKey<RefCell<Vec<HostVec<Self>>>> {
        &SCRATCH_F64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(f: impl Fn(f32) -> f32, truth: impl Fn(f64) -> f64, range: std::ops::Range<f32>) -> f64 {
        let steps = 200_000;
        (0..=steps)
            .map(|i| range.start + (range.end - range.start) * i as f32 / steps as f32)
            .map(|x| {
                let truth = truth(f64::from(x));
                (f64::from(f(x)) - truth).abs() / truth.abs().max(f64::from(f32::MIN_POSITIVE))
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        assert!(worst(exp_f32, f64::exp, -87.0..88.7) < 2.4e-7);
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp_f32(200.0), f32::INFINITY);
        assert!(exp_f32(f32::NAN).is_nan());
        assert!(exp_f32(-100.0) > 0.0, "subnormal results are kept");
    }

    #[test]
    fn tanh_is_right_to_four_units_in_the_last_place() {
        assert!(worst(tanh_f32, f64::tanh, -10.0..10.0) < 5e-7);
        assert_eq!(tanh_f32(0.0), 0.0);
        assert_eq!(tanh_f32(100.0), 1.0);
        assert_eq!(tanh_f32(-100.0), -1.0);
        assert!(tanh_f32(f32::NAN).is_nan());
    }

    #[test]
    fn erf_is_right_to_two_units_in_the_last_place() {
        assert!(worst(erf_f32, libm::erf, -5.0..5.0) < 2.4e-7);
        assert!(worst(erf_f32, libm::erf, -1e-3..1e-3) < 2.4e-7);
        assert_eq!(erf_f32(0.0), 0.0);
        assert_eq!(erf_f32(f32::INFINITY), 1.0);
        assert_eq!(erf_f32(-100.0), -1.0);
        assert!(erf_f32(f32::NAN).is_nan());
    }

    #[test]
    fn bf16_rounds_to_nearest_even_like_half() {
        for bits in (0..=u32::MAX).step_by(10_007) {
            let x = f32::from_bits(bits);
            let (ours, theirs) = (f32_to_bf16(x), bf16::from_f32(x));
            assert!(ours == theirs.to_bits() || (x.is_nan() && theirs.is_nan()), "{x}");
            let back = bf16_to_f32(ours);
            assert!(back == theirs.to_f32() || (x.is_nan() && back.is_nan()), "{x}");
        }
    }

    #[test]
    fn sums_and_maxima_see_every_element() {
        for n in 0..70 {
            let values: Vec<f64> = (0..n).map(|i| f64::from(i) - 7.0).collect();
            assert_eq!(sum_by(values.len(), |i| values[i]), values.iter().sum::<f64>());
            assert_eq!(max_of(&values), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
        assert!(max_of(&[1.0, f64::NAN, 2.0]).is_nan());
        let mut long = [0.0_f32; 40];
        long[3] = f32::NAN;
        assert!(max_of(&long).is_nan());
    }
}
