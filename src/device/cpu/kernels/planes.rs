//! Images whose channels lie next to each other, for kernels that go plane by plane: these work on copies.

use crate::device::DType;
use crate::device::cpu::operand::{Element, View};

/// Planes of a copy: images, channels, elements of a plane.
pub(super) type Sides = [usize; 3];

/// Memory for the copies of `N` operands.
pub(super) struct Copies<const N: usize>([Vec<u64>; N]);

impl<const N: usize> Copies<N> {
    pub fn of(views: [&View<'_>; N]) -> Self {
        Self(views.map(|view| vec![0; (view.len() * view.dtype().size() as usize).div_ceil(8)]))
    }

    /// The copies, of undefined contents.
    pub fn views(&mut self, like: [&View<'_>; N]) -> [View<'_>; N] {
        let mut buffers = self.0.each_mut().into_iter();
        like.map(|view| View::over(buffers.next().map_or(&mut [], |buffer| buffer), view.dtype(), view.len()))
    }
}

/// Copies pixels to planes.
pub(super) fn to_planes(pixels: &View<'_>, planes: &View<'_>, [images, channels, area]: Sides) {
    transpose(pixels, planes, [images, area, channels]);
}

/// Copies planes to pixels.
pub(super) fn to_pixels(planes: &View<'_>, pixels: &View<'_>, sides: Sides) {
    transpose(planes, pixels, sides);
}

/// Exchanges rows and columns of every matrix.
fn transpose(from: &View<'_>, to: &View<'_>, sides: Sides) {
    match from.dtype() {
        DType::F64 | DType::I64 => transpose_as::<i64>(from, to, sides),
        DType::F32 | DType::I32 => transpose_as::<i32>(from, to, sides),
        DType::F16 | DType::Bf16 => transpose_as::<u16>(from, to, sides),
        DType::U8 => transpose_as::<u8>(from, to, sides),
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
