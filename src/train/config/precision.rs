//! The types in which a step computes.

use serde::{Deserialize, Serialize};

use vramlab_device::{DType, MatrixPrecision};

/// Automatic mixed precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Amp {
    /// Everything in f32.
    #[default]
    Off,
    /// Autocast to IEEE half precision, with a gradient scaler.
    Fp16,
    /// Autocast to bfloat16.
    Bf16,
}

impl Amp {
    /// The type that autocast casts to.
    #[must_use]
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::Off => None,
            Self::Fp16 => Some(DType::F16),
            Self::Bf16 => Some(DType::Bf16),
        }
    }

    /// Whether gradients are scaled and steps with an overflow skipped.
    #[must_use]
    pub const fn scales(self) -> bool {
        matches!(self, Self::Fp16)
    }
}

/// Which matrix products may round their f32 inputs to TensorFloat-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tf32 {
    /// None: the reference measurements.
    #[default]
    Off,
    /// Convolutions only: PyTorch's default.
    Convolutions,
    /// Convolutions and matrix products.
    On,
}

impl Tf32 {
    /// The setting for the device.
    #[must_use]
    pub const fn precision(self) -> MatrixPrecision {
        MatrixPrecision { products_in_tf32: matches!(self, Self::On), convolutions_in_tf32: !matches!(self, Self::Off) }
    }
}

/// Which recipe of torchao (`convert_to_float8_training`) linear layers use to multiply in 8-bit floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Float8Recipe {
    /// None: layers keep their type.
    #[default]
    Off,
    /// One scale for each tensor, from its largest magnitude.
    Tensorwise,
    /// One scale for each row of a product's left factor and for each column of its right factor: powers of two.
    Rowwise,
}
