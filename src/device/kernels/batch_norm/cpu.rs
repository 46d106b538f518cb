//! Batch normalisation: y = (x − mean)·rstd·weight + bias with rstd = 1/√(variance + eps), all per channel.
//!
//! Channels are processed in blocks, whose elements form one line for each image: lines are summed element by element
//! over images, and within a channel at the end.

use crate::cpu::channels::{ChannelBlock, check, for_blocks};
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::map::results;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements};
use crate::{ChannelShape, Operand};

/// The operands of [`BatchNorm::Forward`](crate::kernels::BatchNorm::Forward).
pub(super) struct BatchNormForward<T> {
    pub(super) src: T,
    pub(super) weight: T,
    pub(super) bias: T,
    pub(super) dst: T,
    pub(super) mean: T,
    pub(super) rstd: T,
    pub(super) running_mean: T,
    pub(super) running_var: T,
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &BatchNormForward<Operand>,
    shape: ChannelShape,
    parameters: [f32; 2],
) -> KernelResult {
    let views = forward_views(&mut access, operands, &shape)?;
    let BatchNormForward { src, weight, bias, dst, .. } = operands;
    let dtypes = [src.dtype, weight.dtype, bias.dtype, dst.dtype];
    real!(dtypes, normalise(cores, &views, None, shape, parameters.map(f64::from)));
    Ok(())
}

/// The operations fused after a normalisation: the sum with a residual, and a factor on elements that are not positive.
pub(super) struct Tail<T> {
    pub(super) residual: Option<T>,
    pub(super) slope: f32,
}

impl Tail<View<'_>> {
    /// Applies them to a line of normalised elements from `start` on.
    #[inline(always)]
    fn follow<R: Real>(&self, y: &mut [R], start: usize, buffer: &mut [R]) {
        if let Some(residual) = &self.residual {
            let added = elements(residual, start, buffer);
            y.iter_mut().zip(added).for_each(|(y, &x)| *y += x);
        }
        y.iter_mut().for_each(|y| *y = pass(*y, *y, self.slope));
    }
}

/// `x`, or `slope · x` if `sign` is not positive. NaN stays NaN.
#[inline(always)]
fn pass<R: Real>(x: R, sign: R, slope: f32) -> R {
    if sign <= R::ZERO {
        // This also turns an infinity into zero.
        if slope == 0.0 { R::ZERO } else { x * R::of(f64::from(slope)) }
    } else {
        x
    }
}

pub(super) fn activated(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &BatchNormForward<Operand>,
    tail: &Tail<Operand>,
    shape: ChannelShape,
    parameters: [f32; 2],
) -> KernelResult {
    let added: Vec<&Operand> = tail.residual.iter().collect();
    check(&shape, &added, &[])?;
    let views = forward_views(&mut access, operands, &shape)?;
    let residual = tail.residual.as_ref().map(|residual| access.read(residual)).transpose()?;
    let tail = Tail { residual, slope: tail.slope };
    let BatchNormForward { src, weight, bias, dst, .. } = operands;
    let dtypes = [src.dtype, weight.dtype, bias.dtype, dst.dtype];
    real!(dtypes, normalise(cores, &views, Some(&tail), shape, parameters.map(f64::from)));
    Ok(())
}

fn forward_views<'a>(
    access: &mut Access<'a>,
    operands: &BatchNormForward<Operand>,
    shape: &ChannelShape,
) -> KernelResult<BatchNormForward<View<'a>>> {
    let BatchNormForward { src, weight, bias, dst, mean, rstd, running_mean, running_var } = operands;
    check(shape, &[src, dst], &[weight, bias, mean, rstd, running_mean, running_var])?;
    require(shape.per_channel() > 1, || format!("{shape:?} has no variance: more than one element is needed"))?;
    Ok(BatchNormForward {
        src: access.read(src)?,
        weight: access.read(weight)?,
        bias: access.read(bias)?,
        dst: access.write(dst)?,
        mean: access.write(mean)?,
        rstd: access.write(rstd)?,
        running_mean: access.write(running_mean)?,
        running_var: access.write(running_var)?,
    })
}

fn normalise<R: Real>(
    cores: &Cores,
    views: &BatchNormForward<View<'_>>,
    tail: Option<&Tail<View<'_>>>,
    shape: ChannelShape,
    [eps, momentum]: [f64; 2],
) {
    let momentum = R::of(momentum);
    for_blocks(
        cores,
        shape,
        0.6,
        #[inline(always)]
        |block, [sums, centre, buffer, out]: [&mut [R]; 4], [mean, variance, scale, shift]: [&mut [R]; 4]| {
            let (first, count) = (block.first, block.count::<R>());
            sums.fill(R::ZERO);
            for image in 0..shape.batch {
                let x = elements(&views.src, block.line(image), &mut *buffer);
                sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum += x);
            }
            block.fold(sums, mean);
            mean.iter_mut().for_each(|mean| *mean /= count);
            block.unfold(mean, centre);
            sums.fill(R::ZERO);
            for image in 0..shape.batch {
                let x = elements(&views.src, block.line(image), &mut *buffer);
                for (sum, (&x, &mean)) in sums.iter_mut().zip(x.iter().zip(&*centre)) {
                    *sum += (x - mean) * (x - mean);
                }
            }
            block.fold(sums, variance);
            for squares in &mut *variance {
                *squares /= count;
            }
            R::load(&views.running_mean, first, scale);
            scale.iter_mut().zip(&*mean).for_each(|(r, &x)| *r = (R::ONE - momentum) * *r + momentum * x);
            R::store(&views.running_mean, first, scale);
            R::load(&views.running_var, first, scale);
            let of_sample = momentum * (count / (count - R::ONE));
            scale.iter_mut().zip(&*variance).for_each(|(r, &x)| *r = (R::ONE - momentum) * *r + of_sample * x);
            R::store(&views.running_var, first, scale);
            variance.iter_mut().for_each(|x| *x = R::ONE / (*x + R::of(eps)).sqrt());
            R::store(&views.mean, first, mean);
            R::store(&views.rstd, first, variance);
            R::load(&views.weight, first, scale);
            scale.iter_mut().zip(&*variance).for_each(|(scale, &rstd)| *scale *= rstd);
            R::load(&views.bias, first, shift);
            apply(&block, [&views.src, &views.dst], tail, [mean, scale, shift], [sums, centre, buffer, out]);
        },
    );
}

/// Stores (x − mean)·scale + shift, after applying the tail if there is one; lines are scratch.
#[inline(always)]
fn apply<R: Real>(
    block: &ChannelBlock,
    [src, dst]: [&View<'_>; 2],
    tail: Option<&Tail<View<'_>>>,
    [mean, scale, shift]: [&mut [R]; 3],
    [scales, shifts, buffer, out]: [&mut [R]; 4],
) {
    block.unfold(scale, scales);
    // As one product and sum: shift − mean·scale is rounded once more, but no more than the product is.
    for ((shift, &mean), &scale) in shift.iter_mut().zip(&*mean).zip(&*scale) {
        *shift -= mean * scale;
    }
    block.unfold(shift, shifts);
    for image in 0..block.shape.batch {
        let start = block.line(image);
        let x = elements(src, start, &mut *buffer);
        let (y, stored) = results(dst, [src], start, &mut *out);
        for ((y, &x), (&scale, &shift)) in y.iter_mut().zip(x).zip(scales.iter().zip(&*shifts)) {
            *y = x * scale + shift;
        }
        if let Some(tail) = tail {
            tail.follow(y, start, &mut *buffer);
        }
        if !stored {
            R::store(dst, start, y);
        }
    }
}

/// The operands of [`BatchNorm::Inference`](crate::kernels::BatchNorm::Inference).
pub(super) struct Inference<T> {
    pub(super) src: T,
    pub(super) weight: T,
    pub(super) bias: T,
    pub(super) running_mean: T,
    pub(super) running_var: T,
    pub(super) dst: T,
}

pub(super) fn inference(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &Inference<Operand>,
    shape: ChannelShape,
    eps: f32,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, views: &Inference<View<'_>>, shape: ChannelShape, eps: R) {
        for_blocks(
            cores,
            shape,
            0.4,
            #[inline(always)]
            |block, lines: [&mut [R]; 4], [mean, rstd, scale, shift]: [&mut [R]; 4]| {
                R::load(&views.running_mean, block.first, mean);
                R::load(&views.running_var, block.first, rstd);
                R::load(&views.weight, block.first, scale);
                R::load(&views.bias, block.first, shift);
                scale.iter_mut().zip(&*rstd).for_each(|(scale, &variance)| *scale /= (variance + eps).sqrt());
                apply(&block, [&views.src, &views.dst], None, [mean, scale, shift], lines);
            },
        );
    }
    let Inference { src, weight, bias, running_mean, running_var, dst } = operands;
    check(&shape, &[src, dst], &[weight, bias, running_mean, running_var])?;
    if shape.is_empty() {
        return Ok(());
    }
    let views = Inference {
        src: access.read(src)?,
        weight: access.read(weight)?,
        bias: access.read(bias)?,
        running_mean: access.read(running_mean)?,
        running_var: access.read(running_var)?,
        dst: access.write(dst)?,
    };
    let dtypes = [src.dtype, weight.dtype, bias.dtype, dst.dtype];
    if dtypes.into_iter().any(crate::cpu::dispatch::needs_f64) {
        go::<f64>(cores, &views, shape, f64::from(eps));
    } else {
        go::<f32>(cores, &views, shape, eps);
    }
    Ok(())
}

/// The statistics that a forward pass used.
#[derive(Clone, Copy)]
pub(super) enum Statistics {
    /// The batch's own statistics, which depend on the source.
    OfBatch,
    /// Running statistics, which are constants, with variances instead of reciprocal deviations.
    Running { eps: f32 },
}

/// The operands of [`BatchNorm::Backward`](crate::kernels::BatchNorm::Backward) and of
/// [`BatchNorm::InferenceBackward`](crate::kernels::BatchNorm::InferenceBackward).
pub(super) struct BatchNormBackward<T> {
    pub(super) grad: T,
    pub(super) src: T,
    pub(super) mean: T,
    pub(super) rstd: T,
    pub(super) weight: T,
    pub(super) dsrc: T,
    pub(super) dweight: T,
    pub(super) dbias: T,
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &BatchNormBackward<Operand>,
    shape: ChannelShape,
    statistics: Statistics,
) -> KernelResult {
    let views = backward_views(&mut access, operands, &shape)?;
    let BatchNormBackward { grad, src, weight, dsrc, dweight, .. } = operands;
    let dtypes = [grad.dtype, src.dtype, weight.dtype, dsrc.dtype, dweight.dtype];
    real!(dtypes, gradients(cores, &views, shape, statistics));
    Ok(())
}

fn backward_views<'a>(
    access: &mut Access<'a>,
    operands: &BatchNormBackward<Operand>,
    shape: &ChannelShape,
) -> KernelResult<BatchNormBackward<View<'a>>> {
    let BatchNormBackward { grad, src, mean, rstd, weight, dsrc, dweight, dbias } = operands;
    check(shape, &[grad, src, dsrc], &[mean, rstd, weight, dweight, dbias])?;
    require(!shape.is_empty(), || format!("{shape:?} has no elements"))?;
    Ok(BatchNormBackward {
        grad: access.read(grad)?,
        src: access.read(src)?,
        mean: access.read(mean)?,
        rstd: access.read(rstd)?,
        weight: access.read(weight)?,
        dsrc: access.write(dsrc)?,
        dweight: access.write(dweight)?,
        dbias: access.write(dbias)?,
    })
}

/// With x̂ = (x − mean)·rstd: dbias = Σ g, dweight = Σ g·x̂, dx = weight·rstd·(g − dbias/n − x̂·dweight/n); with
/// constant statistics, dx = weight·rstd·g.
fn gradients<R: Real>(cores: &Cores, views: &BatchNormBackward<View<'_>>, shape: ChannelShape, statistics: Statistics) {
    for_blocks(
        cores,
        shape,
        0.8,
        #[inline(always)]
        |block,
         [centre, of_grad, of_both, left, right, out]: [&mut [R]; 6],
         [mean, rstd, weight, dweight, dbias]: [&mut [R]; 5]| {
            let (first, count) = (block.first, block.count::<R>());
            R::load(&views.mean, first, mean);
            R::load(&views.rstd, first, rstd);
            if let Statistics::Running { eps } = statistics {
                rstd.iter_mut().for_each(|x| *x = R::ONE / (*x + R::of(f64::from(eps))).sqrt());
            }
            R::load(&views.weight, first, weight);
            block.unfold(mean, centre);
            of_grad.fill(R::ZERO);
            of_both.fill(R::ZERO);
            for image in 0..shape.batch {
                let g = elements(&views.grad, block.line(image), &mut *left);
                let x = elements(&views.src, block.line(image), &mut *right);
                let sums = of_grad.iter_mut().zip(of_both.iter_mut());
                for ((of_grad, of_both), ((&g, &x), &mean)) in sums.zip(g.iter().zip(x).zip(&*centre)) {
                    *of_grad += g;
                    *of_both += g * (x - mean);
                }
            }
            block.fold(of_grad, dbias);
            block.fold(of_both, dweight);
            dweight.iter_mut().zip(&*rstd).for_each(|(dw, &rstd)| *dw *= rstd);
            R::store(&views.dweight, first, dweight);
            R::store(&views.dbias, first, dbias);
            // dx = scale·(g − level − (x − mean)·slope)
            for ((weight, dw), (db, &rstd)) in weight.iter_mut().zip(&mut *dweight).zip(dbias.iter_mut().zip(&*rstd)) {
                *weight *= rstd;
                *dw *= rstd / count;
                *db /= count;
            }
            if let Statistics::Running { .. } = statistics {
                dweight.fill(R::ZERO);
                dbias.fill(R::ZERO);
            }
            let (slopes, levels) = (of_both, of_grad);
            block.unfold(dweight, slopes);
            block.unfold(dbias, levels);
            for image in 0..shape.batch {
                let start = block.line(image);
                let g = elements(&views.grad, start, &mut *left);
                let x = elements(&views.src, start, &mut *right);
                let (dx, stored) = results(&views.dsrc, [&views.grad, &views.src], start, &mut *out);
                let lines = levels.iter().zip(centre.iter().zip(&*slopes));
                for ((dx, (&g, &x)), (&level, (&mean, &slope))) in dx.iter_mut().zip(g.iter().zip(x)).zip(lines) {
                    *dx = g - level - (x - mean) * slope;
                }
                for (dx, &scale) in dx.chunks_exact_mut(shape.area).zip(&*weight) {
                    dx.iter_mut().for_each(|dx| *dx *= scale);
                }
                if !stored {
                    R::store(&views.dsrc, start, dx);
                }
            }
        },
    );
}

/// The operands that tell which elements passed the activation in the forward pass.
pub(super) struct ActivationMask<T> {
    pub(super) bias: T,
    /// The output, and the destination of the sum's gradient.
    pub(super) residual: Option<[T; 2]>,
    pub(super) slope: f32,
}

pub(super) fn activated_backward(
    cores: &Cores,
    mut access: Access<'_>,
    operands: &BatchNormBackward<Operand>,
    gate: &ActivationMask<Operand>,
    shape: ChannelShape,
) -> KernelResult {
    let added: Vec<&Operand> = gate.residual.iter().flatten().collect();
    check(&shape, &added, &[&gate.bias])?;
    let views = backward_views(&mut access, operands, &shape)?;
    let residual = match &gate.residual {
        Some([output, dresidual]) => Some([access.read(output)?, access.write(dresidual)?]),
        None => None,
    };
    let gate = ActivationMask { bias: access.read(&gate.bias)?, residual, slope: gate.slope };
    let BatchNormBackward { grad, src, weight, dsrc, dweight, .. } = operands;
    let dtypes = [grad.dtype, src.dtype, weight.dtype, dsrc.dtype, dweight.dtype];
    real!(dtypes, gated_gradients(cores, &views, &gate, shape));
    Ok(())
}

/// Like [`gradients`], but with g multiplied by the activation's derivative first.
fn gated_gradients<R: Real>(
    cores: &Cores,
    views: &BatchNormBackward<View<'_>>,
    gate: &ActivationMask<View<'_>>,
    shape: ChannelShape,
) {
    for_blocks(
        cores,
        shape,
        1.0,
        #[inline(always)]
        |block,
         [centre, scales, shifts, left, right, gated, sums, products, out]: [&mut [R]; 9],
         [mean, rstd, scale, shift, dweight, dbias]: [&mut [R]; 6]| {
            let (first, count) = (block.first, block.count::<R>());
            R::load(&views.mean, first, mean);
            R::load(&views.rstd, first, rstd);
            R::load(&views.weight, first, scale);
            R::load(&gate.bias, first, shift);
            scale.iter_mut().zip(&*rstd).for_each(|(scale, &rstd)| *scale *= rstd);
            for ((shift, &mean), &scale) in shift.iter_mut().zip(&*mean).zip(&*scale) {
                *shift -= mean * scale;
            }
            block.unfold(mean, centre);
            block.unfold(scale, scales);
            block.unfold(shift, shifts);
            sums.fill(R::ZERO);
            products.fill(R::ZERO);
            for image in 0..shape.batch {
                let start = block.line(image);
                gated.copy_from_slice(elements(&views.grad, start, &mut *left));
                if let Some([output, dresidual]) = &gate.residual {
                    let y = elements(output, start, &mut *right);
                    gated.iter_mut().zip(y).for_each(|(g, &y)| *g = pass(*g, y, gate.slope));
                    R::store(dresidual, start, gated);
                }
                let x = elements(&views.src, start, &mut *right);
                if gate.residual.is_none() {
                    for ((g, &x), (&scale, &shift)) in gated.iter_mut().zip(x).zip(scales.iter().zip(&*shifts)) {
                        *g = pass(*g, x * scale + shift, gate.slope);
                    }
                }
                let to = sums.iter_mut().zip(products.iter_mut());
                for ((sum, product), ((&g, &x), &mean)) in to.zip(gated.iter().zip(x).zip(&*centre)) {
                    *sum += g;
                    *product += g * (x - mean);
                }
            }
            block.fold(sums, dbias);
            block.fold(products, dweight);
            dweight.iter_mut().zip(&*rstd).for_each(|(dw, &rstd)| *dw *= rstd);
            R::store(&views.dweight, first, dweight);
            R::store(&views.dbias, first, dbias);
            for ((dw, db), &rstd) in dweight.iter_mut().zip(dbias.iter_mut()).zip(&*rstd) {
                *dw *= rstd / count;
                *db /= count;
            }
            let (levels, slopes) = (sums, products);
            block.unfold(dbias, levels);
            block.unfold(dweight, slopes);
            let behind = gate.residual.as_ref().map_or(&views.grad, |[_, dresidual]| dresidual);
            for image in 0..shape.batch {
                let start = block.line(image);
                gated.copy_from_slice(elements(behind, start, &mut *left));
                let x = elements(&views.src, start, &mut *right);
                if gate.residual.is_none() {
                    for ((g, &x), (&scale, &shift)) in gated.iter_mut().zip(x).zip(scales.iter().zip(&*shifts)) {
                        *g = pass(*g, x * scale + shift, gate.slope);
                    }
                }
                let lines = levels.iter().zip(&*slopes).zip(centre.iter().zip(&*scales));
                for ((dx, (&g, &x)), ((&level, &slope), (&mean, &scale))) in
                    out.iter_mut().zip(gated.iter().zip(x)).zip(lines)
                {
                    *dx = (g - level - (x - mean) * slope) * scale;
                }
                R::store(&views.dsrc, start, out);
            }
        },
    );
}
