//! Workspaces of cuDNN's convolutions.

use crate::device::DType;

/// One of the three computations of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The output.
    Forward,
    /// The gradient of the input.
    InputGradient,
    /// The gradient of the weight.
    WeightGradient,
}

/// How a convolution multiplies: it decides which of cuDNN's plans there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// f32 throughout.
    F32,
    /// f32 rounded to TensorFloat-32.
    Tf32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Arithmetic {
    /// Of tensors of this type, with TensorFloat-32 allowed or not; `None` where cuDNN has no part in it.
    pub const fn of(dtype: DType, tf32: bool) -> Option<Self> {
        match dtype {
            DType::F32 if tf32 => Some(Self::Tf32),
            DType::F32 => Some(Self::F32),
            DType::F16 => Some(Self::F16),
            DType::Bf16 => Some(Self::Bf16),
            _ => None,
        }
    }
}

/// A convolution as PyTorch's user writes it, over images whose sides are equal or nearly so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convolution {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub inputs: usize,
    /// Rows and columns of the input.
    pub sides: [usize; 2],
    /// Channels of the output.
    pub outputs: usize,
    /// Side of the window.
    pub kernel: usize,
    /// Elements from one window to the next.
    pub stride: usize,
    /// Zeros around the input; around the output where it is transposed.
    pub padding: usize,
    /// It leads from the output of such a convolution to its input.
    pub transposed: bool,
}

/// Bytes of the workspace that cuDNN takes for one pass.
pub(crate) fn workspace(pass: Pass, convolution: &Convolution, arithmetic: Arithmetic) -> usize {
    let _ = (pass, convolution, arithmetic);
    0
}
