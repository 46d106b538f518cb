//! Layer normalisation: y = (x − mean)·rstd·weight + bias with rstd = 1/√(variance + eps), variance over the
//! population, all per row.

use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::partial::SumsOfBlocks;
use crate::cpu::real::{Real, sum_by};
use crate::cpu::rows::{for_rows, rows_of};

/// The operands of [`LayerNorm::Add`](crate::kernels::LayerNorm::Add).
pub(super) struct LayerNormForward<T> {
    pub(super) src: T,
    /// The addend, and the destination of the sum.
    pub(super) add: Option<(T, T)>,
    pub(super) weight: T,
    pub(super) bias: T,
    pub(super) dst: T,
    pub(super) copy: Option<T>,
    pub(super) mean: T,
    pub(super) rstd: T,
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &LayerNormForward<Operand>,
    cols: usize,
    eps: f32,
) -> KernelResult {
    let &LayerNormForward { src, add, weight, bias, dst, copy, mean, rstd } = operands;
    let rows = rows_of(&src, cols)?;
    let fits =
        [Some(dst), copy, add.map(|(add, _)| add), add.map(|(_, sum)| sum)].iter().flatten().all(|x| x.len == src.len)
            && [weight, bias].iter().all(|x| x.len == cols || x.len == 0)
            && mean.len == rows
            && rstd.len == rows;
    require(fits, || format!("operands don't fit {rows} rows of {cols}"))?;
    let views = LayerNormForward {
        src: access.read(&src)?,
        add: add.map(|(add, sum)| Ok((access.read(&add)?, access.write(&sum)?))).transpose()?,
        weight: access.read(&weight)?,
        bias: access.read(&bias)?,
        dst: access.write(&dst)?,
        copy: copy.map(|copy| access.write(&copy)).transpose()?,
        mean: access.write(&mean)?,
        rstd: access.write(&rstd)?,
    };
    real!([src.dtype, weight.dtype, bias.dtype, dst.dtype], forward_rows(cores, &views, rows, cols, eps));
    Ok(())
}

/// Loads weights or biases; if a norm has none, all equal `otherwise`.
fn load_or<R: Real>(view: &View<'_>, otherwise: R, values: &mut [R]) {
    if view.len() == 0 {
        values.fill(otherwise);
    } else {
        R::load(view, 0, values);
    }
}

fn forward_rows<R: Real>(cores: &Cores, views: &LayerNormForward<View<'_>>, rows: usize, cols: usize, eps: f32) {
    let count = R::of(cols as f64);
    cores.scratch(2 * cols, |affine: &mut [R]| {
        let (weight, bias) = affine.split_at_mut(cols);
        load_or(&views.weight, R::ONE, weight);
        load_or(&views.bias, R::ZERO, bias);
        let (weight, bias) = (&*weight, &*bias);
        for_rows(
            cores,
            [rows, cols],
            0.5,
            2 * cols,
            #[inline(always)]
            |row, scratch: &mut [R]| {
                let (x, added) = scratch.split_at_mut(cols);
                R::load(&views.src, row * cols, x);
                if let Some((add, sum)) = &views.add {
                    R::load(add, row * cols, added);
                    x.iter_mut().zip(added.iter()).for_each(|(x, &added)| *x += added);
                    R::store(sum, row * cols, x);
                    // The stored (rounded) sum is normalised.
                    R::load(sum, row * cols, x);
                }
                let x = &mut *x;
                let mean = sum_by(
                    cols,
                    #[inline(always)]
                    |i| x[i],
                ) / count;
                let variance = sum_by(
                    cols,
                    #[inline(always)]
                    |i| (x[i] - mean) * (x[i] - mean),
                ) / count;
                let rstd = R::ONE / (variance + R::of(f64::from(eps))).sqrt();
                for ((x, &w), &b) in x.iter_mut().zip(weight).zip(bias) {
                    *x = (*x - mean) * rstd * w + b;
                }
                R::store(&views.dst, row * cols, x);
                if let Some(copy) = &views.copy {
                    R::store(copy, row * cols, x);
                }
                R::store(&views.mean, row, &[mean]);
                R::store(&views.rstd, row, &[rstd]);
            },
        );
    });
}

/// Operands that only [`LayerNorm::AddBackward`](crate::kernels::LayerNorm::AddBackward) has.
#[derive(Clone, Copy)]
pub(super) struct Optional<T> {
    pub(super) second: Option<T>,
    pub(super) residual: Option<T>,
    pub(super) copy: Option<T>,
}

/// The operands of [`LayerNorm::AddBackward`](crate::kernels::LayerNorm::AddBackward).
pub(super) struct LayerNormBackward<T> {
    pub(super) grad: T,
    pub(super) src: T,
    pub(super) mean: T,
    pub(super) rstd: T,
    pub(super) weight: T,
    pub(super) dsrc: T,
    pub(super) dweight: T,
    pub(super) dbias: T,
    pub(super) optional: Optional<T>,
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &LayerNormBackward<Operand>,
    cols: usize,
) -> KernelResult {
    let &LayerNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, optional } = operands;
    let Optional { second, residual, copy } = optional;
    let rows = rows_of(&src, cols)?;
    let fits = [second, residual, copy].iter().flatten().all(|x| x.len == src.len)
        && grad.len == src.len
        && dsrc.len == src.len
        && [mean.len, rstd.len] == [rows; 2]
        && [weight, dweight, dbias].iter().all(|x| x.len == cols || x.len == 0);
    require(fits, || format!("operands don't fit {rows} rows of {cols}"))?;
    let views = LayerNormBackward {
        grad: access.read(&grad)?,
        src: access.read(&src)?,
        mean: access.read(&mean)?,
        rstd: access.read(&rstd)?,
        weight: access.read(&weight)?,
        dsrc: access.write(&dsrc)?,
        dweight: access.write(&dweight)?,
        dbias: access.write(&dbias)?,
        optional: Optional {
            second: second.map(|second| access.read(&second)).transpose()?,
            residual: residual.map(|residual| access.read(&residual)).transpose()?,
            copy: copy.map(|copy| access.write(&copy)).transpose()?,
        },
    };
    real!([grad.dtype, src.dtype, weight.dtype, dsrc.dtype, dweight.dtype], backward_rows(cores, &views, rows, cols));
    Ok(())
}

/// Blocks of rows whose weight and bias gradients are summed separately, then in order. Only the shape decides them.
fn row_blocks(rows: usize) -> (usize, usize) {
    let each = rows.div_ceil(32).max(16);
    (rows.div_ceil(each), each)
}

fn backward_rows<R: Real>(cores: &Cores, views: &LayerNormBackward<View<'_>>, rows: usize, cols: usize) {
    let count = R::of(cols as f64);
    let (blocks, each) = row_blocks(rows);
    cores.scratch((2 * blocks + 1) * cols, |scratch: &mut [R]| {
        let (weight, sums) = scratch.split_at_mut(cols);
        load_or(&views.weight, R::ONE, weight);
        let weight = &*weight;
        let sums = SumsOfBlocks::new(sums, 2 * cols);
        cores.for_each(
            blocks,
            rows * cols,
            #[inline(always)]
            |block| {
                sums.with(
                    block,
                    #[inline(always)]
                    |sums| {
                        sums.fill(R::ZERO);
                        let (dweight, dbias) = sums.split_at_mut(cols);
                        cores.scratch(
                            3 * cols,
                            #[inline(always)]
                            |scratch: &mut [R]| {
                                let (x, rest) = scratch.split_at_mut(cols);
                                let (g, other) = rest.split_at_mut(cols);
                                for row in block * each..rows.min((block + 1) * each) {
                                    R::load(&views.src, row * cols, x);
                                    R::load(&views.grad, row * cols, g);
                                    if let Some(second) = &views.optional.second {
                                        R::load(second, row * cols, other);
                                        g.iter_mut().zip(other.iter()).for_each(|(g, &other)| *g += other);
                                    }
                                    let mut statistics = [R::ZERO; 2];
                                    R::load(&views.mean, row, &mut statistics[..1]);
                                    R::load(&views.rstd, row, &mut statistics[1..]);
                                    let [mean, rstd] = statistics;
                                    for (x, (dw, &g)) in x.iter_mut().zip(dweight.iter_mut().zip(g.iter())) {
                                        *x = (*x - mean) * rstd;
                                        *dw += g * *x;
                                    }
                                    for (g, (db, &w)) in g.iter_mut().zip(dbias.iter_mut().zip(weight)) {
                                        *db += *g;
                                        *g *= w;
                                    }
                                    let of_grad = sum_by(
                                        cols,
                                        #[inline(always)]
                                        |i| g[i],
                                    ) / count;
                                    let of_both = sum_by(
                                        cols,
                                        #[inline(always)]
                                        |i| g[i] * x[i],
                                    ) / count;
                                    for (g, &x) in g.iter_mut().zip(x.iter()) {
                                        *g = rstd * (*g - of_grad - x * of_both);
                                    }
                                    if let Some(residual) = &views.optional.residual {
                                        R::load(residual, row * cols, other);
                                        g.iter_mut().zip(other.iter()).for_each(|(g, &other)| *g += other);
                                    }
                                    R::store(&views.dsrc, row * cols, g);
                                    if let Some(copy) = &views.optional.copy {
                                        R::store(copy, row * cols, g);
                                    }
                                }
                            },
                        );
                    },
                );
            },
        );
        let total = sums.total(blocks);
        for (gradient, total) in [&views.dweight, &views.dbias].into_iter().zip(total.chunks_exact(cols.max(1))) {
            if gradient.len() > 0 {
                R::store(gradient, 0, total);
            }
        }
    });
}
