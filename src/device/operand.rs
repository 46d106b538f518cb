//! The operands of kernels: types of elements, and views of device memory.

use serde::{Deserialize, Serialize};
use vramlab_allocator::units::{Address, Bytes};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit float.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// 64-bit float: gradient checks only.
    F64,
    /// 64-bit integer: token and class indices.
    I64,
    /// 32-bit integer: counters.
    I32,
    /// Bytes: masks and workspaces.
    U8,
    /// 8-bit float with four bits of exponent and three of mantissa, without infinities.
    #[serde(rename = "float8_e4m3fn")]
    E4M3,
    /// 8-bit float with five bits of exponent and two of mantissa.
    #[serde(rename = "float8_e5m2")]
    E5M2,
}

impl DType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 | Self::E4M3 | Self::E5M2 => 1,
        }
    }

    /// PyTorch's name for it, without `torch.`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F64 => "float64",
            Self::I64 => "int64",
            Self::I32 => "int32",
            Self::U8 => "uint8",
            Self::E4M3 => "float8_e4m3fn",
            Self::E5M2 => "float8_e5m2",
        }
    }

    /// True for floating-point types.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Bytes of `n` elements.
    #[must_use]
    pub const fn bytes(self, n: usize) -> Bytes {
        Bytes(self.size().saturating_mul(n as u64))
    }
}

/// A contiguous run of elements in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// First byte.
    pub address: Address,
    /// Type of each element.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
}

/// A matrix (or a batch of them) in device memory with strides in elements: a transpose is another view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixView {
    /// Address of element (0, 0) of the first matrix.
    pub address: Address,
    /// Type of each element.
    pub dtype: DType,
    /// Elements from one row to the next.
    pub row_stride: usize,
    /// Elements from one column to the next.
    pub col_stride: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
}

/// One tensor of (batch, heads, rows, head size) inside a packed or transposed layout. The last dimension is
/// contiguous; strides are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadView {
    /// Address of element (0, 0, 0, 0).
    pub address: Address,
    /// Type of each element.
    pub dtype: DType,
    /// Elements from one sequence to the next.
    pub batch_stride: usize,
    /// Elements from one head to the next.
    pub head_stride: usize,
    /// Elements from one position to the next.
    pub row_stride: usize,
}
