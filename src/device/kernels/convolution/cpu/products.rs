//! The two kinds of sums in convolutions, computed in registers: weighted sums of shifted runs ([`Combination`]), and
//! dot products of runs with shifted runs ([`Correlation`]). Neither copies nor packs its operands.
#![allow(unsafe_code)]

use crate::cpu::real::Real;

/// Runs are multiples of this many elements, which is a multiple of every vector's length.
pub(super) const LANES: usize = 8;

/// Rows of the result that are summed at the same time.
pub(super) const ROWS: usize = 4;
/// Vectors per row: with [`ROWS`], twelve sums, which hides the latency of a multiplication.
const VECTORS: usize = 3;
/// Terms that are summed before moving on, so that their sources stay in the first-level cache.
const TERMS: usize = 256;

/// One term of a weighted sum of runs.
#[derive(Clone, Copy)]
pub(super) struct Term {
    /// Index of the first row's factor; the following rows' factors are `row_stride` apart.
    pub(super) weight: usize,
    /// Where the run starts.
    pub(super) source: usize,
}

/// `out[r, q] = bias[r] + Σ_t weight[terms[t].weight + r·row_stride] · source[terms[t].source + q]` for each row r and
/// q below `cols`.
pub(super) struct Combination<'a, R> {
    pub(super) rows: usize,
    /// A multiple of [`LANES`].
    pub(super) cols: usize,
    pub(super) terms: &'a [Term],
    pub(super) weight: &'a [R],
    pub(super) row_stride: usize,
    pub(super) source: &'a [R],
    pub(super) bias: Option<&'a [R]>,
    pub(super) out: &'a mut [R],
    /// Elements from one row of `out` to the next.
    pub(super) out_stride: usize,
}

impl<R: Real> pulp::WithSimd for Combination<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) {
        let Self { rows, cols, out_stride, .. } = self;
        if rows == 0 || cols == 0 {
            return;
        }
        for (row, out) in self.out.chunks_mut(out_stride).take(rows).enumerate() {
            out[..cols].fill(self.bias.map_or(R::ZERO, |bias| bias[row]));
        }
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        assert!(LANES.is_multiple_of(lanes) && cols.is_multiple_of(LANES), "runs of whole vectors");
        let reach = |offset: fn(&Term) -> usize| self.terms.iter().map(offset).max().unwrap_or(0);
        assert!(reach(|t| t.source) + cols <= self.source.len(), "runs lie in the source");
        assert!(reach(|t| t.weight) + (rows - 1) * self.row_stride < self.weight.len(), "factors lie in the weight");
        assert!((rows - 1) * out_stride + cols <= self.out.len(), "rows lie in the result");
        for terms in self.terms.chunks(TERMS) {
            let mut col = 0;
            while col < cols {
                let vectors = ((cols - col) / lanes).min(VECTORS);
                for row in (0..rows).step_by(ROWS) {
                    let block = RegisterBlock {
                        terms,
                        weight: self.weight[row * self.row_stride..].as_ptr(),
                        row_stride: self.row_stride,
                        source: self.source[col..].as_ptr(),
                        out: self.out[row * out_stride + col..].as_mut_ptr(),
                        out_stride,
                    };
                    // SAFETY: the block's rows and columns are below `rows` and `cols`, and the assertions above ensure
                    // that for those everything it reaches is inside the slices.
                    unsafe {
                        match (rows - row, vectors) {
                            (1, VECTORS) => block.sum::<S, 1, VECTORS>(simd),
                            (2, VECTORS) => block.sum::<S, 2, VECTORS>(simd),
                            (3, VECTORS) => block.sum::<S, 3, VECTORS>(simd),
                            (_, VECTORS) => block.sum::<S, ROWS, VECTORS>(simd),
                            (1, 2) => block.sum::<S, 1, 2>(simd),
                            (2, 2) => block.sum::<S, 2, 2>(simd),
                            (3, 2) => block.sum::<S, 3, 2>(simd),
                            (_, 2) => block.sum::<S, ROWS, 2>(simd),
                            (1, _) => block.sum::<S, 1, 1>(simd),
                            (2, _) => block.sum::<S, 2, 1>(simd),
                            (3, _) => block.sum::<S, 3, 1>(simd),
                            (_, _) => block.sum::<S, ROWS, 1>(simd),
                        }
                    }
                }
                col += vectors * lanes;
            }
        }
    }
}

/// A part of a [`Combination`] that fits into registers.
struct RegisterBlock<'a, R> {
    terms: &'a [Term],
    weight: *const R,
    row_stride: usize,
    source: *const R,
    out: *mut R,
    out_stride: usize,
}

impl<R: Real> RegisterBlock<'_, R> {
    /// Adds the sum over the terms to M rows of N vectors.
    ///
    /// # Safety
    /// For every term, M factors at the rows' stride and N vectors of the source are valid; M rows of N vectors of
    /// `out` are valid and exclusive to the caller.
    #[inline(always)]
    unsafe fn sum<S: pulp::Simd, const M: usize, const N: usize>(self, simd: S) {
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        let mut sums = [[R::splat(simd, R::ZERO); N]; M];
        for term in self.terms {
            // SAFETY: guaranteed by the caller; vectors are read without alignment.
            let run: [R::Vector<S>; N] = std::array::from_fn(
                #[inline(always)]
                |j| unsafe { vector::<R, S>(self.source.add(term.source + j * lanes)) },
            );
            for (i, sums) in sums.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                let factor = R::splat(simd, unsafe { *self.weight.add(term.weight + i * self.row_stride) });
                for (sum, &x) in sums.iter_mut().zip(&run) {
                    *sum = R::multiply_add(simd, factor, x, *sum);
                }
            }
        }
        let one = R::splat(simd, R::ONE);
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let out = self.out.add(i * self.out_stride + j * lanes);
                    let total = R::multiply_add(simd, one, sum, vector::<R, S>(out));
                    out.cast::<R::Vector<S>>().write_unaligned(total);
                }
            }
        }
    }
}

/// The vector that starts at `from`.
///
/// # Safety
/// All of its elements are valid.
#[inline(always)]
unsafe fn vector<R: Real, S: pulp::Simd>(from: *const R) -> R::Vector<S> {
    // SAFETY: guaranteed by the caller; vectors are plain numbers.
    unsafe { from.cast::<R::Vector<S>>().read_unaligned() }
}

/// `out[r, t] += Σ_q left[r, q] · source[offsets[t] + q]` over q below `len`.
pub(super) struct Correlation<'a, R> {
    pub(super) rows: usize,
    /// Elements in each dot product, a multiple of [`LANES`].
    pub(super) len: usize,
    pub(super) left: &'a [R],
    /// Elements from one row of `left` to the next.
    pub(super) left_stride: usize,
    pub(super) source: &'a [R],
    /// The starts of the source's runs.
    pub(super) terms: &'a [Term],
    /// Rows × terms.
    pub(super) out: &'a mut [R],
}

impl<R: Real> pulp::WithSimd for Correlation<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) {
        let Self { rows, len, left_stride, terms, .. } = self;
        if rows == 0 || len == 0 || terms.is_empty() {
            return;
        }
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        assert!(LANES.is_multiple_of(lanes) && len.is_multiple_of(LANES), "runs of whole vectors");
        let reach = terms.iter().map(|t| t.source).max().unwrap_or(0);
        assert!(reach + len <= self.source.len(), "runs lie in the source");
        assert!((rows - 1) * left_stride + len <= self.left.len(), "rows lie in the left operand");
        assert!(rows * terms.len() == self.out.len(), "one result for each row and term");
        for first in (0..terms.len()).step_by(VECTORS) {
            let some = &terms[first..terms.len().min(first + VECTORS)];
            for row in (0..rows).step_by(ROWS) {
                let dots = Dots {
                    left: self.left[row * left_stride..].as_ptr(),
                    left_stride,
                    source: self.source.as_ptr(),
                    terms: some,
                    len,
                    out: &mut self.out[row * terms.len() + first..],
                    out_stride: terms.len(),
                };
                // SAFETY: the assertions above cover these rows and terms.
                unsafe {
                    match (rows - row, some.len()) {
                        (1, VECTORS) => dots.add::<S, 1, VECTORS>(simd),
                        (2, VECTORS) => dots.add::<S, 2, VECTORS>(simd),
                        (3, VECTORS) => dots.add::<S, 3, VECTORS>(simd),
                        (_, VECTORS) => dots.add::<S, ROWS, VECTORS>(simd),
                        (1, 2) => dots.add::<S, 1, 2>(simd),
                        (2, 2) => dots.add::<S, 2, 2>(simd),
                        (3, 2) => dots.add::<S, 3, 2>(simd),
                        (_, 2) => dots.add::<S, ROWS, 2>(simd),
                        (1, _) => dots.add::<S, 1, 1>(simd),
                        (2, _) => dots.add::<S, 2, 1>(simd),
                        (3, _) => dots.add::<S, 3, 1>(simd),
                        (_, _) => dots.add::<S, ROWS, 1>(simd),
                    }
                }
            }
        }
    }
}

/// A part of a [`Correlation`] that fits into registers.
struct Dots<'a, R> {
    left: *const R,
    left_stride: usize,
    source: *const R,
    terms: &'a [Term],
    len: usize,
    out: &'a mut [R],
    out_stride: usize,
}

impl<R: Real> Dots<'_, R> {
    /// Adds M × N dot products.
    ///
    /// # Safety
    /// M rows of `left` and N runs of the source have `len` valid elements, whole vectors.
    #[inline(always)]
    unsafe fn add<S: pulp::Simd, const M: usize, const N: usize>(self, simd: S) {
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        let starts: [usize; N] = std::array::from_fn(
            #[inline(always)]
            |j| self.terms[j].source,
        );
        let mut sums = [[R::splat(simd, R::ZERO); N]; M];
        for at in (0..self.len).step_by(lanes) {
            // SAFETY: guaranteed by the caller; vectors are read without alignment.
            let runs: [R::Vector<S>; N] = std::array::from_fn(
                #[inline(always)]
                |j| unsafe { vector::<R, S>(self.source.add(starts[j] + at)) },
            );
            for (i, sums) in sums.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller.
                let left = unsafe { vector::<R, S>(self.left.add(i * self.left_stride + at)) };
                for (sum, &run) in sums.iter_mut().zip(&runs) {
                    *sum = R::multiply_add(simd, left, run, *sum);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                self.out[i * self.out_stride + j] += R::sum_lanes(simd, sum);
            }
        }
    }
}
