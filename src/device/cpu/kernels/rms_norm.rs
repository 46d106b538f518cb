//! The norm by the root of the mean square: y = x·rstd·weight with rstd = 1/√(mean(x²) + eps), per row.

use super::dispatch::real;
use super::partial::SumsOfBlocks;
use super::rows::{for_rows, rows_of};
use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, sum_by};

/// The operands of [`crate::Kernel::RmsNorm`].
pub(super) struct Forward<T> {
    pub(super) src: T,
    pub(super) weight: T,
    pub(super) dst: T,
    pub(super) rstd: T,
}

/// The operands of [`crate::Kernel::RmsNormBackward`].
pub(super) struct Backward<T> {
    pub(super) grad: T,
    pub(super) src: T,
    pub(super) rstd: T,
    pub(super) weight: T,
    pub(super) dsrc: T,
    pub(super) dweight: T,
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &Forward<Operand>,
    cols: usize,
    eps: f32,
) -> KernelResult {
    let &Forward { src, weight, dst, rstd } = operands;
    let rows = rows_of(&src, cols)?;
    require(dst.len == src.len && weight.len == cols && rstd.len == rows, || {
        format!("operands don't fit {rows} rows of {cols}")
    })?;
    let views = Forward {
        src: access.read(&src)?,
        weight: access.read(&weight)?,
        dst: access.write(&dst)?,
        rstd: access.write(&rstd)?,
    };
    real!([src.dtype, weight.dtype, dst.dtype], forward_rows(cores, &views, [rows, cols], eps));
    Ok(())
}

fn forward_rows<R: Real>(cores: &Cores, views: &Forward<View<'_>>, [rows, cols]: [usize; 2], eps: f32) {
    cores.scratch(cols, |weight: &mut [R]| {
        R::load(&views.weight, 0, weight);
        let weight = &*weight;
        for_rows(
            cores,
            [rows, cols],
            0.4,
            cols,
            #[inline(always)]
            |row, x: &mut [R]| {
                R::load(&views.src, row * cols, x);
                let squares = sum_by(
                    cols,
                    #[inline(always)]
                    |i| x[i] * x[i],
                );
                let rstd = R::ONE / (squares / R::of(cols as f64) + R::of(f64::from(eps))).sqrt();
                for (x, &w) in x.iter_mut().zip(weight) {
                    *x = *x * rstd * w;
                }
                R::store(&views.dst, row * cols, x);
                R::store(&views.rstd, row, &[rstd]);
            },
        );
    });
}

/// The root of the sum of squares of each row.
pub(super) fn row_norm(cores: &Cores, mut access: Access<'_>, src: Operand, dst: Operand, cols: usize) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [rows, cols]: [usize; 2]) {
        for_rows(
            cores,
            [rows, cols],
            0.2,
            cols,
            #[inline(always)]
            |row, x: &mut [R]| {
                R::load(&src, row * cols, x);
                let squares = sum_by(
                    cols,
                    #[inline(always)]
                    |i| x[i] * x[i],
                );
                R::store(&dst, row, &[squares.sqrt()]);
            },
        );
    }
    let rows = rows_of(&src, cols)?;
    require(dst.len == rows, || format!("{} norms of {rows} rows of {cols}", dst.len))?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to, [rows, cols]));
    Ok(())
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &Backward<Operand>,
    cols: usize,
) -> KernelResult {
    let &Backward { grad, src, rstd, weight, dsrc, dweight } = operands;
    let rows = rows_of(&src, cols)?;
    let fits = [grad.len, dsrc.len] == [src.len; 2] && rstd.len == rows && [weight.len, dweight.len] == [cols; 2];
    require(fits, || format!("operands don't fit {rows} rows of {cols}"))?;
    let views = Backward {
        grad: access.read(&grad)?,
        src: access.read(&src)?,
        rstd: access.read(&rstd)?,
        weight: access.read(&weight)?,
        dsrc: access.write(&dsrc)?,
        dweight: access.write(&dweight)?,
    };
    real!([grad.dtype, src.dtype, weight.dtype, dsrc.dtype, dweight.dtype], backward_rows(cores, &views, rows, cols));
    Ok(())
}

fn backward_rows<R: Real>(cores: &Cores, views: &Backward<View<'_>>, rows: usize, cols: usize) {
    // Blocks of rows whose gradients of the weight are summed apart, then in order: cut by the shape alone.
    let each = rows.div_ceil(32).max(16);
    let blocks = rows.div_ceil(each);
    let count = R::of(cols as f64);
    cores.scratch((blocks + 1) * cols, |scratch: &mut [R]| {
        let (weight, sums) = scratch.split_at_mut(cols);
        R::load(&views.weight, 0, weight);
        let weight = &*weight;
        let sums = SumsOfBlocks::new(sums, cols);
        cores.for_each(
            blocks,
            rows * cols,
            #[inline(always)]
            |block| {
                sums.with(
                    block,
                    #[inline(always)]
                    |dweight| {
                        dweight.fill(R::ZERO);
                        cores.scratch(
                            2 * cols,
                            #[inline(always)]
                            |scratch: &mut [R]| {
                                let (x, g) = scratch.split_at_mut(cols);
                                for row in block * each..rows.min((block + 1) * each) {
                                    R::load(&views.src, row * cols, x);
                                    R::load(&views.grad, row * cols, g);
                                    let mut rstd = [R::ZERO];
                                    R::load(&views.rstd, row, &mut rstd);
                                    let [rstd] = rstd;
                                    for (x, (dw, (g, &w))) in
                                        x.iter_mut().zip(dweight.iter_mut().zip(g.iter_mut().zip(weight)))
                                    {
                                        *x *= rstd;
                                        *dw += *g * *x;
                                        *g *= w;
                                    }
                                    let both = sum_by(
                                        cols,
                                        #[inline(always)]
                                        |i| g[i] * x[i],
                                    ) / count;
                                    for (g, &x) in g.iter_mut().zip(x.iter()) {
                                        *g = rstd * (*g - x * both);
                                    }
                                    R::store(&views.dsrc, row * cols, g);
                                }
                            },
                        );
                    },
                );
            },
        );
        R::store(&views.dweight, 0, sums.total(blocks));
    });
}
