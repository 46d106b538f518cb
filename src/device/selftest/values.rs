//! The values of operands: numbers derived from a seed, and their bytes in every type.

use half::{bf16, f16};

use crate::{DType, from_e4m3, from_e5m2, to_e4m3, to_e5m2};

/// Numbers to fill an operand with.
#[derive(Clone, Debug)]
pub(crate) enum Values {
    /// Uniformly distributed between two bounds.
    Uniform(f64, f64),
    /// Approximately normal with this mean and standard deviation, at most 3.5 deviations from the mean.
    Normal(f64, f64),
    /// The same number everywhere.
    Constant(f64),
    /// Integers from 0 up to an exclusive bound: indices, or few distinct values.
    Below(usize),
    /// These numbers in order; the last one repeats.
    List(Vec<f64>),
    /// [`Values::Normal`] around 0, except for some elements.
    Except(f64, Vec<(usize, f64)>),
    /// Numbers that depend only on their index.
    Each(fn(usize) -> f64),
}

impl Values {
    /// Around 0 with deviation 1.
    pub const STANDARD: Self = Self::Normal(0.0, 1.0);

    pub fn generate(&self, len: usize, seed: u64) -> Vec<f64> {
        let unit = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let bell = |bits: u64| {
            let parts = [bits, bits >> 16, bits >> 32, bits >> 48];
            let sum: f64 = parts.map(|part| (part & 0xFFFF) as f64).iter().sum();
            // The sum of four uniform parts of variance 1/12 each.
            (sum / 65536.0 - 2.0 + 2.0 / 65536.0) * 3_f64.sqrt()
        };
        let random = |i: usize| mix(seed.wrapping_add((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        match *self {
            Self::Uniform(low, high) => (0..len).map(|i| low + (high - low) * unit(random(i))).collect(),
            Self::Normal(mean, deviation) => (0..len).map(|i| mean + deviation * bell(random(i))).collect(),
            Self::Constant(value) => vec![value; len],
            Self::Below(bound) => (0..len).map(|i| (random(i) % bound.max(1) as u64) as f64).collect(),
            Self::List(ref list) => {
                let last = list.last().copied().unwrap_or(0.0);
                (0..len).map(|i| list.get(i).copied().unwrap_or(last)).collect()
            }
            Self::Except(deviation, ref others) => {
                let mut values = Self::Normal(0.0, deviation).generate(len, seed);
                for &(at, value) in others {
                    if let Some(element) = values.get_mut(at) {
                        *element = value;
                    }
                }
                values
            }
            Self::Each(value) => (0..len).map(value).collect(),
        }
    }
}

/// SplitMix64's finaliser.
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A seed for a text (FNV-1a).
pub(crate) fn seed_of(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// `values` as they lie in memory, rounded to nearest even.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounding is what is asked for")]
pub(crate) fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    fn all<const N: usize>(values: &[f64], each: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&x| each(x)).collect()
    }
    match dtype {
        DType::F64 => all(values, f64::to_le_bytes),
        DType::F32 => all(values, |x| (x as f32).to_le_bytes()),
        // Via f32, because conversions from f64 drop bits that decide near ties.
        DType::F16 => all(values, |x| f16::from_f32(x as f32).to_le_bytes()),
        DType::Bf16 => all(values, |x| bf16::from_f32(x as f32).to_le_bytes()),
        DType::I64 => all(values, |x| (x as i64).to_le_bytes()),
        DType::I32 => all(values, |x| (x as i32).to_le_bytes()),
        DType::U8 => all(values, |x| [x as u8]),
        DType::E4M3 => all(values, |x| [to_e4m3(x as f32)]),
        DType::E5M2 => all(values, |x| [to_e5m2(x as f32)]),
    }
}

/// The numbers that `bytes` represent.
pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    fn all<const N: usize>(bytes: &[u8], each: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&chunk| each(chunk)).collect()
    }
    match dtype {
        DType::F64 => all(bytes, f64::from_le_bytes),
        DType::F32 => all(bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::F16 => all(bytes, |b| f16::from_le_bytes(b).to_f64()),
        DType::Bf16 => all(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        DType::I64 => all(bytes, |b| i64::from_le_bytes(b) as f64),
        DType::I32 => all(bytes, |b| f64::from(i32::from_le_bytes(b))),
        DType::U8 => all(bytes, |[b]| f64::from(b)),
        DType::E4M3 => all(bytes, |[b]| f64::from(from_e4m3(b))),
        DType::E5M2 => all(bytes, |[b]| f64::from(from_e5m2(b))),
    }
}

/// `values` rounded to `dtype`.
pub(crate) fn rounded(dtype: DType, values: &[f64]) -> Vec<f64> {
    decode(dtype, &encode(dtype, values))
}
