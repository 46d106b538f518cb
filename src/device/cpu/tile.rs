//! Products of small matrices, eight rows at a time in registers, for kernels that keep their operands in scratch.
//! Row lengths are padded to whole tiles with zeros, so that there are no edges.

use crate::cpu::cores::Cores;
use crate::cpu::real::Real;

/// Rows and columns of the part of a product that is accumulated in registers.
pub(crate) const TILE: usize = 8;

/// `n` rounded up to whole tiles.
pub(crate) const fn padded(n: usize) -> usize {
    n.next_multiple_of(TILE)
}

/// How the eight rows of a product are stored.
#[derive(Clone, Copy)]
pub(crate) enum Store {
    /// They overwrite the previous contents.
    Replace,
    /// They are added to the previous contents.
    Add,
}

/// Eight rows of `alpha · a b`: `a` has eight rows at `a_stride`, `b` has `k` rows at `b_stride`; `n` columns of the
/// result, a whole number of tiles, go to rows of `c` at `c_stride`.
pub(crate) fn rows<R: Real>(
    cores: &Cores,
    [n, k]: [usize; 2],
    alpha: R,
    a: (&[R], usize),
    b: (&[R], usize),
    c: (&mut [R], usize),
    store: Store,
) {
    cores.dispatch(TileOperands { n, k, alpha, a, transposed: false, b, c, store });
}

/// [`rows`] with the transpose of `a`, which has `k` rows at `a_stride`; only the first eight columns are used.
pub(crate) fn rows_of_transposed<R: Real>(
    cores: &Cores,
    [n, k]: [usize; 2],
    alpha: R,
    a: (&[R], usize),
    b: (&[R], usize),
    c: (&mut [R], usize),
    store: Store,
) {
    cores.dispatch(TileOperands { n, k, alpha, a, transposed: true, b, c, store });
}

/// The operands of [`rows`]. Vectors are explicit here, because the compiler alone divides the sums badly and keeps
/// half of them in memory.
struct TileOperands<'a, R> {
    n: usize,
    k: usize,
    alpha: R,
    a: (&'a [R], usize),
    transposed: bool,
    b: (&'a [R], usize),
    c: (&'a mut [R], usize),
    store: Store,
}

impl<R: Real> pulp::WithSimd for TileOperands<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(mut self, simd: S) {
        let (a, stride) = self.a;
        if self.transposed {
            self.columns(
                simd,
                #[inline(always)]
                |p, i| a[p * stride..][..TILE][i],
            );
        } else {
            let k = self.k;
            let a: [&[R]; TILE] = std::array::from_fn(
                #[inline(always)]
                |i| &a[i * stride..][..k],
            );
            self.columns(
                simd,
                #[inline(always)]
                |p, i| a[i][p],
            );
        }
    }
}

impl<R: Real> TileOperands<'_, R> {
    /// Computes all columns, a vector at a time; `factor(p, i)` is row i's factor for row p of `b`.
    #[inline(always)]
    fn columns<S: pulp::Simd>(&mut self, simd: S, factor: impl Fn(usize, usize) -> R) {
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        assert!(TILE.is_multiple_of(lanes), "vectors wider than tiles");
        let (b, b_stride) = self.b;
        let alpha = R::splat(simd, self.alpha);
        for column in (0..self.n).step_by(lanes) {
            let mut sums = [R::splat(simd, R::ZERO); TILE];
            for (p, b) in b.chunks_exact(b_stride).take(self.k).enumerate() {
                let b = R::vectors::<S>(&b[column..column + lanes])[0];
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = R::multiply_add(simd, R::splat(simd, factor(p, i)), b, *sum);
                }
            }
            for (i, &sum) in sums.iter().enumerate() {
                let c = &mut self.c.0[i * self.c.1 + column..][..lanes];
                let c = &mut R::vectors_mut::<S>(c)[0];
                let start = match self.store {
                    Store::Replace => R::splat(simd, R::ZERO),
                    Store::Add => *c,
                };
                *c = R::multiply_add(simd, alpha, sum, start);
            }
        }
    }
}

/// Writes the transpose of `from`, which consists of whole tiles at `from_stride`, to rows of `to` at `to_stride`.
#[inline(always)]
pub(crate) fn transpose<R: Real>(from: &[R], from_stride: usize, to: &mut [R], to_stride: usize) {
    for (row, lines) in from.chunks_exact(TILE * from_stride).enumerate() {
        for column in (0..from_stride).step_by(TILE) {
            let lines: [&[R]; TILE] = std::array::from_fn(
                #[inline(always)]
                |i| &lines[i * from_stride + column..][..TILE],
            );
            for j in 0..TILE {
                let to = &mut to[(column + j) * to_stride + row * TILE..][..TILE];
                for (to, line) in to.iter_mut().zip(&lines) {
                    *to = line[j];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostAccount;

    fn matrix(rows: usize, cols: usize, seed: usize) -> Vec<f64> {
        (0..rows * cols).map(|i| ((i * 37 + seed * 11) % 19) as f64 - 9.0).collect()
    }

    /// Element (i, j) of `a b` for `a` of `k` columns and `b` of `n`.
    fn element(a: &[f64], b: &[f64], k: usize, n: usize, [i, j]: [usize; 2]) -> f64 {
        (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum()
    }

    #[test]
    fn products_are_those_of_the_definition() {
        let (n, k) = (24, 16);
        let (a, b) = (matrix(TILE, k, 1), matrix(k, n, 2));
        let mut transposed = vec![0.0; TILE * k];
        transpose(&a, k, &mut transposed, TILE);
        let mut c = vec![0.0; TILE * n];
        let cores = Cores::new(1, HostAccount::default()).unwrap();
        rows(&cores, [n, k], 2.0, (&a, k), (&b, n), (&mut c, n), Store::Replace);
        rows_of_transposed(&cores, [n, k], 3.0, (&transposed, TILE), (&b, n), (&mut c, n), Store::Add);
        for i in 0..TILE {
            for j in 0..n {
                assert_eq!(c[i * n + j], 5.0 * element(&a, &b, k, n, [i, j]), "({i}, {j})");
            }
        }
    }

    #[test]
    fn a_transpose_of_several_tiles_is_right() {
        let from = matrix(16, 24, 3);
        let mut to = vec![0.0; 24 * 16];
        transpose(&from, 24, &mut to, 16);
        for i in 0..16 {
            for j in 0..24 {
                assert_eq!(to[j * 16 + i], from[i * 24 + j]);
            }
        }
    }
}
