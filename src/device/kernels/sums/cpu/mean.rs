//! Means over the middle dimension of three.

use crate::Operand;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::map::cast;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::{Real, elements, sum_by};
use crate::cpu::rows::for_rows;

/// Terms in one partial sum: errors grow with the number of partial sums.
const BLOCK: usize = 64;

fn check(whole: &Operand, means: &Operand, [outer, middle, inner]: [usize; 3]) -> KernelResult {
    let fits = [outer, middle, inner].iter().try_fold(1_usize, |n, &x| n.checked_mul(x)) == Some(whole.len)
        && outer * inner == means.len;
    require(fits && whole.len > 0, || {
        format!("{outer} × {middle} × {inner} does not fit {} elements and {} means", whole.len, means.len)
    })
}

pub(in crate::kernels::sums) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    dims: [usize; 3],
) -> KernelResult {
    check(&src, &dst, dims)?;
    if dims[1] == 1 {
        return cast(cores, access, src, dst);
    }
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], means(cores, from, to, dims));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
fn means<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, [outer, middle, inner]: [usize; 3]) {
    let count = R::of(middle as f64);
    if inner == 1 {
        return for_rows(
            cores,
            [outer, middle],
            0.3,
            middle,
            #[inline(always)]
            |row, scratch: &mut [R]| {
                let x = elements(&src, row * middle, scratch);
                let sum = sum_by(
                    middle,
                    #[inline(always)]
                    |i| x[i],
                );
                R::store(&dst, row, &[sum / count]);
            },
        );
    }
    for_rows(
        cores,
        [outer, middle * inner],
        0.3,
        3 * inner,
        #[inline(always)]
        |row, scratch: &mut [R]| {
            let (total, rest) = scratch.split_at_mut(inner);
            let (part, buffer) = rest.split_at_mut(inner);
            total.fill(R::ZERO);
            for first in (0..middle).step_by(BLOCK) {
                part.fill(R::ZERO);
                for m in first..middle.min(first + BLOCK) {
                    let x = elements(&src, (row * middle + m) * inner, &mut *buffer);
                    part.iter_mut().zip(x).for_each(|(sum, &x)| *sum += x);
                }
                total.iter_mut().zip(&*part).for_each(|(sum, &x)| *sum += x);
            }
            total.iter_mut().for_each(|sum| *sum /= count);
            R::store(&dst, row * inner, total);
        },
    );
}

pub(in crate::kernels::sums) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    grad: Operand,
    dst: Operand,
    dims: [usize; 3],
) -> KernelResult {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
    fn go<R: Real>(cores: &Cores, grad: View<'_>, dst: View<'_>, [outer, middle, inner]: [usize; 3]) {
        let count = R::of(middle as f64);
        for_rows(
            cores,
            [outer, middle * inner],
            0.3,
            inner + middle * inner,
            #[inline(always)]
            |row, scratch: &mut [R]| {
                let (share, spread) = scratch.split_at_mut(inner);
                R::load(&grad, row * inner, share);
                share.iter_mut().for_each(|share| *share /= count);
                if inner == 1 {
                    spread.fill(share[0]);
                } else {
                    spread.chunks_exact_mut(inner).for_each(|line| line.copy_from_slice(share));
                }
                R::store(&dst, row * middle * inner, spread);
            },
        );
    }
    check(&dst, &grad, dims)?;
    if dims[1] == 1 {
        return cast(cores, access, grad, dst);
    }
    let (from, to) = (access.read(&grad)?, access.write(&dst)?);
    real!([grad.dtype, dst.dtype], go(cores, from, to, dims));
    Ok(())
}
