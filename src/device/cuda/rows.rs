//! Code shared by kernels that process one row at a time.

use crate::Operand;
use crate::cuda::queue::blocks_of;

/// Bytes that a thread reads at once.
pub(crate) const VECTOR: usize = 16;

/// A matrix of whole rows, with the sizes that grids and kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub rows: usize,
    pub cols: usize,
    /// The number of rows as a dimension of a grid.
    pub grid: u32,
    /// `cols` as kernels receive it.
    pub width: u32,
    /// Elements that a thread reads at once.
    pub vector: usize,
}

impl Rows {
    /// The rows of `cols` elements of `matrix`; `None` if they are not whole or too many to count.
    pub fn of(matrix: &Operand, cols: usize) -> Option<Self> {
        if !matrix.len.is_multiple_of(cols.max(1)) {
            return None;
        }
        let rows = matrix.len.checked_div(cols)?;
        Some(Self {
            rows,
            cols,
            grid: u32::try_from(i32::try_from(rows).ok()?).ok()?,
            width: u32::try_from(i32::try_from(cols).ok()?).ok()?,
            vector: VECTOR / usize::try_from(matrix.dtype.size()).ok()?,
        })
    }
}

/// Threads in a block for a row of `pieces` pieces: each thread has four in flight at once, or more if there are too
/// many.
pub(crate) fn threads_of(pieces: usize) -> u32 {
    32 * blocks_of(pieces, 4 * 32).min(32)
}

/// The offset of `operand` from a multiple of a vector's size.
pub(crate) const fn place(operand: &Operand) -> u64 {
    operand.address.0 % VECTOR as u64
}
