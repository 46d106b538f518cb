//! 8-bit floats as PyTorch rounds and reads them: one sign bit, then exponent and mantissa.

use super::operand::DType;

/// The nearest `torch.float8_e4m3fn`; ties go to the even mantissa. Values that are too large become NaN, because the
/// type has no infinity.
#[must_use]
pub const fn to_e4m3(x: f32) -> u8 {
    let bits = x.to_bits();
    let (sign, bits) = (((bits >> 24) & 0x80) as u8, bits & 0x7fff_ffff);
    // 480 would be the first value with an exponent that does not exist.
    sign | if bits >= 1087 << 20 { 0x7f } else { rounded::<3>(bits, 7) }
}

/// The nearest `torch.float8_e5m2`; ties go to the even mantissa. Values that are too large become infinite.
#[must_use]
pub const fn to_e5m2(x: f32) -> u8 {
    let bits = x.to_bits();
    let (sign, bits) = (((bits >> 24) & 0x80) as u8, bits & 0x7fff_ffff);
    sign | match bits {
        0x7f80_0001.. => 0x7f,
        0x4780_0000.. => 0x7c,
        _ => rounded::<2>(bits, 15),
    }
}

/// Rounds the bits of a magnitude to a mantissa of `MANTISSA` bits and an exponent with this bias.
const fn rounded<const MANTISSA: u32>(bits: u32, bias: u32) -> u8 {
    let dropped = 23 - MANTISSA;
    if bits < (128 - bias) << 23 {
        // Below the smallest normal value, the hardware rounds: this addend aligns the sum's last bit with the result's
        // last bit.
        let last = (128 - bias + dropped) << 23;
        return (f32::from_bits(bits) + f32::from_bits(last)).to_bits().wrapping_sub(last) as u8;
    }
    let odd = (bits >> dropped) & 1;
    (bits.wrapping_sub((127 - bias) << 23).wrapping_add((1 << (dropped - 1)) - 1 + odd) >> dropped) as u8
}

/// The value of a `torch.float8_e4m3fn`.
#[must_use]
pub const fn from_e4m3(byte: u8) -> f32 {
    let sign = (byte as u32 & 0x80) << 24;
    let magnitude = byte as u32 & 0x7f;
    let bits = match magnitude {
        0x7f => f32::NAN.to_bits(),
        // Multiples of 2⁻⁹.
        0..8 => (magnitude as f32 / 512.0).to_bits(),
        _ => (magnitude << 20) + (120 << 23),
    };
    f32::from_bits(sign | bits)
}

/// The value of a `torch.float8_e5m2`: half precision without the lower byte.
#[must_use]
pub const fn from_e5m2(byte: u8) -> f32 {
    let sign = (byte as u32 & 0x80) << 24;
    let magnitude = byte as u32 & 0x7f;
    let bits = match magnitude {
        0x7d.. => f32::NAN.to_bits(),
        0x7c => f32::INFINITY.to_bits(),
        // Multiples of 2⁻¹⁶.
        0..4 => (magnitude as f32 / 65_536.0).to_bits(),
        _ => (magnitude << 21) + (112 << 23),
    };
    f32::from_bits(sign | bits)
}

impl DType {
    /// The largest finite value of an 8-bit float; `None` for any other type.
    #[must_use]
    pub const fn float8_max(self) -> Option<f32> {
        match self {
            Self::E4M3 => Some(448.0),
            Self::E5M2 => Some(57_344.0),
            _ => None,
        }
    }
}
