//! Copies of channels-last images as separate planes, for kernels that process one plane at a time.

use crate::cpu::cores::Cores;
use crate::cpu::operand::{Element, KernelResult, View};
use crate::{DType, HostVec};

/// Bytes of images that are copied at once, unless one image needs more.
const AT_ONCE: usize = 8 * 1024 * 1024;

/// The sides of a copy: images, channels, and elements of a plane.
pub(crate) type Sides = [usize; 3];

/// A buffer for planes of some images, or of a whole weight.
pub(crate) struct ImageBuffer {
    buffer: HostVec<u64>,
    dtype: DType,
    sides: Sides,
}

impl ImageBuffer {
    pub fn new(cores: &Cores, dtype: DType, sides: Sides) -> KernelResult<Self> {
        let bytes = sides.iter().product::<usize>() * dtype.size() as usize;
        Ok(Self { buffer: cores.vec(bytes.div_ceil(8))?, dtype, sides })
    }

    /// The planes of `images` images, with whatever they contain.
    pub fn planes(&mut self, images: usize) -> View<'_> {
        let [_, channels, area] = self.sides;
        View::over(&mut self.buffer, self.dtype, images * channels * area)
    }

    /// The planes of the images in `pixels`.
    pub fn of(&mut self, pixels: &View<'_>) -> View<'_> {
        let [_, channels, area] = self.sides;
        let images = pixels.len() / (channels * area).max(1);
        let planes = self.planes(images);
        to_planes(pixels, &planes, [images, channels, area]);
        planes
    }
}

/// The number of images copied at once, for operands of these types and sides.
pub(crate) fn at_once<const N: usize>(operands: [(DType, Sides); N]) -> usize {
    let of_image = |(dtype, [_, channels, area]): (DType, Sides)| channels * area * dtype.size() as usize;
    (AT_ONCE / operands.map(of_image).iter().sum::<usize>().max(1)).max(1)
}

/// The pixels of `images` images of `view`, starting at image `first`.
pub(crate) fn images_of<'a>(view: &View<'a>, [_, channels, area]: Sides, first: usize, images: usize) -> View<'a> {
    view.part(first * channels * area, images * channels * area)
}

/// Copies pixels to planes.
pub(crate) fn to_planes(pixels: &View<'_>, planes: &View<'_>, [images, channels, area]: Sides) {
    transpose(pixels, planes, [images, area, channels]);
}

/// Copies planes to pixels.
pub(crate) fn to_pixels(planes: &View<'_>, pixels: &View<'_>, sides: Sides) {
    transpose(planes, pixels, sides);
}

/// Transposes every matrix.
fn transpose(from: &View<'_>, to: &View<'_>, sides: Sides) {
    match from.dtype() {
        DType::F64 | DType::I64 => transpose_as::<i64>(from, to, sides),
        DType::F32 | DType::I32 => transpose_as::<i32>(from, to, sides),
        DType::F16 | DType::Bf16 => transpose_as::<u16>(from, to, sides),
        DType::U8 | DType::E4M3 | DType::E5M2 => transpose_as::<u8>(from, to, sides),
    }
}

fn transpose_as<T: Element>(from: &View<'_>, to: &View<'_>, [matrices, rows, cols]: Sides) {
    let (each, len) = (rows * cols, matrices * rows * cols);
    if each == 0 {
        return;
    }
    let (from, to) = (from.slice::<T>(0, len), to.slice_mut::<T>(0, len));
    for (from, to) in from.chunks_exact(each).zip(to.chunks_exact_mut(each)) {
        for (r, row) in from.chunks_exact(cols).enumerate() {
            row.iter().enumerate().for_each(|(c, &x)| to[c * rows + r] = x);
        }
    }
}
