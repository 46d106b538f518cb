//! The memory that a kernel accesses.

use super::attention::AttentionShape;
use super::operand::{DType, HeadView, MatrixView, Operand};
use vramlab_allocator::units::{Address, Bytes};

/// A contiguous range of device memory that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: Address,
    /// Its length.
    pub bytes: Bytes,
}

impl From<&Operand> for Span {
    fn from(operand: &Operand) -> Self {
        Self { start: operand.address, bytes: operand.dtype.bytes(operand.len) }
    }
}

impl Span {
    /// The range from the first to the last element of an array of these sizes and strides, in elements.
    pub(crate) fn strided(start: Address, dtype: DType, dims: &[(usize, usize)]) -> Self {
        if dims.iter().any(|&(size, _)| size == 0) {
            return Self { start, bytes: Bytes::ZERO };
        }
        let last =
            dims.iter().fold(0_usize, |last, &(size, stride)| last.saturating_add((size - 1).saturating_mul(stride)));
        Self { start, bytes: Bytes(dtype.size().saturating_mul(last as u64 + 1)) }
    }

    pub(crate) fn matrix(view: &MatrixView, [batch, rows, cols]: [usize; 3]) -> Self {
        let dims = [(batch, view.batch_stride), (rows, view.row_stride), (cols, view.col_stride)];
        Self::strided(view.address, view.dtype, &dims)
    }

    pub(crate) fn heads(view: &HeadView, shape: &AttentionShape, rows: usize) -> Self {
        let dims = [
            (shape.batch, view.batch_stride),
            (shape.heads, view.head_stride),
            (rows, view.row_stride),
            (shape.head_size, 1),
        ];
        Self::strided(view.address, view.dtype, &dims)
    }
}

/// A receiver of the spans that a kernel accesses.
pub(crate) trait Tell {
    /// Receives one span.
    fn span(&mut self, span: Span);

    /// Receives whole operands.
    fn all<'o>(&mut self, operands: impl IntoIterator<Item = &'o Operand>) {
        operands.into_iter().for_each(|operand| self.span(operand.into()));
    }
}

impl<F: FnMut(Span)> Tell for F {
    fn span(&mut self, span: Span) {
        self(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Earlier;

    #[test]
    fn views_reach_from_their_first_to_their_last_element() {
        let view =
            MatrixView { address: Address(512), dtype: DType::F32, row_stride: 10, col_stride: 1, batch_stride: 100 };
        assert_eq!(Span::matrix(&view, [2, 3, 4]), Span { start: Address(512), bytes: Bytes(4 * (100 + 20 + 3 + 1)) });
        assert_eq!(Span::matrix(&view, [2, 0, 4]).bytes, Bytes::ZERO);
        let repeated = MatrixView { row_stride: 0, ..view };
        assert_eq!(Span::matrix(&repeated, [1, 1000, 4]).bytes, Bytes(16));
        let heads =
            HeadView { address: Address(0), dtype: DType::Bf16, batch_stride: 96, head_stride: 8, row_stride: 24 };
        let shape = AttentionShape {
            batch: 2,
            heads: 3,
            group: 1,
            rows: 4,
            head_size: 8,
            value_size: 8,
            causal: true,
            earlier: Earlier::All,
            masked: false,
            scale: 1.0,
            dropout: None,
        };
        assert_eq!(Span::heads(&heads, &shape, shape.rows).bytes, Bytes(2 * (96 + 16 + 72 + 8)));
    }
}
