//! How a convolution is divided into tiles, and how the elements of a tile are accessed. Only the shape decides this,
//! so that results do not depend on the number of threads.

use super::planes::{Cut, PlaneGrid};
use super::products::{LANES, ROWS, Term};
use crate::ConvShape;

/// Multiplications per nanosecond of one core.
const PRODUCTS_PER_NANO: usize = 30;
/// Elements of scratch per tile, unless one row of one image needs more: about half of a second-level cache.
const TILE: usize = 64 * 1024;
/// Work in nanoseconds below which a kernel is not divided further.
const WORTH_CUTTING: usize = 25_000;
/// The most tiles into which a kernel is divided to use more cores.
const MOST_CUTS: usize = 16;
/// The most elements that windows of one image may take for [`Reach::Gathered`].
const GATHERED: usize = 1024 * 1024;

/// The number of tiles that is worth it for `nanos` of work.
fn worth(nanos: usize) -> usize {
    (nanos / WORTH_CUTTING).clamp(1, MOST_CUTS)
}

/// How a term of a sum accesses the elements that it multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// At an offset in a padded copy of the images, split into the phases of the stride. Positions between rows and
    /// images are also summed, and then dropped.
    Shifted,
    /// In windows copied one by one. No sum is wasted, which pays off if images are small.
    Gathered,
}

/// A part of the images: several whole images, or some rows of one.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) first_image: usize,
    pub(super) images: usize,
    pub(super) first_row: usize,
    pub(super) rows: usize,
}

/// All tiles of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    batch: usize,
    rows: usize,
    pub(super) images_each: usize,
    pub(super) rows_each: usize,
}

impl Tiling {
    /// Tiles of `batch` images of `rows` rows: at least `cuts` of them, with at most `room(images, rows)` elements of
    /// scratch if possible.
    fn new(batch: usize, rows: usize, cuts: usize, room: impl Fn(usize, usize) -> usize) -> Self {
        let (mut images_each, mut rows_each) = (batch.div_ceil(cuts), rows);
        while images_each > 1 && room(images_each, rows_each) > TILE {
            images_each = images_each.div_ceil(2);
        }
        if images_each == 1 {
            rows_each = rows.div_ceil(cuts.div_ceil(batch));
            while rows_each > 1 && room(1, rows_each) > TILE {
                rows_each = rows_each.div_ceil(2);
            }
        }
        Self { batch, rows, images_each, rows_each }
    }

    pub(super) const fn count(&self) -> usize {
        self.batch.div_ceil(self.images_each) * self.rows.div_ceil(self.rows_each)
    }

    pub(super) fn tile(&self, i: usize) -> Tile {
        let bands = self.rows.div_ceil(self.rows_each);
        let (first_image, first_row) = (i / bands * self.images_each, i % bands * self.rows_each);
        Tile {
            first_image,
            images: self.images_each.min(self.batch - first_image),
            first_row,
            rows: self.rows_each.min(self.rows - first_row),
        }
    }
}

/// The plan for a convolution's windows, used by its forward pass and its weight's gradient.
pub(super) struct WindowsPlan {
    pub(super) reach: Reach,
    pub(super) tiling: Tiling,
    /// Output positions of a tile in scratch.
    pub(super) grid: PlaneGrid,
    /// One for each column of the weight: (in_channels, kernel, kernel).
    pub(super) terms: Vec<Term>,
    /// Elements of a tile's source in scratch.
    pub(super) source_len: usize,
    /// Estimated nanoseconds of all work on one core.
    pub(super) nanos: usize,
}

/// The number of phases of the stride that windows reach, in one dimension.
const fn phases(shape: &ConvShape) -> usize {
    if shape.stride < shape.kernel { shape.stride } else { shape.kernel }
}

impl WindowsPlan {
    /// A plan with at most `cuts` tiles for the sake of using more cores.
    pub(super) fn new(shape: &ConvShape, cuts: usize) -> Self {
        let &ConvShape { batch, in_channels, out_channels, out_height, out_width, kernel, stride, .. } = shape;
        // Elements beyond the positions that windows reach, in rows and columns of the phases.
        let beyond = (kernel - 1) / stride;
        let phases = phases(shape);
        let planes = in_channels * phases * phases;
        let shifted_area = (out_height + beyond) * (out_width + beyond);
        let products = |area: usize| batch * out_channels * shape.window() * area / PRODUCTS_PER_NANO;
        let shifted = products(shifted_area) + batch * (planes + out_channels) * shifted_area / 2;
        let gathered = products(shape.out_area()) + batch * (shape.window() + out_channels) * shape.out_area();
        let (reach, nanos) = if gathered < shifted && shape.window() * shape.out_area() <= GATHERED {
            (Reach::Gathered, gathered)
        } else {
            (Reach::Shifted, shifted)
        };
        let grid = |images, rows| match reach {
            Reach::Shifted => PlaneGrid::new(images, rows + beyond, out_width + beyond),
            Reach::Gathered => PlaneGrid::new(images, rows, out_width),
        };
        let sources = if reach == Reach::Shifted { planes } else { shape.window() };
        let tiling = Tiling::new(batch, out_height, worth(nanos).min(cuts), |images, rows| {
            (sources + out_channels) * grid(images, rows).run
        });
        let grid = grid(tiling.images_each, tiling.rows_each);
        let terms: Vec<Term> = (0..shape.window())
            .map(|p| {
                let (channel, u, v) = (p / (kernel * kernel), p / kernel % kernel, p % kernel);
                let plane = (channel * phases + u % stride) * phases + v % stride;
                let source = match reach {
                    Reach::Shifted => plane * grid.run + (u / stride) * grid.width + v / stride,
                    Reach::Gathered => p * grid.run,
                };
                Term { weight: p, source }
            })
            .collect();
        let source_len = terms.iter().map(|t| t.source).max().unwrap_or(0) + grid.run;
        Self { reach, tiling, grid, terms, source_len, nanos }
    }

    /// Summed positions of a tile: up to the last valid one, rounded up to whole vectors.
    pub(super) fn cols(&self, tile: &Tile, width: usize) -> usize {
        (self.grid.at(tile.images - 1, tile.rows - 1) + width).next_multiple_of(LANES)
    }

    /// The part of the source that a tile copies, and its destination grid.
    pub(super) fn source(&self, shape: &ConvShape, tile: &Tile) -> (Cut, PlaneGrid) {
        let (stride, phases, grid) = match self.reach {
            Reach::Shifted => (shape.stride, phases(shape), self.grid),
            Reach::Gathered => (1, 1, self.inside(shape)),
        };
        let cut = Cut {
            channels: shape.in_channels,
            height: shape.in_height,
            width: shape.in_width,
            first_image: tile.first_image,
            images: tile.images,
            rows: 0..shape.in_height,
            top: (tile.first_row * shape.stride).cast_signed() - shape.padding.cast_signed(),
            left: -shape.padding.cast_signed(),
            stride,
            phases,
        };
        (cut, grid)
    }

    /// The padded images from which [`Reach::Gathered`] copies windows.
    pub(super) fn inside(&self, shape: &ConvShape) -> PlaneGrid {
        let reach = |n| (n - 1) * shape.stride + shape.kernel;
        PlaneGrid::new(self.grid.images, reach(self.tiling.rows_each), reach(shape.out_width))
    }
}

/// How the work on a weight's gradient is divided: by positions, whose sums are added at the end, or by channels.
pub(super) struct WorkSplit {
    pub(super) positions: usize,
    /// Groups of channels of the output.
    pub(super) channels: usize,
    pub(super) channels_each: usize,
}

impl WorkSplit {
    pub(super) fn new(shape: &ConvShape) -> Self {
        /// The least number of positions for which a separate sum is worth it.
        const POSITIONS: usize = 256;
        /// The most sums that all parts may hold.
        const SUMS: usize = 4 * 1024 * 1024;
        let worth = worth(shape.products() / PRODUCTS_PER_NANO).min(8);
        let most = (shape.batch * shape.out_area() / POSITIONS).min(SUMS / shape.weight_len());
        if most >= 2 {
            return Self { positions: worth.min(most), channels: 1, channels_each: shape.out_channels };
        }
        // Each group copies the source again, so there are few groups, each of whole blocks of rows.
        let channels_each = shape.out_channels.div_ceil(worth.min(4)).next_multiple_of(ROWS);
        Self { positions: 1, channels: shape.out_channels.div_ceil(channels_each), channels_each }
    }
}

/// The plan for an input's gradient, one phase of the stride after another: within a phase, each element is a sum over
/// the same part of the window.
pub(super) struct Phases {
    pub(super) tiling: Tiling,
    /// Positions of a tile in scratch: rows and columns of the gradient, preceded by `beyond` zeros.
    pub(super) grid: PlaneGrid,
    /// (stride, stride) lists of terms.
    pub(super) terms: Vec<Vec<Term>>,
    /// The number of gradient rows and columns before its own that a position uses.
    pub(super) beyond: usize,
    /// First row and column of positions: (0 + padding) / stride.
    pub(super) origin: usize,
    /// Elements of the gradient in scratch.
    pub(super) source_len: usize,
    pub(super) nanos: usize,
}

/// Positions of one phase along a side of `n` elements.
const fn positions(shape: &ConvShape, n: usize) -> usize {
    (n - 1 + shape.padding) / shape.stride - shape.padding / shape.stride + 1
}

impl Phases {
    pub(super) fn new(shape: &ConvShape) -> Self {
        let &ConvShape { batch, in_channels, out_channels, kernel, stride, .. } = shape;
        let beyond = (kernel - 1) / stride;
        let (height, width) = (positions(shape, shape.in_height), positions(shape, shape.in_width));
        let nanos = phases_nanos(shape);
        let grid = |images, rows| PlaneGrid::new(images, rows + beyond, width + beyond);
        let tiling = Tiling::new(batch, height, worth(nanos), |images, rows| {
            (out_channels + in_channels * stride * stride) * grid(images, rows).run
        });
        let grid = grid(tiling.images_each, tiling.rows_each);
        let terms: Vec<Vec<Term>> = (0..stride * stride)
            .map(|phase| {
                let rows = (phase / stride..kernel).step_by(stride).enumerate();
                let windows: Vec<(usize, usize)> = rows
                    .flat_map(|(back_y, u)| {
                        let columns = (phase % stride..kernel).step_by(stride).enumerate();
                        columns.map(move |(back_x, v)| {
                            (u * kernel + v, (beyond - back_y) * grid.width + (beyond - back_x))
                        })
                    })
                    .collect();
                let of_channel = |o: usize| {
                    windows.iter().map(move |&(weight, source)| Term {
                        weight: o * shape.window() + weight,
                        source: o * grid.run + source,
                    })
                };
                (0..out_channels).flat_map(of_channel).collect()
            })
            .collect();
        let source_len = terms.iter().flatten().map(|t| t.source).max().unwrap_or(0) + grid.run;
        Self { tiling, grid, terms, beyond, origin: shape.padding / stride, source_len, nanos }
    }

    /// The part of the gradient that a tile copies.
    pub(super) fn source(&self, shape: &ConvShape, tile: &Tile) -> Cut {
        let first = |at: usize| at.cast_signed() - self.beyond.cast_signed();
        Cut {
            channels: shape.out_channels,
            height: shape.out_height,
            width: shape.out_width,
            first_image: tile.first_image,
            images: tile.images,
            rows: 0..shape.out_height,
            top: first(self.origin + tile.first_row),
            left: first(self.origin),
            stride: 1,
            phases: 1,
        }
    }
}

fn phases_nanos(shape: &ConvShape) -> usize {
    let beyond = (shape.kernel - 1) / shape.stride;
    let area = (positions(shape, shape.in_height) + beyond) * (positions(shape, shape.in_width) + beyond);
    let products = shape.batch * shape.out_channels * shape.window() * area / PRODUCTS_PER_NANO;
    products + shape.batch * (shape.out_channels * area + shape.in_channels * shape.in_area()) / 2
}

/// The plan for an input's gradient that computes windows first and then adds them up.
pub(super) struct ColumnsPlan {
    pub(super) tiling: Tiling,
    pub(super) grid: PlaneGrid,
    pub(super) terms: Vec<Term>,
    pub(super) nanos: usize,
}

impl ColumnsPlan {
    /// `None` if [`Phases`] is the better plan.
    pub(super) fn if_better(shape: &ConvShape) -> Option<Self> {
        let &ConvShape { batch, out_channels, out_height, out_width, .. } = shape;
        let columns = batch * shape.window() * shape.out_area();
        let nanos = shape.products() / PRODUCTS_PER_NANO + 2 * columns + batch * out_channels * shape.out_area();
        if nanos >= phases_nanos(shape) || shape.window() * shape.out_area() > GATHERED {
            return None;
        }
        // Only whole images, because windows of different rows overlap.
        let room = |images, _| (shape.window() + out_channels) * images * shape.out_area();
        let mut tiling = Tiling::new(batch, 1, worth(nanos), room);
        (tiling.rows, tiling.rows_each) = (out_height, out_height);
        let grid = PlaneGrid::new(tiling.images_each, out_height, out_width);
        let terms = (0..out_channels).map(|o| Term { weight: o * shape.window(), source: o * grid.run }).collect();
        Some(Self { tiling, grid, terms, nanos })
    }
}
