//! The largest element of each window, and its gradient.

use super::Pool;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::cuda::rows::{VECTOR, place};
use crate::kernels::family::Family;
use crate::{DType, Operand, PoolShape};
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Adjacent elements of a row that a thread of the backward pass handles.
const GROUP: usize = 4;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Pool) -> Result<(), Refusal> {
    match kernel {
        Pool::Max { src, dst, indices, shape } if shape.interleaved > 1 && fits(shape, src, dst, indices) => {
            let names = ["max_pool_pixels_wide", "max_pool_pixels_single"];
            for_pixels(queue, names, shape, [src, dst, indices], [src, dst], dst.len)
        }
        Pool::MaxBackward { grad, indices, dst, shape } if shape.interleaved > 1 && fits(shape, dst, grad, indices) => {
            let names = ["max_pool_backward_pixels_wide", "max_pool_backward_pixels_single"];
            for_pixels(queue, names, shape, [grad, indices, dst], [grad, dst], dst.len)
        }
        Pool::Max { src, dst, indices, shape } if fits(shape, src, dst, indices) => {
            let name = match shape.kernel {
                2 => "max_pool_2",
                3 => "max_pool_3",
                _ => "max_pool_any",
            };
            let divisors = [shape.out_width, shape.out_height];
            let outputs = shape.out_area();
            for_planes(queue, name, shape, [src, dst, indices], [shape.in_area(), outputs, outputs], outputs, &divisors)
        }
        Pool::MaxBackward { grad, indices, dst, shape } if fits(shape, dst, grad, indices) => {
            let wide = shape.in_width.is_multiple_of(GROUP) && place(dst) == 0;
            let name = if wide { "max_pool_backward_wide" } else { "max_pool_backward_any" };
            let row_groups = shape.in_width.div_ceil(GROUP);
            let divisors = [row_groups, shape.in_height, shape.stride];
            let areas = [shape.out_area(), shape.out_area(), shape.in_area()];
            for_planes(queue, name, shape, [grad, indices, dst], areas, row_groups * shape.in_height, &divisors)
        }
        _ => Err(Refusal::unsupported(kernel.name())),
    }
}

/// Launches one of `[wide, single]` for `len` results. Each thread handles as many channels as 16 bytes of `elements`
/// hold.
fn for_pixels(
    queue: &mut Queue<'_>,
    [wide, single]: [&'static str; 2],
    shape: &PoolShape,
    operands: [&Operand; 3],
    elements: [&Operand; 2],
    len: usize,
) -> Result<(), Refusal> {
    let dtype = elements[0].dtype;
    let vector = VECTOR / usize::try_from(dtype.size()).unwrap_or(VECTOR);
    let vectors = shape.interleaved.is_multiple_of(vector) && elements.iter().all(|operand| place(operand) == 0);
    let (name, each) = if vectors { (wide, vector) } else { (single, 1) };
    let threads = len / each;
    if threads == 0 {
        return Ok(());
    }
    let sides = [shape.in_height, shape.in_width, shape.out_height, shape.out_width];
    let windows = [shape.kernel, shape.stride, shape.padding];
    let arguments = operands.into_iter().fold(Arguments::new(), Arguments::operand);
    let arguments = arguments.count(threads).int(count(shape.interleaved / each));
    let mut arguments = sides.iter().chain(&windows).fold(arguments, |arguments, &n| arguments.int(count(n)));
    queue.launch(name, &[dtype], Grid::row(blocks_of(threads, THREADS as usize), THREADS), &mut arguments)
}

fn fits(shape: &PoolShape, input: &Operand, output: &Operand, indices: &Operand) -> bool {
    let row_groups = shape.in_width.div_ceil(GROUP) * GROUP;
    shape.is_consistent()
        && i32::try_from(row_groups * shape.in_height.max(shape.out_height)).is_ok()
        && input.len == shape.planes * shape.in_area()
        && [output.len, indices.len] == [shape.planes * shape.out_area(); 2]
        && input.dtype == output.dtype
        && indices.dtype == DType::I64
}

/// Launches `name` for all planes, with as many planes per launch as 31-bit element counts permit. `areas` are the
/// operands' elements per plane, `threads` are threads per plane; kernels divide by `divisors`.
fn for_planes(
    queue: &mut Queue<'_>,
    name: &'static str,
    shape: &PoolShape,
    operands: [&Operand; 3],
    areas: [usize; 3],
    threads: usize,
    divisors: &[usize],
) -> Result<(), Refusal> {
    let at_once = (i32::MAX as usize / areas.into_iter().fold(threads, usize::max).max(1)).max(1);
    let sides = [shape.in_height, shape.in_width, shape.out_height, shape.out_width];
    let windows = [shape.kernel, shape.stride, shape.padding];
    for first in (0..shape.planes).step_by(at_once) {
        let all = threads * at_once.min(shape.planes - first);
        let starts = operands.iter().zip(areas).map(|(operand, area)| {
            let skipped = operand.dtype.bytes(first * area).get();
            Address(operand.address.0 + skipped)
        });
        let arguments = starts.fold(Arguments::new(), Arguments::at).int(count(all));
        let arguments = sides.iter().chain(&windows).fold(arguments, |arguments, &n| arguments.int(count(n)));
        let with_divisor = |arguments: Arguments, &divisor: &usize| {
            let (magic, shift) = magic(count(divisor));
            arguments.int(magic).int(shift)
        };
        let mut arguments = divisors.iter().fold(arguments, with_divisor);
        let dtype = operands[0].dtype;
        queue.launch(name, &[dtype], Grid::row(blocks_of(all, THREADS as usize), THREADS), &mut arguments)?;
    }
    Ok(())
}

/// `n` in the kernels' integer type.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The constants for dividing numbers below 2³¹ by `divisor`: `((n · magic >> 32) + n) >> shift`.
fn magic(divisor: u32) -> (u32, u32) {
    let shift = divisor.max(1).next_power_of_two().trailing_zeros();
    let divisor = u64::from(divisor.max(1));
    let magic = (((1_u64 << shift) - divisor) << 32) / divisor + 1;
    (u32::try_from(magic).unwrap_or(u32::MAX), shift)
}

#[cfg(test)]
mod tests {
    use super::magic;

    #[test]
    fn magic_divides() {
        let divisors = (1..200).chain([1000, 12544, 65535, 65536, 65537, (1 << 30) - 1, 1 << 30, (1 << 30) + 1]);
        for divisor in divisors {
            let (magic, shift) = magic(divisor);
            let around = (0..100_u32).map(|k| k.wrapping_mul(divisor)).flat_map(|n| [n, n.wrapping_sub(1)]);
            for n in around.chain(0..1000).chain([(1 << 31) - 1, (1 << 31) - 2]).filter(|&n| n < 1 << 31) {
                let high = ((u64::from(n) * u64::from(magic)) >> 32) as u32;
                assert_eq!((high + n) >> shift, n / divisor, "{n} / {divisor}");
            }
        }
    }
}
