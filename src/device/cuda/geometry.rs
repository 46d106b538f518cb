//! The shape of a convolution, as kernels receive it.

use crate::{ConvShape, ImageLayout};

/// Eleven numbers, in the order of the kernels' structure.
pub(crate) fn geometry(shape: &ConvShape) -> [usize; 11] {
    [
        shape.batch,
        shape.in_channels,
        shape.in_height,
        shape.in_width,
        shape.out_channels,
        shape.out_height,
        shape.out_width,
        shape.kernel,
        shape.stride,
        shape.padding,
        usize::from(shape.layout == ImageLayout::ChannelsLast),
    ]
}
