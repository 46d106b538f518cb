//! Convolutions in the fastest available form, or as vramlab's own products in tiles if there is no other. cuDNN's
//! heuristics don't look for engines that repeat bit for bit and do not round. So for every shape, several of its
//! engines and some products of matrices are timed once, and the fastest is stored on disk, so that a run can be
//! repeated.

mod convolve;
mod run;
mod trial;

use crate::cuda::dnn::{self, Role};
use crate::cuda::geometry::geometry;
use crate::cuda::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use crate::kernels::Convolution;
use crate::kernels::family::Family;
use crate::{ConvShape, ImageLayout, Operand};
use convolve::convolve;
use vramlab_allocator::units::Address;

const THREADS: u32 = 256;
/// Rows and columns of results that one block computes.
const TILE: usize = 64;
/// Factors that are in shared memory at the same time.
const DEPTH: usize = 16;
/// The least depth that is worth a separate block.
const LEAST_DEPTH: usize = 256;
/// The most elements of scratch for parts of the depth.
const PARTS_LIMIT: usize = 64 << 20;

/// Launches a kernel of this family.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Convolution) -> Result<(), Refusal> {
    let (convolution, bias) = match kernel {
        Convolution::Forward { shape, src, weight, bias, dst } => {
            (dnn::ConvolutionCall { role: Role::Forward, shape, src: *src, weight: *weight, dst: *dst }, *bias)
        }
        Convolution::BackwardInput { shape, grad, weight, dst } => {
            (dnn::ConvolutionCall { role: Role::BackwardInput, shape, src: *dst, weight: *weight, dst: *grad }, None)
        }
        Convolution::BackwardWeight { shape, grad, src, dst } => {
            (dnn::ConvolutionCall { role: Role::BackwardWeight, shape, src: *src, weight: *dst, dst: *grad }, None)
        }
    };
    let dnn::ConvolutionCall { shape, src, weight, dst, .. } = convolution;
    let lens = [shape.in_len(), shape.weight_len(), shape.out_len()];
    let one_type = [Some(weight), Some(dst), bias].iter().flatten().all(|operand| operand.dtype == src.dtype);
    let fits = bias.is_none_or(|bias| bias.len == shape.out_channels);
    if !shape.is_consistent() || lens.contains(&0) || lens != [src.len, weight.len, dst.len] || !one_type || !fits {
        return Err(Refusal::unsupported(kernel.name()));
    }
    if !convolve(queue, &convolution)? {
        launch_own(queue, &convolution, kernel)?;
    }
    match bias {
        Some(bias) => add_bias(queue, shape, &dst, &bias, kernel),
        None => Ok(()),
    }
}

/// Rows, columns and depth of the matrix product that is equivalent to a convolution.
fn product(role: Role, shape: &ConvShape) -> [usize; 3] {
    let window = shape.kernel * shape.kernel;
    match role {
        Role::Forward => [shape.out_channels, shape.batch * shape.out_area(), shape.window()],
        Role::BackwardInput => [shape.in_channels, shape.batch * shape.in_area(), shape.out_channels * window],
        Role::BackwardWeight => [shape.out_channels, shape.window(), shape.batch * shape.out_area()],
    }
}

/// The number of parts into which the depth is divided, enough to keep the device busy, and the factors in each.
fn split([rows, columns, depth]: [usize; 3], multiprocessors: u32) -> (usize, usize) {
    let tiles = rows.div_ceil(TILE) * columns.div_ceil(TILE);
    let wanted = (2 * multiprocessors as usize).div_ceil(tiles);
    let parts = wanted.min(depth / LEAST_DEPTH).min(PARTS_LIMIT / (rows * columns)).max(1);
    let each = depth.div_ceil(parts).next_multiple_of(DEPTH);
    (depth.div_ceil(each), each)
}

fn launch_own(
    queue: &mut Queue<'_>,
    convolution: &dnn::ConvolutionCall<'_>,
    kernel: &Convolution,
) -> Result<(), Refusal> {
    let &dnn::ConvolutionCall { role, shape, src, weight, dst } = convolution;
    let (name, left, right, result) = match role {
        Role::Forward => ("conv2d", weight, src, dst),
        Role::BackwardInput => ("conv2d_backward_input", weight, dst, src),
        Role::BackwardWeight => ("conv2d_backward_weight", dst, src, weight),
    };
    let sides = product(role, shape);
    let geometry = geometry(shape);
    // The kernels count in 32 bits, with some margin for indices beyond the edges.
    const LIMIT: usize = 1 << 31;
    let [rows, columns, _] = sides;
    if sides.iter().chain(&geometry).any(|&n| n >= LIMIT - TILE) || rows.div_ceil(TILE) > usize::from(u16::MAX) {
        return Err(Refusal::unsupported(kernel.name()));
    }
    let (parts, each) = split(sides, queue.multiprocessors());
    let sums = if parts > 1 { Some(queue.scratch(4 * parts * result.len)?) } else { None };
    let blocks = [blocks_of(columns, TILE), blocks_of(rows, TILE), blocks_of(parts, 1)];
    let mut arguments = Arguments::new()
        .operand(&left)
        .operand(&right)
        .operand(&result)
        .at(sums.unwrap_or(Address(0)))
        .count(each)
        .structure(&geometry.map(|n| n as u64));
    queue.launch(name, &[result.dtype], Grid { blocks, threads: THREADS, shared: 0 }, &mut arguments)?;
    let Some(sums) = sums else { return Ok(()) };
    let grid = Grid::row(blocks_of(result.len, THREADS as usize).min(8 * queue.multiprocessors()), THREADS);
    let mut arguments = Arguments::new().at(sums).operand(&result).count(result.len).count(parts);
    queue.launch("conv2d_sum_parts", &[result.dtype], grid, &mut arguments)
}

fn add_bias(
    queue: &mut Queue<'_>,
    shape: &ConvShape,
    dst: &Operand,
    bias: &Operand,
    kernel: &Convolution,
) -> Result<(), Refusal> {
    // Contiguous elements of a channel.
    let run = if shape.layout == ImageLayout::ChannelsLast { 1 } else { shape.out_area() };
    let (Ok(channels), Ok(area), true) =
        (u32::try_from(shape.out_channels), u32::try_from(run), u32::try_from(dst.len).is_ok())
    else {
        return Err(Refusal::unsupported(kernel.name()));
    };
    let wide = if dst.address.0.is_multiple_of(16) { 16 / dst.dtype.size() as usize } else { 1 };
    let packs = if wide > 1 { dst.len / wide } else { 0 };
    let grid =
        Grid::row(blocks_of(dst.len.div_ceil(wide), THREADS as usize).min(16 * queue.multiprocessors()), THREADS);
    let mut arguments = Arguments::new().operand(dst).operand(bias).count(dst.len).count(packs).int(channels).int(area);
    queue.launch("conv2d_bias", &[dst.dtype], grid, &mut arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_depth_in_whole_steps() {
        for sides in [[64, 64, 1_000_000], [512, 4608, 16 * 49], [3, 75, 16], [64, 200_704, 576], [1, 1, 257]] {
            let (parts, each) = split(sides, 132);
            assert!(each.is_multiple_of(DEPTH), "{sides:?}: {each}");
            assert!(parts * each >= sides[2] && (parts - 1) * each < sides[2], "{sides:?}: {parts} of {each}");
        }
    }

    #[test]
    fn only_products_of_few_tiles_are_split() {
        assert_eq!(split([64, 200_704, 576], 132).0, 1);
        assert_eq!(split([64, 64, 1_000_000], 132).0, 264);
    }
}
