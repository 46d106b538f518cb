//! Convolutions as sums over runs of scratch: images are copied channel by channel, padded, and split into the phases
//! of the stride, so that the elements that one weight multiplies are contiguous. If images are too small for that,
//! windows are copied one by one instead.

mod plan;
mod planes;
mod products;

use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::partial::SumsOfBlocks;
use crate::cpu::planes::{ImageBuffer, Sides, at_once, images_of, to_pixels};
use crate::cpu::real::{Real, elements};
use crate::cpu::windows::onto_every;
use crate::{ConvShape, ImageLayout, Operand};
use plan::{ColumnsPlan, Phases, Reach, Tile, WindowsPlan, WorkSplit};
use planes::{Cut, gather, scatter, split};
use products::{Combination, Correlation, LANES};

/// Checks that source, weight and result of a convolution (or their gradients) match its shape.
fn check(shape: &ConvShape, src: &Operand, weight: &Operand, dst: &Operand) -> KernelResult {
    require(shape.is_consistent(), || format!("windows, stride and padding don't make {shape:?}"))?;
    let lens = [shape.in_len(), shape.weight_len(), shape.out_len()];
    require(!lens.contains(&0), || format!("{shape:?} has no elements"))?;
    require([src.len, weight.len, dst.len] == lens, || {
        format!("input, weight and output have {}, {} and {} elements, not {lens:?}", src.len, weight.len, dst.len)
    })
}

/// Calls `compute` with images, weight and result as planes. For channels-last operands, it gets copies of some images
/// at a time.
fn in_planes(
    cores: &Cores,
    shape: &ConvShape,
    [images, weight, result]: [View<'_>; 3],
    sides: [Sides; 3],
    compute: impl Fn(&ConvShape, [View<'_>; 2], View<'_>),
) -> KernelResult {
    if shape.layout == ImageLayout::ChannelsFirst {
        compute(shape, [images, weight], result);
        return Ok(());
    }
    let [of_images, of_weight, of_result] = sides;
    let each = at_once([(images.dtype(), of_images), (result.dtype(), of_result)]).min(shape.batch);
    let some = |[_, channels, area]: Sides| [each, channels, area];
    let mut factors = ImageBuffer::new(cores, weight.dtype(), of_weight)?;
    let mut from = ImageBuffer::new(cores, images.dtype(), some(of_images))?;
    let mut to = ImageBuffer::new(cores, result.dtype(), some(of_result))?;
    let factors = factors.of(&weight);
    for first in (0..shape.batch).step_by(each) {
        let batch = each.min(shape.batch - first);
        let some = ConvShape { layout: ImageLayout::ChannelsFirst, batch, ..*shape };
        let from = from.of(&images_of(&images, of_images, first, batch));
        let to = to.planes(batch);
        compute(&some, [from, factors], to);
        let [_, channels, area] = of_result;
        to_pixels(&to, &images_of(&result, of_result, first, batch), [batch, channels, area]);
    }
    Ok(())
}

/// The sides of source, weight and result.
const fn sides(shape: &ConvShape) -> [Sides; 3] {
    let window = shape.kernel * shape.kernel;
    [
        [shape.batch, shape.in_channels, shape.in_area()],
        [shape.out_channels, shape.in_channels, window],
        [shape.batch, shape.out_channels, shape.out_area()],
    ]
}

/// The `n` elements of scratch needed to convert `view`, or 0 if it needs no conversion.
fn conversion<R: Real>(view: &View<'_>) -> usize {
    if view.dtype() == R::DTYPE { 0 } else { view.len() }
}

/// All elements of `view`, converted into `buffer` if necessary.
fn whole<'a, R: Real>(cores: &Cores, view: &'a View<'_>, buffer: &'a mut [R]) -> &'a [R] {
    if view.dtype() == R::DTYPE {
        return view.slice(0, view.len());
    }
    cores.vectorised(
        #[inline(always)]
        || R::load(view, 0, buffer),
    );
    buffer
}

pub(super) fn forward(
    cores: &Cores,
    mut access: Access<'_>,
    shape: &ConvShape,
    src: Operand,
    weight: Operand,
    bias: Option<Operand>,
    dst: Operand,
) -> KernelResult {
    check(shape, &src, &weight, &dst)?;
    let from = [access.read(&src)?, access.read(&weight)?];
    let to = access.write(&dst)?;
    let offset = match bias {
        Some(bias) => {
            let channels = shape.out_channels;
            require(bias.len == channels, || format!("the bias has {} elements for {channels} channels", bias.len))?;
            Some(access.read(&bias)?)
        }
        None => None,
    };
    let bias_type = bias.map_or(dst.dtype, |bias| bias.dtype);
    let [input, weights, output] = sides(shape);
    let dtypes = [src.dtype, weight.dtype, dst.dtype, bias_type];
    let [images, factors] = from;
    in_planes(cores, shape, [images, factors, to], [input, weights, output], |shape, from, to| {
        real!(dtypes, sum_windows(cores, shape, from, offset, to));
    })
}

fn sum_windows<R: Real>(
    cores: &Cores,
    shape: &ConvShape,
    [src, weight]: [View<'_>; 2],
    bias: Option<View<'_>>,
    dst: View<'_>,
) {
    let plan = WindowsPlan::new(shape, usize::MAX);
    let channels = shape.out_channels;
    cores.scratch(conversion::<R>(&weight) + bias.map_or(0, |_| channels), |scratch: &mut [R]| {
        let (of_weight, of_bias) = scratch.split_at_mut(conversion::<R>(&weight));
        let weight = whole(cores, &weight, of_weight);
        let bias = bias.as_ref().map(|bias| elements(bias, 0, &mut of_bias[..channels]));
        cores.for_each(
            plan.tiling.count(),
            plan.nanos,
            #[inline(always)]
            |i| {
                let tile = plan.tiling.tile(i);
                cores.scratch(
                    plan.source_len + channels * plan.grid.run,
                    #[inline(always)]
                    |scratch: &mut [R]| {
                        let (source, out) = scratch.split_at_mut(plan.source_len);
                        load_windows(cores, shape, &plan, &tile, &src, source);
                        cores.dispatch(Combination {
                            rows: channels,
                            cols: plan.cols(&tile, shape.out_width),
                            terms: &plan.terms,
                            weight,
                            row_stride: shape.window(),
                            source,
                            bias,
                            out,
                            out_stride: plan.grid.run,
                        });
                        store_positions(shape, &plan, &tile, out, &dst);
                    },
                );
            },
        );
    });
}

/// Copies the elements that the windows of a tile reach.
#[inline(always)]
fn load_windows<R: Real>(
    cores: &Cores,
    shape: &ConvShape,
    plan: &WindowsPlan,
    tile: &Tile,
    src: &View<'_>,
    to: &mut [R],
) {
    let (cut, grid) = plan.source(shape, tile);
    match plan.reach {
        Reach::Shifted => cores.scratch(
            shape.in_width,
            #[inline(always)]
            |line: &mut [R]| split(src, &cut, grid, line, to),
        ),
        Reach::Gathered => cores.scratch(
            shape.in_width + shape.in_channels * grid.run,
            #[inline(always)]
            |scratch: &mut [R]| {
                let (line, padded) = scratch.split_at_mut(shape.in_width);
                split(src, &cut, grid, line, padded);
                gather(shape, padded, grid, plan.grid, to);
            },
        ),
    }
}

/// Stores the valid positions of a tile.
#[inline(always)]
fn store_positions<R: Real>(shape: &ConvShape, plan: &WindowsPlan, tile: &Tile, out: &[R], dst: &View<'_>) {
    let grid = plan.grid;
    // Contiguous rows are stored together.
    let (steps, each) = if grid.width == shape.out_width { (1, tile.rows) } else { (tile.rows, 1) };
    for (channel, out) in out.chunks_exact(grid.run).take(shape.out_channels).enumerate() {
        for image in 0..tile.images {
            let plane = ((tile.first_image + image) * shape.out_channels + channel) * shape.out_area();
            for y in 0..steps {
                let values = &out[grid.at(image, y)..][..each * shape.out_width];
                R::store(dst, plane + (tile.first_row + y) * shape.out_width, values);
            }
        }
    }
}

pub(super) fn backward_weight(
    cores: &Cores,
    mut access: Access<'_>,
    shape: &ConvShape,
    grad: Operand,
    src: Operand,
    dst: Operand,
) -> KernelResult {
    check(shape, &src, &dst, &grad)?;
    let from = [access.read(&grad)?, access.read(&src)?];
    let to = access.write(&dst)?;
    let dtypes = [grad.dtype, src.dtype, dst.dtype];
    if shape.layout == ImageLayout::ChannelsFirst {
        real!(dtypes, correlate(cores, shape, from, to, false));
        return Ok(());
    }
    real!(dtypes, correlate_pixels(cores, shape, from, to))
}

/// [`correlate`] for channels-last operands: sums over some images are added to those over the images before.
fn correlate_pixels<R: Real>(
    cores: &Cores,
    shape: &ConvShape,
    [grad, src]: [View<'_>; 2],
    dst: View<'_>,
) -> KernelResult {
    let [input, weights, output] = sides(shape);
    let each = at_once([(grad.dtype(), output), (src.dtype(), input)]).min(shape.batch);
    let some = |[_, channels, area]: Sides| [each, channels, area];
    let mut grads = ImageBuffer::new(cores, grad.dtype(), some(output))?;
    let mut images = ImageBuffer::new(cores, src.dtype(), some(input))?;
    let mut sums = ImageBuffer::new(cores, R::DTYPE, weights)?;
    let mut stored = ImageBuffer::new(cores, dst.dtype(), weights)?;
    let [sums, stored] = [sums.planes(weights[0]), stored.planes(weights[0])];
    for first in (0..shape.batch).step_by(each) {
        let batch = each.min(shape.batch - first);
        let some = ConvShape { layout: ImageLayout::ChannelsFirst, batch, ..*shape };
        let grads = grads.of(&images_of(&grad, output, first, batch));
        let images = images.of(&images_of(&src, input, first, batch));
        correlate::<R>(cores, &some, [grads, images], sums, first > 0);
    }
    cores.vectorised(
        #[inline(always)]
        || R::store(&stored, 0, sums.slice(0, sums.len())),
    );
    to_pixels(&stored, &dst, weights);
    Ok(())
}

/// Computes the gradient of the weight, or a sum to be added to it.
fn correlate<R: Real>(cores: &Cores, shape: &ConvShape, [grad, src]: [View<'_>; 2], dst: View<'_>, add: bool) {
    let parts = WorkSplit::new(shape);
    let plan = WindowsPlan::new(shape, parts.positions);
    let (tiles, channels, run) = (plan.tiling.count(), shape.out_channels, plan.grid.run);
    let each = tiles.div_ceil(parts.positions);
    let positions_parts = tiles.div_ceil(each);
    let width = parts.channels_each * shape.window();
    let blocks = positions_parts * parts.channels;
    cores.scratch(blocks * width, |sums: &mut [R]| {
        let sums = SumsOfBlocks::new(sums, width);
        cores.for_each(
            blocks,
            plan.nanos,
            #[inline(always)]
            |block| {
                let (part, group) = (block / parts.channels, block % parts.channels);
                let first = group * parts.channels_each;
                let rows = parts.channels_each.min(channels - first);
                sums.with(
                    block,
                    #[inline(always)]
                    |sums| {
                        let sums = &mut sums[..rows * shape.window()];
                        sums.fill(R::ZERO);
                        cores.scratch(
                            plan.source_len + channels * run + shape.out_width,
                            #[inline(always)]
                            |scratch: &mut [R]| {
                                let (source, rest) = scratch.split_at_mut(plan.source_len);
                                let (left, line) = rest.split_at_mut(channels * run);
                                for i in part * each..tiles.min((part + 1) * each) {
                                    let tile = plan.tiling.tile(i);
                                    load_windows(cores, shape, &plan, &tile, &src, source);
                                    split(&grad, &positions(shape, &tile), plan.grid, line, left);
                                    cores.dispatch(Correlation {
                                        rows,
                                        len: plan.cols(&tile, shape.out_width),
                                        left: &left[first * run..],
                                        left_stride: run,
                                        source,
                                        terms: &plan.terms,
                                        out: sums,
                                    });
                                }
                            },
                        );
                    },
                );
            },
        );
        let weights = sums.joined(parts.channels);
        cores.vectorised(
            #[inline(always)]
            || {
                let mut start = 0;
                for weights in weights {
                    let n = weights.len().min(shape.weight_len() - start);
                    let weights = &mut weights[..n];
                    if add {
                        let before = dst.slice::<R>(start, n);
                        weights.iter_mut().zip(before).for_each(|(weight, &before)| *weight += before);
                    }
                    R::store(&dst, start, weights);
                    start += n;
                }
            },
        );
    });
}

/// The part of an output's gradient that a tile copies. Invalid positions are zero.
fn positions(shape: &ConvShape, tile: &Tile) -> Cut {
    Cut {
        channels: shape.out_channels,
        height: shape.out_height,
        width: shape.out_width,
        first_image: tile.first_image,
        images: tile.images,
        rows: tile.first_row..tile.first_row + tile.rows,
        top: tile.first_row.cast_signed(),
        left: 0,
        stride: 1,
        phases: 1,
    }
}

pub(super) fn backward_input(
    cores: &Cores,
    mut access: Access<'_>,
    shape: &ConvShape,
    grad: Operand,
    weight: Operand,
    dst: Operand,
) -> KernelResult {
    check(shape, &dst, &weight, &grad)?;
    let from = [access.read(&grad)?, access.read(&weight)?];
    let to = access.write(&dst)?;
    let [input, weights, output] = sides(shape);
    let dtypes = [grad.dtype, weight.dtype, dst.dtype];
    let [grads, factors] = from;
    in_planes(cores, shape, [grads, factors, to], [output, weights, input], |shape, from, to| {
        real!(dtypes, spread(cores, shape, from, to));
    })
}

fn spread<R: Real>(cores: &Cores, shape: &ConvShape, [grad, weight]: [View<'_>; 2], dst: View<'_>) {
    cores.scratch(conversion::<R>(&weight), |buffer: &mut [R]| {
        let weight = whole(cores, &weight, buffer);
        match ColumnsPlan::if_better(shape) {
            Some(plan) => spread_columns(cores, shape, &plan, grad, weight, dst),
            None => spread_phases(cores, shape, &Phases::new(shape), grad, weight, dst),
        }
    });
}

fn spread_columns<R: Real>(
    cores: &Cores,
    shape: &ConvShape,
    plan: &ColumnsPlan,
    grad: View<'_>,
    weight: &[R],
    dst: View<'_>,
) {
    let run = plan.grid.run;
    let squares = shape.kernel * shape.kernel;
    cores.for_each(
        plan.tiling.count(),
        plan.nanos,
        #[inline(always)]
        |i| {
            let tile = plan.tiling.tile(i);
            cores.scratch(
                (shape.out_channels + shape.window()) * run + shape.out_width + shape.in_area(),
                #[inline(always)]
                |scratch: &mut [R]| {
                    let (source, rest) = scratch.split_at_mut(shape.out_channels * run);
                    let (columns, rest) = rest.split_at_mut(shape.window() * run);
                    let (line, plane) = rest.split_at_mut(shape.out_width);
                    split(&grad, &positions(shape, &tile), plan.grid, line, source);
                    cores.dispatch(Combination {
                        rows: shape.window(),
                        cols: (tile.images * shape.out_area()).next_multiple_of(LANES),
                        terms: &plan.terms,
                        weight,
                        row_stride: 1,
                        source,
                        bias: None,
                        out: columns,
                        out_stride: run,
                    });
                    for (channel, columns) in columns.chunks_exact(squares * run).enumerate() {
                        for image in 0..tile.images {
                            scatter(shape, &columns[image * shape.out_area()..], run, plane);
                            let start = (tile.first_image + image) * shape.in_channels + channel;
                            R::store(&dst, start * shape.in_area(), plane);
                        }
                    }
                },
            );
        },
    );
}

fn spread_phases<R: Real>(
    cores: &Cores,
    shape: &ConvShape,
    plan: &Phases,
    grad: View<'_>,
    weight: &[R],
    dst: View<'_>,
) {
    let (run, channels) = (plan.grid.run, shape.in_channels);
    cores.for_each(
        plan.tiling.count(),
        plan.nanos,
        #[inline(always)]
        |i| {
            let tile = plan.tiling.tile(i);
            cores.scratch(
                plan.source_len + plan.terms.len() * channels * run + shape.in_width.max(shape.out_width),
                #[inline(always)]
                |scratch: &mut [R]| {
                    let (source, rest) = scratch.split_at_mut(plan.source_len);
                    let (out, line) = rest.split_at_mut(plan.terms.len() * channels * run);
                    split(&grad, &plan.source(shape, &tile), plan.grid, &mut line[..shape.out_width], source);
                    let width = plan.grid.width - plan.beyond;
                    let cols = (plan.grid.at(tile.images - 1, tile.rows - 1) + width).next_multiple_of(LANES);
                    for (terms, out) in plan.terms.iter().zip(out.chunks_exact_mut(channels * run)) {
                        if terms.is_empty() {
                            continue;
                        }
                        cores.dispatch(Combination {
                            rows: channels,
                            cols,
                            terms,
                            weight,
                            row_stride: shape.kernel * shape.kernel,
                            source,
                            bias: None,
                            out,
                            out_stride: run,
                        });
                    }
                    store_phases(shape, plan, &tile, out, &mut line[..shape.in_width], &dst);
                },
            );
        },
    );
}

/// Joins the phases of each row and stores the row.
#[inline(always)]
fn store_phases<R: Real>(shape: &ConvShape, plan: &Phases, tile: &Tile, out: &[R], line: &mut [R], dst: &View<'_>) {
    let (stride, grid) = (shape.stride, plan.grid);
    // Contiguous rows are stored together.
    let at_once = stride == 1 && grid.width == shape.in_width && shape.padding == 0;
    for image in 0..tile.images {
        for channel in 0..shape.in_channels {
            let plane = ((tile.first_image + image) * shape.in_channels + channel) * shape.in_area();
            if at_once {
                let rows = &out[channel * grid.run + grid.at(image, 0)..][..tile.rows * shape.in_width];
                R::store(dst, plane + tile.first_row * shape.in_width, rows);
                continue;
            }
            line.fill(R::ZERO);
            for (y, a) in (0..tile.rows).flat_map(|y| (0..stride).map(move |a| (y, a))) {
                let position = (plan.origin + tile.first_row + y) * stride + a;
                let Some(row) = position.checked_sub(shape.padding).filter(|&row| row < shape.in_height) else {
                    continue;
                };
                if a >= shape.kernel {
                    line.fill(R::ZERO);
                }
                // If windows are shorter than the stride, the elements between them stay zero.
                for b in (0..stride).filter(|_| a < shape.kernel).take(shape.kernel) {
                    let phase = ((a * stride + b) * shape.in_channels + channel) * grid.run;
                    // The first position is before the image for phases below padding % stride.
                    let skip = usize::from(b < shape.padding % stride);
                    let first = (plan.origin + skip) * stride + b - shape.padding;
                    let values = &out[phase + grid.at(image, y) + skip..];
                    if let Some(line) = line.get_mut(first..) {
                        onto_every(
                            stride,
                            values,
                            line,
                            #[inline(always)]
                            |x, value| *x = value,
                        );
                    }
                }
                R::store(dst, plane + row * shape.in_width, line);
            }
        }
    }
}
