//! Convolutions, forward and both gradients, which also serve as the transposed ones.

use super::Convolution;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{ConvShape, ImageLayout};

const fn shape(
    batch: usize,
    [in_channels, out_channels]: [usize; 2],
    [in_height, in_width]: [usize; 2],
    [kernel, stride, padding]: [usize; 3],
) -> ConvShape {
    ConvShape {
        batch,
        in_channels,
        in_height,
        in_width,
        out_channels,
        out_height: (in_height + 2 * padding - kernel) / stride + 1,
        out_width: (in_width + 2 * padding - kernel) / stride + 1,
        kernel,
        stride,
        padding,
        layout: ImageLayout::ChannelsFirst,
    }
}

const SHAPES: [ConvShape; 26] = [
    shape(1, [1, 1], [1, 1], [1, 1, 0]),
    shape(2, [3, 5], [7, 7], [1, 1, 0]),
    shape(4, [64, 32], [14, 14], [1, 1, 0]),
    shape(2, [16, 24], [9, 9], [1, 2, 0]),
    shape(3, [32, 64], [16, 16], [1, 2, 0]),
    shape(1, [1, 1], [3, 3], [3, 1, 1]),
    shape(2, [3, 7], [8, 8], [3, 1, 1]),
    shape(2, [3, 7], [9, 14], [3, 1, 1]),
    shape(2, [3, 7], [14, 9], [3, 2, 1]),
    shape(3, [17, 13], [9, 9], [3, 2, 1]),
    shape(3, [16, 16], [8, 8], [3, 2, 1]),
    shape(4, [32, 64], [16, 16], [3, 1, 1]),
    shape(2, [64, 64], [28, 28], [3, 1, 1]),
    shape(5, [8, 6], [11, 11], [3, 1, 0]),
    shape(2, [3, 16], [32, 32], [7, 2, 3]),
    shape(2, [3, 64], [56, 56], [7, 2, 3]),
    shape(1, [5, 9], [13, 13], [7, 1, 3]),
    shape(3, [5, 9], [16, 16], [4, 2, 1]),
    shape(4, [3, 8], [64, 64], [4, 2, 1]),
    shape(6, [32, 1], [4, 4], [4, 1, 0]),
    shape(6, [16, 100], [4, 4], [4, 1, 0]),
    shape(2, [4, 6], [17, 17], [5, 3, 2]),
    shape(2, [3, 48], [32, 32], [8, 8, 0]),
    shape(2, [3, 20], [64, 48], [16, 16, 0]),
    shape(33, [3, 4], [6, 6], [3, 1, 1]),
    shape(16, [128, 128], [4, 4], [3, 1, 1]),
];

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::PRODUCTS {
        let last = SHAPES.map(|shape| ConvShape { layout: ImageLayout::ChannelsLast, ..shape });
        for shape in SHAPES.into_iter().chain(last) {
            for bias in [false, true] {
                forward(session, precision, shape, bias);
            }
            gradients(session, precision, shape);
        }
    }
}

fn title(shape: &ConvShape) -> String {
    let ConvShape { batch, in_channels, in_height, in_width, out_channels, kernel, stride, padding, .. } = shape;
    let last = if shape.layout == ImageLayout::ChannelsLast { ", channels last" } else { "" };
    format!(
        "{batch} × {in_channels} × {in_height} × {in_width} to {out_channels} channels, {kernel} × {kernel}, stride \
         {stride}, padding {padding}{last}"
    )
}

fn forward(session: &mut Session<'_>, precision: Precision, shape: ConvShape, with_bias: bool) {
    let dtype = precision.dtype();
    let title = format!("{}{}", title(&shape), if with_bias { ", bias" } else { "" });
    let mut case = Case::new("conv2d", precision, title).work(shape.products());
    let src = case.input("src", dtype, shape.in_len(), Values::STANDARD);
    let weight = case.input("weight", dtype, shape.weight_len(), Values::Normal(0.0, 0.3));
    let bias = with_bias.then(|| case.input("bias", dtype, shape.out_channels, Values::STANDARD));
    let dst = case.output("dst", dtype, shape.out_len(), ErrorBound::Sum(shape.window()));
    session.check(&case, |at| Convolution::Forward {
        shape,
        src: at[src],
        weight: at[weight],
        bias: bias.map(|bias| at[bias]),
        dst: at[dst],
    });
}

fn gradients(session: &mut Session<'_>, precision: Precision, shape: ConvShape) {
    let dtype = precision.dtype();
    let mut case = Case::new("conv2d_backward_input", precision, title(&shape)).work(shape.products());
    let grad = case.input("grad", dtype, shape.out_len(), Values::STANDARD);
    let weight = case.input("weight", dtype, shape.weight_len(), Values::Normal(0.0, 0.3));
    let terms = shape.out_channels * shape.kernel * shape.kernel;
    let dst = case.output("dst", dtype, shape.in_len(), ErrorBound::Sum(terms));
    session.check(&case, |at| Convolution::BackwardInput { shape, grad: at[grad], weight: at[weight], dst: at[dst] });
    let mut case = Case::new("conv2d_backward_weight", precision, title(&shape)).work(shape.products());
    let grad = case.input("grad", dtype, shape.out_len(), Values::STANDARD);
    let src = case.input("src", dtype, shape.in_len(), Values::STANDARD);
    let terms = shape.batch * shape.out_area();
    let dst = case.output("dst", dtype, shape.weight_len(), ErrorBound::Sum(terms));
    session.check(&case, |at| Convolution::BackwardWeight { shape, grad: at[grad], src: at[src], dst: at[dst] });
}
