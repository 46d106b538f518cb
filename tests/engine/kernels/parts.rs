//! Kernels that convert or copy their operands do so in parts: results are those of the whole, also with several parts.

use vramlab::device::{ConvShape, DType, ImageLayout, Operand, PoolShape, kernels};
use vramlab::units::StreamId;

use super::convolution::convolution;
use super::harness::{Bench, assert_close, matrix, random, tolerance, transposed};

#[test]
fn products_of_16_bit_matrices_are_those_of_the_definition_however_they_are_cut() {
    // More rows than are processed at once, more columns, more terms, and one of many products.
    for (m, n, k, batch) in [(2500, 600, 8, 1), (40, 70_000, 16, 1), (24, 40, 50_001, 1), (700, 500, 9, 2)] {
        for (turned, result) in [(false, DType::Bf16), (true, DType::F32)] {
            let mut bench = Bench::new();
            let (a, x) = bench.random(DType::Bf16, batch * m * k, 1);
            let (b, y) = bench.random(DType::Bf16, batch * k * n, 2);
            let (c, before) = bench.random(result, batch * m * n, 3);
            let (bias, shift) = bench.random(DType::Bf16, n, 4);
            let mut views = if turned {
                [transposed(matrix(a, m)), transposed(matrix(b, k)), matrix(c, n)]
            } else {
                [matrix(a, k), matrix(b, n), transposed(matrix(c, m))]
            };
            views.iter_mut().zip([m * k, k * n, m * n]).for_each(|(view, stride)| view.batch_stride = stride);
            let [of_a, of_b, of_c] = views;
            let product =
                |beta, bias| kernels::Gemm { m, n, k, batch, a: of_a, b: of_b, c: of_c, bias, alpha: 0.5, beta };
            // Some elements of every part, with the first and the last.
            let some = |len: usize| (0..len).step_by((len / 23).max(1)).chain([len - 1]);
            let places: Vec<[usize; 3]> = (0..batch)
                .flat_map(|s| some(m).map(move |i| (s, i)))
                .flat_map(|(s, i)| some(n).map(move |j| [s, i, j]))
                .collect();
            let sum = |&[s, i, j]: &[usize; 3]| {
                let xs = x[s * m * k + i * of_a.row_stride..].iter().step_by(of_a.col_stride);
                let ys = y[s * k * n + j * of_b.col_stride..].iter().step_by(of_b.row_stride);
                0.5 * xs.zip(ys).take(k).map(|(x, y)| x * y).sum::<f64>()
            };
            let sums: Vec<f64> = places.iter().map(sum).collect();
            let check = |got: &[f64], start: &dyn Fn(usize, usize) -> f64, what: &str| {
                for (&[s, i, j], sum) in places.iter().zip(&sums) {
                    let at = s * m * n + i * of_c.row_stride + j * of_c.col_stride;
                    let truth = sum + start(at, j);
                    let what = format!("{what} {m}×{n}×{k} turned {turned}: ({s}, {i}, {j})");
                    assert_close(&[got[at]], &[truth], tolerance(result), 4.0 + k as f64 / 8.0, &what);
                }
            };
            bench.run(product(0.0, Some(bias)));
            check(&bench.get(c), &|_, j| shift[j], "with a bias");
            let before_again = bench.get(c);
            bench.run(product(-1.5, None));
            check(&bench.get(c), &|at, _| -1.5 * before_again[at], "added");
            drop(before);
        }
    }
}

/// Stores f32 values; the harness is slow with many.
fn put(bench: &mut Bench, values: &[f32]) -> Operand {
    let operand = bench.empty(DType::F32, values.len());
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    vramlab::device::Device::copy_pageable(&mut bench.device, &bytes, operand.address, StreamId::DEFAULT).unwrap();
    operand
}

fn get(bench: &mut Bench, operand: Operand) -> Vec<f32> {
    bench.bytes(operand).chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn values(len: usize, seed: u32) -> Vec<f32> {
    random(len, seed).into_iter().map(|x| x as f32).collect()
}

/// (images, channels, area) as (images, area, channels).
fn channels_last<T: Copy>(planes: &[T], [channels, area]: [usize; 2]) -> Vec<T> {
    let image = |image: &[T]| -> Vec<T> {
        (0..area).flat_map(|at| (0..channels).map(move |c| c * area + at)).map(|at| image[at]).collect()
    };
    planes.chunks_exact(channels * area).flat_map(image).collect()
}

fn assert_near(got: &[f32], truth: &[f32], what: &str) {
    assert_eq!(got.len(), truth.len(), "{what}");
    let worst = got.iter().zip(truth).map(|(a, b)| (a - b).abs() / (1.0 + b.abs())).fold(0.0, f32::max);
    assert!(worst < 1e-4, "{what}: {worst}");
}

/// Seven images of 1.6 MB, which are not all copied at once.
fn large_images() -> ConvShape {
    convolution([7, 3, 3], [256, 256], [3, 1, 1]).unwrap()
}

#[test]
fn convolutions_of_more_images_than_are_copied_at_once_are_those_of_planes() {
    let shape = large_images();
    let last = ConvShape { layout: ImageLayout::ChannelsLast, ..shape };
    let [input, weights, output] = [[3, shape.in_area()], [3, shape.kernel * shape.kernel], [3, shape.out_area()]];
    let (x, w, g) = (values(shape.in_len(), 1), values(shape.weight_len(), 2), values(shape.out_len(), 3));
    let mut bench = Bench::new();
    let [src, grad, dst] = [put(&mut bench, &x), put(&mut bench, &g), bench.empty(DType::F32, shape.out_len())];
    let (weight, dweight) = (put(&mut bench, &w), bench.empty(DType::F32, shape.weight_len()));
    bench.run(kernels::Convolution::Forward { shape, src, weight, bias: None, dst });
    let y = get(&mut bench, dst);
    bench.run(kernels::Convolution::BackwardInput { shape, grad, weight, dst });
    let dx = get(&mut bench, dst);
    bench.run(kernels::Convolution::BackwardWeight { shape, grad, src, dst: dweight });
    let dw = get(&mut bench, dweight);

    let mut bench = Bench::new();
    let src = put(&mut bench, &channels_last(&x, input));
    let grad = put(&mut bench, &channels_last(&g, output));
    let weight = put(&mut bench, &channels_last(&w, weights));
    let (dst, dweight) = (bench.empty(DType::F32, shape.out_len()), bench.empty(DType::F32, shape.weight_len()));
    bench.run(kernels::Convolution::Forward { shape: last, src, weight, bias: None, dst });
    assert_near(&get(&mut bench, dst), &channels_last(&y, output), "forward");
    bench.run(kernels::Convolution::BackwardInput { shape: last, grad, weight, dst });
    assert_near(&get(&mut bench, dst), &channels_last(&dx, input), "gradient of the input");
    bench.run(kernels::Convolution::BackwardWeight { shape: last, grad, src, dst: dweight });
    let size = dw.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let relative = |values: &[f32]| -> Vec<f32> { values.iter().map(|x| x / size).collect() };
    assert_near(
        &relative(&get(&mut bench, dweight)),
        &relative(&channels_last(&dw, weights)),
        "gradient of the weight",
    );
}

#[test]
fn pooling_of_more_images_than_are_copied_at_once_is_that_of_planes() {
    let ConvShape { in_height, in_width, .. } = large_images();
    let shape = PoolShape {
        planes: 27,
        in_height,
        in_width,
        out_height: in_height / 2,
        out_width: in_width / 2,
        kernel: 2,
        stride: 2,
        padding: 0,
        interleaved: 1,
    };
    let last = PoolShape { interleaved: 3, ..shape };
    let (inside, outside) = (27 * shape.in_area(), 27 * shape.out_area());
    let (x, g) = (values(inside, 1), values(outside, 2));
    let run = |shape: PoolShape, x: &[f32], g: &[f32]| {
        let mut bench = Bench::new();
        let [src, grad] = [put(&mut bench, x), put(&mut bench, g)];
        let [dst, dsrc] = [outside, inside].map(|len| bench.empty(DType::F32, len));
        let indices = bench.empty(DType::I64, outside);
        bench.run(kernels::Pool::Max { src, dst, indices, shape });
        bench.run(kernels::Pool::MaxBackward { grad, indices, dst: dsrc, shape });
        let places: Vec<u64> = bench.bytes(indices).as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
        (get(&mut bench, dst), places, get(&mut bench, dsrc))
    };
    let (input, output) = ([3, shape.in_area()], [3, shape.out_area()]);
    let (best, places, gradients) = run(shape, &x, &g);
    let (best_last, places_last, gradients_last) = run(last, &channels_last(&x, input), &channels_last(&g, output));
    assert_eq!(best_last, channels_last(&best, output));
    assert_eq!(places_last, channels_last(&places, output));
    assert_eq!(gradients_last, channels_last(&gradients, input));
}
