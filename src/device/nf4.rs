//! 4-bit and 8-bit values in the form in which bitsandbytes packs them.

/// The 16 values of NF4 (`get_4bit_type` of bitsandbytes): quantiles of the normal distribution, and zero.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Elements that share a largest magnitude.
pub const NF4_RUN: usize = 64;

/// The same for 8-bit values, such as the magnitudes of a matrix that is quantised twice.
pub const BYTES_RUN: usize = 256;

/// The 256 values of bitsandbytes' `create_dynamic_map`, ascending: seven decades, each divided more finely than the
/// one below it. The unsigned map, for values that are never negative, is twice as fine.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the table is f32")]
pub fn dynamic_map(signed: bool) -> Vec<f32> {
    let mut values = vec![0.0, 1.0];
    for decade in 0..7_u8 {
        let parts = 1_u16 << (decade + u8::from(!signed));
        let step = (1.0 - 0.1_f32) / f32::from(parts);
        // `torch.linspace` counts from the nearer end, with one rounding.
        let edge = |i: u16| match i < parts.div_ceil(2) {
            true => step.mul_add(f32::from(i), 0.1),
            false => step.mul_add(-f32::from(parts - i), 1.0),
        };
        let scale = 10_f64.powi(i32::from(decade) - 6) as f32;
        for part in 0..parts {
            let value = scale * ((edge(part) + edge(part + 1)) / 2.0);
            values.push(value);
            if signed {
                values.push(-value);
            }
        }
    }
    values.sort_by(f32::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that `create_dynamic_map()` of bitsandbytes 0.50 returns, compared bit for bit at some places.
    #[test]
    fn values_in_8_bits_are_those_of_bitsandbytes() {
        let values = dynamic_map(true);
        assert_eq!(values.len(), 256);
        assert_eq!(values[..3], [-0.992_968_74, -0.978_906_3, -0.964_843_75]);
        assert_eq!(values[127..130], [0.0, 5.500_000_4e-7, 3.250_000_2e-6]);
        let squares: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
        assert!((squares - 48.595_837_667_290_17).abs() < 1e-12, "{squares}");
        assert_eq!(values.iter().map(|&value| f64::from(value)).sum::<f64>(), 1.0);
        let unsigned = dynamic_map(false);
        assert_eq!(unsigned.len(), 256);
        for (place, bits) in [
            (0, 0),
            (1, 0x34ae_7baa),
            (2, 0x3550_0998),
            (3, 0x360e_9b38),
            (17, 0x397c_5049),
            (100, 0x3d80_7ae2),
            (128, 0x3de2_6666),
            (200, 0x3f1d_e666),
            (254, 0x3f7f_199a),
            (255, 0x3f80_0000),
        ] {
            assert_eq!(unsigned[place].to_bits(), bits, "place {place}");
        }
    }
}
