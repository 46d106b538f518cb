//! The 4-bit floats of QLoRA as bitsandbytes packs them.

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

/// The same of values in 8 bits: the magnitudes of a matrix that is quantised twice.
pub const BYTES_RUN: usize = 256;
