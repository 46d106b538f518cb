//! Convolutions and their gradients against the definition, in f64.

use vramlab::device::{ConvShape, DType, ImageLayout, kernels};

use super::harness::{Bench, FLOATS, assert_close, tolerance};

/// A square window over `in_channels` × `height` × `width`; `None` if it does not fit.
pub fn convolution(
    [batch, in_channels, out_channels]: [usize; 3],
    [in_height, in_width]: [usize; 2],
    [kernel, stride, padding]: [usize; 3],
) -> Option<ConvShape> {
    let side = |n: usize| Some((n + 2 * padding).checked_sub(kernel)? / stride + 1);
    Some(ConvShape {
        batch,
        in_channels,
        in_height,
        in_width,
        out_channels,
        out_height: side(in_height)?,
        out_width: side(in_width)?,
        kernel,
        stride,
        padding,
        layout: ImageLayout::ChannelsFirst,
    })
}

/// Calls `each` with the indices in input, weight and output of every product.
fn products(s: &ConvShape, mut each: impl FnMut(usize, usize, usize)) {
    for n in 0..s.batch {
        for (o, i) in (0..s.out_channels).flat_map(|o| (0..s.in_channels).map(move |i| (o, i))) {
            for (y, x) in (0..s.out_height).flat_map(|y| (0..s.out_width).map(move |x| (y, x))) {
                for (u, v) in (0..s.kernel).flat_map(|u| (0..s.kernel).map(move |v| (u, v))) {
                    let (row, col) = (y * s.stride + u, x * s.stride + v);
                    if row < s.padding || col < s.padding {
                        continue;
                    }
                    let (row, col) = (row - s.padding, col - s.padding);
                    if row < s.in_height && col < s.in_width {
                        let input = ((n * s.in_channels + i) * s.in_height + row) * s.in_width + col;
                        let weight = ((o * s.in_channels + i) * s.kernel + u) * s.kernel + v;
                        let output = ((n * s.out_channels + o) * s.out_height + y) * s.out_width + x;
                        each(input, weight, output);
                    }
                }
            }
        }
    }
}

fn compare(shape: ConvShape, dtype: DType, with_bias: bool) {
    let mut bench = Bench::new();
    let (src, x) = bench.random(dtype, shape.in_len(), 1);
    let (weight, w) = bench.random(dtype, shape.weight_len(), 2);
    let (grad, g) = bench.random(dtype, shape.out_len(), 3);
    let (bias, b) = bench.random(dtype, shape.out_channels, 4);
    let [mut y, mut dx, mut dw] = [shape.out_len(), shape.in_len(), shape.weight_len()].map(|n| vec![0.0; n]);
    // Errors grow with the size of the terms, not of their sum.
    let [mut size_y, mut size_dx, mut size_dw] = [0.0_f64; 3];
    if with_bias {
        y.iter_mut().enumerate().for_each(|(i, y)| *y = b[i / shape.out_area() % shape.out_channels]);
    }
    products(&shape, |i, p, o| {
        y[o] += w[p] * x[i];
        dx[i] += w[p] * g[o];
        dw[p] += g[o] * x[i];
    });
    let bounds = |n: usize| n as f64;
    size_y += bounds(shape.window());
    size_dx += bounds(shape.out_channels * shape.kernel * shape.kernel);
    size_dw += bounds(shape.batch * shape.out_area());
    let close = |got: &[f64], truth: &[f64], size: f64, what: &str| {
        assert_close(got, truth, tolerance(dtype), size, &format!("{what}, {dtype:?}, {shape:?}"));
    };
    // The kernels' results replace whatever was there.
    let [out, dsrc, dweight] = [y.len(), dx.len(), dw.len()].map(|n| bench.put(dtype, &vec![f64::NAN; n]));
    bench.run(kernels::Convolution::Forward { shape, src, weight, bias: with_bias.then_some(bias), dst: out });
    close(&bench.get(out), &y, size_y, "forward");
    bench.run(kernels::Convolution::BackwardInput { shape, grad, weight, dst: dsrc });
    close(&bench.get(dsrc), &dx, size_dx, "gradient of the input");
    bench.run(kernels::Convolution::BackwardWeight { shape, grad, src, dst: dweight });
    close(&bench.get(dweight), &dw, size_dw, "gradient of the weight");
}

#[test]
fn every_window_stride_and_padding() {
    let mut shapes = 0;
    for kernel in [1, 2, 3, 4, 7] {
        for (stride, padding) in [1, 2, 3, 4, 8].into_iter().flat_map(|s| (0..4).map(move |p| (s, p))) {
            for (batch, sides) in [(1, [9, 7]), (3, [5, 12]), (2, [1, 1]), (5, [2, 3]), (2, [4, 4])] {
                let channels = [batch, 1 + (kernel + stride) % 5, 1 + (kernel + padding) % 6];
                if let Some(shape) = convolution(channels, sides, [kernel, stride, padding]) {
                    assert!(shape.is_consistent());
                    compare(shape, DType::F32, padding == 1);
                    shapes += 1;
                }
            }
        }
    }
    assert!(shapes > 300, "{shapes}");
}

/// Sizes that are cut into several tiles, of whole images and of rows, and very small ones.
#[test]
fn large_images_many_images_and_many_channels() {
    for (channels, sides, window) in [
        ([1, 5, 7], [150, 91], [3, 1, 1]),
        ([1, 3, 8], [97, 130], [7, 2, 3]),
        ([2, 70, 9], [33, 40], [3, 2, 1]),
        ([33, 3, 8], [16, 16], [4, 2, 1]),
        ([16, 64, 64], [2, 2], [3, 2, 1]),
        ([4, 64, 100], [4, 4], [4, 1, 0]),
        ([16, 37, 130], [1, 1], [1, 1, 0]),
        ([7, 32, 64], [8, 8], [1, 2, 0]),
        ([4, 300, 1], [4, 4], [4, 1, 0]),
        ([2, 3, 20], [64, 64], [8, 8, 0]),
    ] {
        compare(convolution(channels, sides, window).unwrap(), DType::F32, true);
    }
}

#[test]
fn every_type_of_float() {
    for dtype in FLOATS {
        for (channels, sides, window) in [
            ([2, 3, 5], [11, 9], [3, 1, 1]),
            ([2, 5, 6], [9, 10], [4, 2, 1]),
            ([3, 9, 4], [6, 6], [1, 1, 0]),
            ([3, 4, 5], [1, 1], [1, 2, 0]),
            ([2, 16, 11], [4, 4], [4, 1, 0]),
        ] {
            compare(convolution(channels, sides, window).unwrap(), dtype, true);
        }
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let shape = convolution([1, 2, 3], [6, 6], [3, 1, 1]).unwrap();
    let mut bench = Bench::new();
    let [src, weight, dst] = [shape.in_len(), shape.weight_len(), shape.out_len()].map(|n| bench.empty(DType::F32, n));
    let short = bench.empty(DType::F32, 2);
    let conv = |shape, src, bias| kernels::Convolution::Forward { shape, src, weight, bias, dst };
    assert!(bench.try_run(conv(shape, src, None)).is_ok());
    assert!(bench.try_run(conv(shape, short, None)).is_err());
    assert!(bench.try_run(conv(shape, src, Some(short))).is_err());
    assert!(bench.try_run(conv(ConvShape { out_width: 5, ..shape }, src, None)).is_err());
    assert!(bench.try_run(conv(ConvShape { stride: 0, ..shape }, src, None)).is_err());
    assert!(bench.try_run(conv(shape, dst, None)).is_err(), "in place is impossible");
}
