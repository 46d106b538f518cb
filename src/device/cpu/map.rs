//! Element-wise functions. They load a chunk of each operand before they store one, so that an output may be the same
//! operand as an input.

use super::cores::Cores;
use super::dispatch::real;
use super::operand::{Access, KernelResult, View, require};
use super::real::{Real, elements};
use super::tasks::{TASK, estimate};
use crate::Operand;

/// Elements that are converted and computed at once, few enough to stay in the first-level cache.
pub(crate) const CHUNK: usize = 512;

pub(crate) fn same_length(a: &Operand, b: &Operand) -> KernelResult {
    require(a.len == b.len, || format!("operands have {} and {} elements, and must have equally many", a.len, b.len))
}

/// Calls `body` with start, length and buffers of each chunk of `n` elements, in parallel if that is worth it at
/// `nanos` per element.
#[inline(always)]
pub(crate) fn chunks<R: Real, const N: usize>(
    cores: &Cores,
    n: usize,
    nanos: f64,
    body: impl Fn(usize, usize, &mut [[R; CHUNK]; N]) + Sync,
) {
    cores.for_each(
        n.div_ceil(TASK),
        estimate(n, nanos),
        #[inline(always)]
        |task| {
            let mut buffers = [[R::ZERO; CHUNK]; N];
            let end = n.min((task + 1) * TASK);
            let mut start = task * TASK;
            while start < end {
                let len = CHUNK.min(end - start);
                body(start, len, &mut buffers);
                start += len;
            }
        },
    );
}

/// The destination of a chunk's results: `dst` itself if its elements are stored as `R` and none of `inputs` reads from
/// it, otherwise `buffer`, which [`Real::store`] must then convert.
#[inline(always)]
pub(crate) fn results<'a, R: Real, const N: usize>(
    dst: &'a View<'_>,
    inputs: [&View<'_>; N],
    start: usize,
    buffer: &'a mut [R],
) -> (&'a mut [R], bool) {
    if dst.dtype() == R::DTYPE && !inputs.iter().any(|input| input.is(dst)) {
        (dst.slice_mut(start, buffer.len()), true)
    } else {
        (buffer, false)
    }
}

/// `dst[i] = f(src[i])`, at `nanos` per element.
///
/// `f` is copied for each chunk, so that its owned values are in registers and loops over them vectorise. The compiler
/// must assume that borrowed values might lie where results are written.
#[inline(always)]
pub(crate) fn map1<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>, nanos: f64, f: impl Fn(R) -> R + Copy + Sync) {
    chunks(
        cores,
        dst.len(),
        nanos,
        #[inline(always)]
        |start, len, [x, y]: &mut [[R; CHUNK]; 2]| {
            #[expect(clippy::redundant_locals, reason = "the copy is what lets the loop vectorise")]
            let f = f;
            let x = elements(&src, start, &mut x[..len]);
            let (y, stored) = results(&dst, [&src], start, &mut y[..len]);
            for (y, &x) in y.iter_mut().zip(x) {
                *y = f(x);
            }
            if !stored {
                R::store(&dst, start, y);
            }
        },
    );
}

/// `dst[i] = f(a[i], b[i % b.len])`, at `nanos` per element; `f` as in [`map1`].
#[inline(always)]
pub(crate) fn map2<R: Real>(
    cores: &Cores,
    [a, b]: [View<'_>; 2],
    dst: View<'_>,
    nanos: f64,
    f: impl Fn(R, R) -> R + Copy + Sync,
) {
    chunks(
        cores,
        dst.len(),
        nanos,
        #[inline(always)]
        |start, len, [left, right, y]: &mut [[R; CHUNK]; 3]| {
            #[expect(clippy::redundant_locals, reason = "the copy is what lets the loop vectorise")]
            let f = f;
            let left = elements(&a, start, &mut left[..len]);
            let right = elements_cyclic(&b, start, &mut right[..len]);
            let (y, stored) = results(&dst, [&a, &b], start, &mut y[..len]);
            for (y, (&left, &right)) in y.iter_mut().zip(left.iter().zip(right)) {
                *y = f(left, right);
            }
            if !stored {
                R::store(&dst, start, y);
            }
        },
    );
}

/// [`elements`] of `from` repeated endlessly.
#[inline(always)]
fn elements_cyclic<'a, R: Real>(from: &'a View<'_>, start: usize, buffer: &'a mut [R]) -> &'a [R] {
    let at = start % from.len();
    if at + buffer.len() <= from.len() {
        return elements(from, at, buffer);
    }
    load_cyclic(from, start, buffer);
    buffer
}

/// Loads `from[(start + i) % from.len()]`.
#[inline(always)]
fn load_cyclic<R: Real>(from: &View<'_>, start: usize, out: &mut [R]) {
    let mut at = start % from.len();
    let mut filled = 0;
    while filled < out.len() {
        let n = (from.len() - at).min(out.len() - filled);
        R::load(from, at, &mut out[filled..filled + n]);
        filled += n;
        at = 0;
    }
}

/// `dst[i] = src[i]` in the type of `dst`.
pub(crate) fn cast(cores: &Cores, mut access: Access<'_>, src: Operand, dst: Operand) -> KernelResult {
    fn go<R: Real>(cores: &Cores, src: View<'_>, dst: View<'_>) {
        map1::<R>(
            cores,
            src,
            dst,
            0.3,
            #[inline(always)]
            |x| x,
        );
    }
    same_length(&src, &dst)?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    real!([src.dtype, dst.dtype], go(cores, from, to));
    Ok(())
}
