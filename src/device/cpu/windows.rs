//! Strided access to a line of elements, for windows that may extend beyond it.

use crate::cpu::real::Real;

/// How many positions from `start` in steps of `stride` lie before 0, and the next position.
pub(crate) const fn lead(start: isize, stride: usize) -> (usize, usize) {
    if start >= 0 {
        return (0, start.unsigned_abs());
    }
    let before = start.unsigned_abs();
    let skip = before.div_ceil(stride);
    (skip, skip * stride - before)
}

/// Copies every `stride`-th element of `from`, as far as both slices reach.
#[inline(always)]
pub(crate) fn every<R: Real>(stride: usize, from: &[R], to: &mut [R]) {
    #[inline(always)]
    fn pick<R: Real, const STRIDE: usize>(from: &[R], to: &mut [R]) {
        // All chunks except the last are whole, so that this vectorises.
        let (whole, rest) = from.as_chunks::<STRIDE>();
        to.iter_mut().zip(whole).for_each(|(to, from)| *to = from[0]);
        if let (Some(to), Some(&from)) = (to.get_mut(whole.len()), rest.first()) {
            *to = from;
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

/// Calls `put` with every `stride`-th element of `to`, starting with the first, and the elements of `from`, as far as
/// both slices reach.
#[inline(always)]
pub(crate) fn onto_every<R: Real>(stride: usize, from: &[R], to: &mut [R], put: impl Fn(&mut R, R)) {
    #[inline(always)]
    fn strew<R: Real, const STRIDE: usize>(from: &[R], to: &mut [R], put: impl Fn(&mut R, R)) {
        let (whole, rest) = to.as_chunks_mut::<STRIDE>();
        let last = from.get(whole.len());
        whole.iter_mut().zip(from).for_each(|(to, &from)| put(&mut to[0], from));
        if let (Some(to), Some(&from)) = (rest.first_mut(), last) {
            put(to, from);
        }
    }
    match stride {
        1 => to.iter_mut().zip(from).for_each(|(to, &from)| put(to, from)),
        2 => strew::<R, 2>(from, to, put),
        _ => to.iter_mut().step_by(stride).zip(from).for_each(|(to, &from)| put(to, from)),
    }
}
