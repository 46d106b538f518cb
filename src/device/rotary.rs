//! The operations of rotary embedding kernels, and their shape.

use super::operand::{HeadView, Operand};

/// Which part of a rotation a kernel computes, with the tables that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryPass {
    /// The rotation, with cosines and sines.
    Forward([Operand; 2]),
    /// The first term of its gradient, from the product with the sine.
    BackwardOfSine(Operand),
    /// The second term of its gradient, from the product with the cosine, added to the first.
    BackwardOfCosine(Operand),
}

impl RotaryPass {
    /// The tables: cosines and sines.
    #[must_use]
    pub const fn tables(&self) -> [Option<Operand>; 2] {
        match *self {
            Self::Forward([cos, sin]) => [Some(cos), Some(sin)],
            Self::BackwardOfSine(sin) => [None, Some(sin)],
            Self::BackwardOfCosine(cos) => [Some(cos), None],
        }
    }

    /// True for a term of the gradient.
    #[must_use]
    pub const fn is_backward(&self) -> bool {
        !matches!(self, Self::Forward(_))
    }

    /// True if the result is added to `dst`.
    #[must_use]
    pub const fn adds(&self) -> bool {
        matches!(self, Self::BackwardOfCosine(_))
    }
}

/// The shape of one rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryShape {
    /// Sequences.
    pub batch: usize,
    /// Heads.
    pub heads: usize,
    /// Positions, counted from 0.
    pub rows: usize,
    /// Elements of one head: an even number.
    pub head_size: usize,
    /// True if adjacent elements form a pair; false if elements of the two halves do.
    pub neighbours: bool,
}

impl RotaryShape {
    /// The dimensions of queries or keys, with the strides of `view`.
    #[must_use]
    pub const fn dims(&self, view: &HeadView) -> [(usize, usize); 4] {
        [
            (self.batch, view.batch_stride),
            (self.heads, view.head_stride),
            (self.rows, view.row_stride),
            (self.head_size, 1),
        ]
    }

    /// Elements of queries or keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch.saturating_mul(self.heads).saturating_mul(self.rows).saturating_mul(self.head_size)
    }

    /// True if it has no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of a table with a value for each element of a head.
    #[must_use]
    pub const fn table(&self) -> usize {
        self.rows.saturating_mul(self.head_size)
    }

    /// Whether a table may have this many elements: [`Self::table`], or half of that with a value for each pair.
    #[must_use]
    pub const fn is_table(&self, len: usize) -> bool {
        len == self.table() || len == self.table() / 2
    }

    /// Whether the tables of `pass` have a value for each pair.
    #[must_use]
    pub fn has_one_for_each_pair(&self, pass: &RotaryPass) -> bool {
        !self.is_empty() && pass.tables().iter().flatten().all(|table| table.len == self.table() / 2)
    }
}
