//! Copies between images in device memory and the scratch in which convolutions sum: channel by channel, with the
//! images of a tile one after another, so that one run of elements spans rows and images alike.

use std::ops::Range;

use super::products::LANES;
use crate::ConvShape;
use crate::cpu::operand::View;
use crate::cpu::real::{Real, elements};
use crate::cpu::windows::{every, lead, onto_every};

/// Rows and columns of scratch for each image of a tile.
#[derive(Clone, Copy)]
pub(super) struct PlaneGrid {
    pub(super) images: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Elements from one channel to the next: all of a channel's elements, in whole vectors.
    pub(super) run: usize,
}

impl PlaneGrid {
    pub(super) const fn new(images: usize, height: usize, width: usize) -> Self {
        Self { images, height, width, run: (images * height * width).next_multiple_of(LANES) }
    }

    /// Where a row of an image starts.
    #[inline(always)]
    pub(super) const fn at(&self, image: usize, row: usize) -> usize {
        (image * self.height + row) * self.width
    }
}

/// The part of an array of images that goes into a [`PlaneGrid`]. Element (y, x) of phase (a, b) is the array's element
/// at row `top + y·stride + a` and column `left + x·stride + b`, or zero outside.
#[derive(Clone)]
pub(super) struct Cut {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) first_image: usize,
    /// The number of existing images; further images in the grid are zero.
    pub(super) images: usize,
    /// The valid rows of the array.
    pub(super) rows: Range<usize>,
    pub(super) top: isize,
    pub(super) left: isize,
    pub(super) stride: usize,
    /// The number of phases in each dimension, at most `stride`.
    pub(super) phases: usize,
}

impl Cut {
    /// The rows that go into the grid, if they are copied unchanged and contiguously.
    fn whole_rows(&self, grid: PlaneGrid) -> Option<Range<usize>> {
        let top = usize::try_from(self.top).ok()?;
        let end = self.rows.end.min(top + grid.height);
        (self.stride == 1 && self.left == 0 && self.width == grid.width && self.rows.start <= top && top < end)
            .then_some(top..end)
    }
}

/// [`split`] of whole rows.
#[inline(always)]
fn copy_rows<R: Real>(from: &View<'_>, cut: &Cut, rows: Range<usize>, grid: PlaneGrid, to: &mut [R]) {
    for channel in 0..cut.channels {
        for image in 0..cut.images.min(grid.images) {
            let source = ((cut.first_image + image) * cut.channels + channel) * cut.height + rows.start;
            let to = &mut to[channel * grid.run + grid.at(image, 0)..][..rows.len() * cut.width];
            R::load(from, source * cut.width, to);
        }
    }
}

/// Copies `cut` of `from` to `to`, (channels, phases, phases, images, height, width) of `grid`. `line` is scratch for
/// one row of the array.
#[inline(always)]
pub(super) fn split<R: Real>(from: &View<'_>, cut: &Cut, grid: PlaneGrid, line: &mut [R], to: &mut [R]) {
    let (stride, phases) = (cut.stride, cut.phases);
    to.fill(R::ZERO);
    if let Some(rows) = cut.whole_rows(grid) {
        return copy_rows(from, cut, rows, grid, to);
    }
    for channel in 0..cut.channels {
        for image in 0..cut.images.min(grid.images) {
            let source = ((cut.first_image + image) * cut.channels + channel) * cut.height * cut.width;
            for (y, a) in (0..grid.height).flat_map(|y| (0..phases).map(move |a| (y, a))) {
                let Some(row) = cut.top.checked_add_unsigned(y * stride + a).and_then(|row| usize::try_from(row).ok())
                else {
                    continue;
                };
                if !cut.rows.contains(&row) {
                    continue;
                }
                let values = elements(from, source + row * cut.width, &mut *line);
                for b in 0..phases {
                    let plane = ((channel * phases + a) * phases + b) * grid.run;
                    let to = &mut to[plane + grid.at(image, y)..][..grid.width];
                    let (skip, first) = lead(cut.left + b.cast_signed(), stride);
                    if skip < to.len() && first < values.len() {
                        every(stride, &values[first..], &mut to[skip..]);
                    }
                }
            }
        }
    }
}

/// Writes the windows of `padded` (channels of `inside`, with all phases) as columns: `to` is (in_channels · kernel²)
/// channels of `grid`.
#[inline(always)]
pub(super) fn gather<R: Real>(shape: &ConvShape, padded: &[R], inside: PlaneGrid, grid: PlaneGrid, to: &mut [R]) {
    let &ConvShape { kernel, stride, .. } = shape;
    for (p, to) in to.chunks_exact_mut(grid.run).enumerate() {
        let (channel, u, v) = (p / (kernel * kernel), p / kernel % kernel, p % kernel);
        let (columns, rest) = to.split_at_mut(grid.images * grid.height * grid.width);
        rest.fill(R::ZERO);
        for (row, to) in columns.chunks_exact_mut(grid.width).enumerate() {
            let (image, y) = (row / grid.height, row % grid.height);
            let from = &padded[channel * inside.run + inside.at(image, y * stride + u) + v..];
            every(stride, &from[..(grid.width - 1) * stride + 1], to);
        }
    }
}

/// Sets `plane` to the sum of the columns of one image and one channel (kernel² of them, `run` apart). Each element is
/// added where [`gather`] would read it.
#[inline(always)]
pub(super) fn scatter<R: Real>(shape: &ConvShape, columns: &[R], run: usize, plane: &mut [R]) {
    let &ConvShape { kernel, stride, padding, .. } = shape;
    plane.fill(R::ZERO);
    for (u, v) in (0..kernel).flat_map(|u| (0..kernel).map(move |v| (u, v))) {
        let columns = &columns[(u * kernel + v) * run..][..shape.out_area()];
        for (y, columns) in columns.chunks_exact(shape.out_width).enumerate() {
            let Some(row) = (y * stride + u).checked_sub(padding).filter(|&row| row < shape.in_height) else {
                continue;
            };
            let plane = &mut plane[row * shape.in_width..][..shape.in_width];
            let (skip, first) = lead(v.cast_signed() - padding.cast_signed(), stride);
            if skip < columns.len() && first < plane.len() {
                onto_every(
                    stride,
                    &columns[skip..],
                    &mut plane[first..],
                    #[inline(always)]
                    |sum, x| *sum += x,
                );
            }
        }
    }
}
