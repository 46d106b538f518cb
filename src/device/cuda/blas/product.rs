//! A matrix product in cuBLAS's terms: column-major matrices that may be transposed.

use crate::{DType, MatrixView, Operand};
use vramlab_allocator::units::Address;

/// A product in the form that kernels use: `c[m,n] = alpha · a[m,k] b[k,n] (+ bias[n]) + beta · c` for each matrix of
/// the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiplication {
    /// m, n and k.
    pub sizes: [usize; 3],
    pub batch: usize,
    /// a, b and c.
    pub matrices: [MatrixView; 3],
    pub bias: Option<Operand>,
    pub alpha: f32,
    pub beta: f32,
    /// For 8-bit factors: the optional scale of each, and whether sums may be kept with fewer bits.
    pub scaled: Option<(Option<[Operand; 2]>, bool)>,
}

/// The layout of one matrix in memory, whose columns are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MatrixLayout {
    pub rows: usize,
    pub cols: usize,
    /// Elements from one column to the next.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
    /// True if the factor is its transpose.
    pub transposed: bool,
}

/// Everything that decides which algorithms are available, which excludes the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Types of the factors and of the product.
    pub types: [DType; 2],
    pub output: DType,
    pub left: MatrixLayout,
    pub right: MatrixLayout,
    pub product: MatrixLayout,
    pub batch: usize,
    pub bias: Option<DType>,
    pub accumulate: bool,
    pub tf32: bool,
    /// Sums of products in 8 bits may be kept with fewer bits.
    pub fast: bool,
    /// The largest power of two up to 16 that divides every address.
    pub alignment: u32,
}

/// A product that cuBLASLt can compute: `product = alpha · left · right (+ bias) + beta · product`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub shape: Shape,
    pub left: Address,
    pub right: Address,
    pub product: Address,
    pub bias: Option<Address>,
    pub alpha: f32,
    pub beta: f32,
    /// The scales of 8-bit float factors; a null address means 1.
    pub scales: Option<[Address; 2]>,
}

impl Product {
    /// Treats row-major matrices as their transposes in column-major terms: `cᵀ = bᵀ aᵀ`. Returns `None` if a matrix
    /// has no contiguous dimension, or if cuBLASLt has no kernel for the combination of types.
    pub fn of(multiplication: &Multiplication, tf32: bool) -> Option<Self> {
        let &Multiplication { sizes, batch, ref matrices, bias, alpha, beta, scaled } = multiplication;
        let [a, b, c] = matrices;
        let computes = |view: &MatrixView| matches!(view.dtype, DType::F32 | DType::F16 | DType::Bf16);
        let known = match scaled {
            None => computes(a) && a.dtype == b.dtype && (c.dtype == a.dtype || c.dtype == DType::F32),
            Some(_) => computes(c) && [a, b].iter().all(|view| view.dtype.float8_max().is_some()),
        };
        if !known {
            return None;
        }
        let [m, n, k] = sizes;
        let single = |view: &MatrixView| if batch == 1 { 0 } else { view.batch_stride };
        // The matrix as a (rows × cols) factor of a column-major product.
        let factor = |view: &MatrixView, rows: usize, cols: usize, row_stride: usize, col_stride: usize| {
            let (rows_stored, cols_stored, leading, transposed) = if row_stride == 1 || rows == 1 {
                (rows, cols, col_stride, false)
            } else if col_stride == 1 || cols == 1 {
                (cols, rows, row_stride, true)
            } else {
                return None;
            };
            // A single column has no next one, so any sufficiently large distance will do.
            let leading = if cols_stored == 1 { leading.max(rows_stored) } else { leading };
            let whole = leading >= rows_stored;
            let batch_stride = single(view);
            whole.then_some(MatrixLayout { rows: rows_stored, cols: cols_stored, leading, batch_stride, transposed })
        };
        let row_major = c.col_stride == 1 || n == 1;
        let (left, right, product, [first, second]) = if row_major {
            (
                factor(b, n, k, b.col_stride, b.row_stride)?,
                factor(a, k, m, a.col_stride, a.row_stride)?,
                factor(c, n, m, c.col_stride, c.row_stride)?,
                [b, a],
            )
        } else {
            if bias.is_some() {
                return None;
            }
            (
                factor(a, m, k, a.row_stride, a.col_stride)?,
                factor(b, k, n, b.row_stride, b.col_stride)?,
                factor(c, m, n, c.row_stride, c.col_stride)?,
                [a, b],
            )
        };
        if product.transposed {
            return None;
        }
        let scales = scaled.map(|(inverse, _)| {
            let [of_a, of_b] = inverse.map_or([Address(0); 2], |inverse| inverse.map(|factor| factor.address));
            if row_major { [of_b, of_a] } else { [of_a, of_b] }
        });
        let together = first.address.0 | second.address.0 | c.address.0 | bias.map_or(0, |bias| bias.address.0);
        let shape = Shape {
            types: [first.dtype, second.dtype],
            output: c.dtype,
            left,
            right,
            product,
            batch,
            bias: bias.map(|bias| bias.dtype),
            accumulate: beta != 0.0,
            fast: scaled.is_some_and(|(_, fast)| fast),
            tf32: tf32 && a.dtype == DType::F32,
            alignment: 1 << together.trailing_zeros().min(4),
        };
        Some(Self {
            shape,
            left: first.address,
            right: second.address,
            product: c.address,
            bias: bias.map(|bias| bias.address),
            alpha,
            beta,
            scales,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(row_stride: usize, col_stride: usize) -> MatrixView {
        MatrixView { address: Address(4096), dtype: DType::F32, row_stride, col_stride, batch_stride: 0 }
    }

    fn product([m, n, k]: [usize; 3], [a, b, c]: [MatrixView; 3]) -> Option<Product> {
        let (sizes, matrices) = ([m, n, k], [a, b, c]);
        let multiplication =
            Multiplication { sizes, batch: 1, matrices, bias: None, alpha: 1.0, beta: 0.0, scaled: None };
        Product::of(&multiplication, false)
    }

    #[test]
    fn row_major_products_are_column_major_ones_of_the_transposes() {
        // A linear layer: x (5 × 3) times the transpose of w (7 × 3).
        let linear = product([5, 7, 3], [view(3, 1), view(1, 3), view(7, 1)]).unwrap().shape;
        assert_eq!((linear.left.rows, linear.left.cols, linear.left.leading), (3, 7, 3));
        assert!(linear.left.transposed && !linear.right.transposed);
        assert_eq!((linear.right.rows, linear.right.cols), (3, 5));
        assert_eq!((linear.product.rows, linear.product.cols, linear.product.leading), (7, 5, 7));
    }

    #[test]
    fn dimensions_of_one_take_any_stride() {
        for (size, views) in [
            ([1, 7, 3], [view(0, 1), view(7, 1), view(0, 1)]),
            ([5, 1, 3], [view(3, 1), view(1, 9), view(1, 4)]),
            ([5, 7, 1], [view(1, 4), view(0, 1), view(7, 1)]),
        ] {
            let shape = product(size, views).unwrap().shape;
            for layout in [shape.left, shape.right, shape.product] {
                assert!(layout.leading >= layout.rows, "{size:?} {layout:?}");
            }
        }
    }

    #[test]
    fn matrices_without_a_contiguous_dimension_are_refused() {
        assert!(product([5, 7, 3], [view(6, 2), view(7, 1), view(7, 1)]).is_none());
        assert!(product([5, 7, 3], [view(3, 1), view(7, 1), view(1, 5)]).is_some());
    }
}
