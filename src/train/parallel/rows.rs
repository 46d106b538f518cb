//! Copies between tensors with rows at equal distances, of one type or of two.

use crate::context::Context;
use crate::error::OpResult;
use crate::tensor::Tensor;
use vramlab_allocator::units::Address;
use vramlab_device::{DType, kernels};

/// Rows in a tensor, each beginning a stride after the one before.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    first: Address,
    dtype: DType,
    /// In elements.
    stride: usize,
}

impl Rows {
    /// The rows of `tensor` from element `offset` on.
    pub fn new(tensor: &Tensor, offset: usize, stride: usize) -> Self {
        let dtype = tensor.dtype();
        Self { first: tensor.address().offset(dtype.bytes(offset)), dtype, stride }
    }

    /// The same rows as elements of `whole`: of the same type, or bytes.
    pub fn as_part_of(self, whole: &Tensor) -> Self {
        self.of_type(whole.dtype())
    }

    /// The same address for elements of another type.
    pub const fn of_type(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    /// The rows from number `number` on.
    fn from(self, number: usize) -> Self {
        Self { first: self.first.offset(self.dtype.bytes(self.stride * number)), ..self }
    }
}

/// Copies `count` elements in rows of `length`; the last row may be shorter.
pub(super) fn copy_parts(cx: &mut Context, from: Rows, to: Rows, length: usize, count: usize) -> OpResult<()> {
    let (whole, rest) = (count / length.max(1), count % length.max(1));
    copy(cx, from, to, [whole, length])?;
    copy(cx, from.from(whole), to.from(whole), [1, rest])
}

/// Copies `[rows, length]` elements, casting them to the type of `to`.
pub(super) fn copy(cx: &mut Context, from: Rows, to: Rows, [rows, length]: [usize; 2]) -> OpResult<()> {
    if rows * length == 0 {
        return Ok(());
    }
    let strides = |of: Rows| [rows * of.stride, rows * of.stride, of.stride, 1];
    if from.dtype == to.dtype {
        return cx.launch(kernels::Strided::Copy {
            src: from.first,
            dst: to.first,
            dtype: from.dtype,
            shape: [1, 1, rows, length],
            src_strides: strides(from),
            dst_strides: strides(to),
        });
    }
    cx.launch(kernels::Strided::Cast {
        src: from.first,
        src_dtype: from.dtype,
        dst: to.first,
        dst_dtype: to.dtype,
        shape: [1, 1, rows, length],
        src_strides: strides(from),
        dst_strides: strides(to),
    })
}
