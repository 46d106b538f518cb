//! Where windows meet a line of elements.

use crate::device::cpu::real::Real;

/// How many elements `stride` apart from `start` on lie before 0, and where the next one is.
pub(super) const fn lead(start: isize, stride: usize) -> (usize, usize) {
    if start >= 0 {
        return (0, start.unsigned_abs());
    }
    let before = start.unsigned_abs();
    let skip = before.div_ceil(stride);
    (skip, skip * stride - before)
}

/// Every `stride`-th element of `from`, as many as there are and fit.
#[inline(always)]
pub(super) fn every<R: Real>(stride: usize, from: &[R], to: &mut [R]) {
    #[inline(always)]
    fn pick<R: Real, const STRIDE: usize>(from: &[R], to: &mut [R]) {
        for (to, from) in to.iter_mut().zip(from.chunks(STRIDE)) {
            *to = from[0];
        }
    }
    match stride {
        1 => {
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
        }
        2 => pick::<R, 2>(from, to),
        4 => pick::<R, 4>(from, to),
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &from)| *to = from),
    }
}
