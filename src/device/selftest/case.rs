//! A test case: the operands of one kernel, their values and their permitted errors.

use std::ops::Index;

use super::bound::ErrorBound;
use super::values::Values;
use crate::{DType, HeadView, MatrixView, Operand};
use vramlab_allocator::units::{Address, Bytes};

/// The type that a case uses for f32, or its variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    /// f32 whose products may be rounded.
    Tf32,
    F16,
    Bf16,
}

impl Precision {
    /// The types that every kernel on floats must support.
    pub const FLOATS: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];
    /// The types that every matrix product must support.
    pub const PRODUCTS: [Self; 4] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16];

    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 | Self::Tf32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::Bf16,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tf32 => "tf32",
            other => name_of(other.dtype()),
        }
    }
}

/// A type's name in tables.
pub(crate) const fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::U8 => "u8",
        DType::E4M3 => "e4m3",
        DType::E5M2 => "e5m2",
    }
}

/// An operand of a case, in the order of declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// An operand before it has an address.
#[derive(Clone, Debug)]
pub(crate) struct OperandSpec {
    pub name: &'static str,
    pub dtype: DType,
    pub len: usize,
    /// Its initial values; `None` if it is only written.
    pub values: Option<Values>,
    /// How it is compared; `None` if it is only read.
    pub bound: Option<ErrorBound>,
}

/// The alignment of operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Skew {
    /// Addresses aligned for every vector access.
    #[default]
    Aligned,
    /// All operands are shifted by this many elements.
    Together(usize),
    /// Each operand is shifted by one element more than the previous one.
    Apart,
}

/// One test case of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub kernel: &'static str,
    /// The column of the table in which it is counted.
    pub types: String,
    pub shape: String,
    pub tf32: bool,
    precision: Precision,
    /// True if a device need not support it.
    pub optional: bool,
    pub skew: Skew,
    pub operands: Vec<OperandSpec>,
    /// The approximate number of multiplications, or the number of elements if it is not set.
    work: usize,
}

impl Case {
    fn named(kernel: &'static str, types: String, shape: impl Into<String>) -> Self {
        Self {
            kernel,
            types,
            shape: shape.into(),
            tf32: false,
            precision: Precision::F32,
            optional: false,
            skew: Skew::Aligned,
            operands: Vec::new(),
            work: 0,
        }
    }

    pub fn new(kernel: &'static str, precision: Precision, shape: impl Into<String>) -> Self {
        let tf32 = precision == Precision::Tf32;
        Self { tf32, precision, ..Self::named(kernel, precision.name().to_owned(), shape) }
    }

    /// A case with operands that are not floats, or of several types.
    pub fn of_types(kernel: &'static str, types: &[DType], shape: impl Into<String>) -> Self {
        let names: Vec<&str> = types.iter().copied().map(name_of).collect();
        Self::named(kernel, names.join("→"), shape)
    }

    /// The type under test, for a case with one type.
    pub const fn main_type(&self) -> DType {
        self.precision.dtype()
    }

    pub fn skewed(self, skew: Skew) -> Self {
        let shape = match skew {
            Skew::Aligned => self.shape,
            Skew::Together(n) => format!("{}, {n} elements off", self.shape),
            Skew::Apart => format!("{}, each off", self.shape),
        };
        Self { skew, shape, ..self }
    }

    pub fn work(self, multiplications: usize) -> Self {
        Self { work: multiplications, ..self }
    }

    /// Adds an operand that is read.
    pub fn input(&mut self, name: &'static str, dtype: DType, len: usize, values: Values) -> Slot {
        self.declare(OperandSpec { name, dtype, len, values: Some(values), bound: None })
    }

    /// Adds an operand that is written completely.
    pub fn output(&mut self, name: &'static str, dtype: DType, len: usize, bound: ErrorBound) -> Slot {
        self.declare(OperandSpec { name, dtype, len, values: None, bound: Some(bound) })
    }

    /// Adds an operand that is read and written.
    pub fn update(&mut self, name: &'static str, dtype: DType, len: usize, values: Values, bound: ErrorBound) -> Slot {
        self.declare(OperandSpec { name, dtype, len, values: Some(values), bound: Some(bound) })
    }

    fn declare(&mut self, operand: OperandSpec) -> Slot {
        self.operands.push(operand);
        Slot(self.operands.len() - 1)
    }

    /// Elements of all operands.
    pub fn elements(&self) -> usize {
        self.operands.iter().map(|operand| operand.len).sum()
    }

    /// True if it belongs to the selection that takes seconds.
    pub fn is_small(&self) -> bool {
        const ELEMENTS: usize = 40_000;
        const WORK: usize = 1_000_000;
        self.elements() <= ELEMENTS && self.work <= WORK && self.operands.len() <= 64
    }
}

/// The operands of a case in a device's memory.
#[derive(Clone, Debug)]
pub(crate) struct CaseOperands {
    pub operands: Vec<Operand>,
    /// Memory that the kernel may use while it runs.
    pub workspace: Operand,
}

impl Index<Slot> for CaseOperands {
    type Output = Operand;

    fn index(&self, slot: Slot) -> &Operand {
        &self.operands[slot.0]
    }
}

/// Parts and layouts of an operand.
impl CaseOperands {
    /// Where element `n` lies.
    pub fn at(&self, slot: Slot, n: usize) -> Address {
        let operand = self[slot];
        operand.address.offset(operand.dtype.bytes(n))
    }

    /// Rows of `row_stride` elements, starting at element `first`.
    pub fn matrix(&self, slot: Slot, first: usize, [row_stride, col_stride, batch_stride]: [usize; 3]) -> MatrixView {
        MatrixView { address: self.at(slot, first), dtype: self[slot].dtype, row_stride, col_stride, batch_stride }
    }

    /// (batch, heads, rows, head size) from element `first` on.
    pub fn heads(&self, slot: Slot, first: usize, [batch_stride, head_stride, row_stride]: [usize; 3]) -> HeadView {
        HeadView { address: self.at(slot, first), dtype: self[slot].dtype, batch_stride, head_stride, row_stride }
    }
}

impl Skew {
    /// The offset of operand number `index` from an aligned address.
    pub fn of(self, index: usize, dtype: DType) -> Bytes {
        match self {
            Self::Aligned => Bytes::ZERO,
            Self::Together(n) => dtype.bytes(n),
            Self::Apart => dtype.bytes(index + 1),
        }
    }
}
