//! The largest element of each window, plane by plane.

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelRefusal, KernelResult, View, require};
use crate::cpu::planes::{ImageBuffer, Sides, at_once, images_of, to_pixels};
use crate::cpu::real::{Real, elements};
use crate::cpu::tasks::estimate;
use crate::cpu::windows::{every, lead};
use crate::{DType, Operand, PoolShape};

/// Elements of planes that one task handles, at least one plane.
const TASK: usize = 8 * 1024;

fn check(shape: &PoolShape, input: &Operand, output: &Operand, indices: &Operand) -> KernelResult {
    require(shape.is_consistent(), || format!("windows, stride and padding don't make {shape:?}"))?;
    let (inside, outside) = (shape.planes * shape.in_area(), shape.planes * shape.out_area());
    require([input.len, output.len, indices.len] == [inside, outside, outside], || {
        format!("input, output and indices have {}, {} and {} elements", input.len, output.len, indices.len)
    })?;
    require(indices.dtype == DType::I64, || format!("indices are {:?}, and must be I64", indices.dtype))?;
    require(u32::try_from(shape.in_area()).is_ok(), || format!("planes of {shape:?} are too large"))
}

/// The sides of input and output.
const fn sides(shape: &PoolShape) -> (Sides, Sides) {
    let images = shape.planes / shape.interleaved;
    ([images, shape.interleaved, shape.in_area()], [images, shape.interleaved, shape.out_area()])
}

/// Calls `body` with each plane and `scratch` elements of scratch.
#[inline(always)]
fn for_planes<R: Real>(
    cores: &Cores,
    shape: &PoolShape,
    nanos: f64,
    scratch: usize,
    body: impl Fn(usize, &mut [R]) + Sync,
) {
    let each = (TASK / shape.in_area()).max(1);
    cores.for_each(
        shape.planes.div_ceil(each),
        estimate(shape.planes * shape.in_area(), nanos),
        #[inline(always)]
        |task| {
            cores.scratch(
                scratch,
                #[inline(always)]
                |scratch: &mut [R]| {
                    for plane in task * each..shape.planes.min((task + 1) * each) {
                        body(plane, scratch);
                    }
                },
            );
        },
    );
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    src: Operand,
    dst: Operand,
    indices: Operand,
    shape: &PoolShape,
) -> KernelResult {
    check(shape, &src, &dst, &indices)?;
    let from = access.read(&src)?;
    let to = [access.write(&dst)?, access.write(&indices)?];
    if shape.interleaved == 1 {
        real!([src.dtype, dst.dtype], largest(cores, from, to, shape));
        return Ok(());
    }
    let [maxima, places] = to;
    let (inside, outside) = sides(shape);
    let each = at_once([(src.dtype, inside), (dst.dtype, outside), (indices.dtype, outside)]).min(inside[0]);
    let some = |[_, channels, area]: Sides, images| [images, channels, area];
    let mut input = ImageBuffer::new(cores, src.dtype, some(inside, each))?;
    let mut best = ImageBuffer::new(cores, dst.dtype, some(outside, each))?;
    let mut met = ImageBuffer::new(cores, indices.dtype, some(outside, each))?;
    for first in (0..inside[0]).step_by(each) {
        let images = each.min(inside[0] - first);
        let input = input.of(&images_of(&from, inside, first, images));
        let (best, met) = (best.planes(images), met.planes(images));
        let some_planes = PoolShape { planes: images * shape.interleaved, ..*shape };
        real!([src.dtype, dst.dtype], largest(cores, input, [best, met], &some_planes));
        to_pixels(&best, &images_of(&maxima, outside, first, images), some(outside, images));
        to_pixels(&met, &images_of(&places, outside, first, images), some(outside, images));
    }
    Ok(())
}

fn largest<R: Real>(cores: &Cores, src: View<'_>, [dst, indices]: [View<'_>; 2], shape: &PoolShape) {
    let &PoolShape { in_width, out_width, stride, .. } = shape;
    for_planes(
        cores,
        shape,
        2.0,
        shape.in_area() + 2 * out_width,
        #[inline(always)]
        |plane, scratch: &mut [R]| {
            let (values, lines) = scratch.split_at_mut(shape.in_area());
            let (best, met) = lines.split_at_mut(out_width);
            let values = elements(&src, plane * shape.in_area(), values);
            for y in 0..shape.out_height {
                let start = plane * shape.out_area() + y * out_width;
                let places = indices.slice_mut::<i64>(start, out_width);
                let first_row = (y * stride).saturating_sub(shape.padding);
                let last_row = (y * stride + shape.kernel - shape.padding).min(shape.in_height);
                best.fill(R::NEG_INFINITY);
                // Windows without anything above −∞ keep their first element.
                for (x, place) in places.iter_mut().enumerate() {
                    *place = (first_row * in_width + (x * stride).saturating_sub(shape.padding)).cast_signed() as i64;
                }
                for row in first_row..last_row {
                    let line = &values[row * in_width..][..in_width];
                    for v in 0..shape.kernel {
                        let (skip, first) = lead(v.cast_signed() - shape.padding.cast_signed(), stride);
                        if first >= in_width || skip >= out_width {
                            continue;
                        }
                        let n = (in_width - first).div_ceil(stride).min(out_width - skip);
                        every(stride, &line[first..], &mut met[..n]);
                        let base = (row * in_width + first).cast_signed() as i64;
                        let best = best[skip..skip + n].iter_mut().zip(&mut places[skip..skip + n]);
                        for (i, ((best, place), &x)) in best.zip(&met[..n]).enumerate() {
                            let wins = x > *best || x.is_nan();
                            *best = if wins { x } else { *best };
                            *place = if wins { base + (i * stride).cast_signed() as i64 } else { *place };
                        }
                    }
                }
                R::store(&dst, start, best);
            }
        },
    );
}

pub(super) fn backward(
    cores: &Cores,
    mut access: Access<'_>,
    grad: Operand,
    indices: Operand,
    dst: Operand,
    shape: &PoolShape,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, grad: View<'_>, places: &[i64], dst: View<'_>, shape: &PoolShape) {
        let (inside, outside) = (shape.in_area(), shape.out_area());
        for_planes(
            cores,
            shape,
            1.0,
            inside + outside,
            #[inline(always)]
            |plane, scratch: &mut [R]| {
                let (sums, grads) = scratch.split_at_mut(inside);
                let grads = elements(&grad, plane * outside, grads);
                sums.fill(R::ZERO);
                for (&place, &grad) in places[plane * outside..].iter().zip(grads) {
                    sums[place as usize] += grad;
                }
                R::store(&dst, plane * inside, sums);
            },
        );
    }
    check(shape, &dst, &grad, &indices)?;
    let (from, at) = (access.read(&grad)?, access.read(&indices)?);
    let to = access.write(&dst)?;
    let places = at.slice::<i64>(0, at.len());
    let inside =
        0..i64::try_from(shape.in_area()).map_err(|_| KernelRefusal::Operands("planes are too large".into()))?;
    if let Some(place) = places.iter().find(|place| !inside.contains(place)) {
        return Err(KernelRefusal::Operands(format!(
            "index {place} is outside the {} elements of a plane",
            shape.in_area()
        )));
    }
    if shape.interleaved == 1 {
        real!([grad.dtype, dst.dtype], go(cores, from, places, to, shape));
        return Ok(());
    }
    let (inside, outside) = sides(shape);
    let each = at_once([(grad.dtype, outside), (indices.dtype, outside), (dst.dtype, inside)]).min(inside[0]);
    let some = |[_, channels, area]: Sides, images| [images, channels, area];
    let mut grads = ImageBuffer::new(cores, grad.dtype, some(outside, each))?;
    let mut chosen = ImageBuffer::new(cores, indices.dtype, some(outside, each))?;
    let mut sums = ImageBuffer::new(cores, dst.dtype, some(inside, each))?;
    for first in (0..inside[0]).step_by(each) {
        let images = each.min(inside[0] - first);
        let grads = grads.of(&images_of(&from, outside, first, images));
        let chosen = chosen.of(&images_of(&at, outside, first, images));
        let sums = sums.planes(images);
        let some_planes = PoolShape { planes: images * shape.interleaved, ..*shape };
        let places = chosen.slice::<i64>(0, chosen.len());
        real!([grad.dtype, dst.dtype], go(cores, grads, places, sums, &some_planes));
        to_pixels(&sums, &images_of(&to, inside, first, images), some(inside, images));
    }
    Ok(())
}
