//! Batch normalisation, pooling, means, activations and losses of convolution nets against their formulas, in f64.

use vramlab::device::{ChannelShape, DType, Operand, PoolShape, kernels};

use super::harness::{Bench, FLOATS, assert_close, random, tolerance};

/// Shapes around the blocks that kernels process, large areas and single elements.
const CHANNELS: [ChannelShape; 8] = [
    channels(1, 1, 2),
    channels(16, 8, 64),
    channels(3, 5, 1),
    channels(16, 700, 1),
    channels(5, 130, 16),
    channels(2, 3, 513),
    channels(1, 2, 9000),
    channels(4, 8, 1024),
];

const fn channels(batch: usize, channels: usize, area: usize) -> ChannelShape {
    ChannelShape { batch, channels, area }
}

/// The values of one channel.
fn of_channel(x: &[f64], s: ChannelShape, c: usize) -> Vec<f64> {
    (0..x.len()).filter(|i| i / s.area % s.channels == c).map(|i| x[i]).collect()
}

fn mean_of(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Mean, variance of the population and values in all.
fn statistics(x: &[f64], s: ChannelShape, c: usize) -> (f64, f64, f64) {
    let values = of_channel(x, s, c);
    let mean = mean_of(&values);
    let squares: Vec<f64> = values.iter().map(|x| (x - mean).powi(2)).collect();
    (mean, mean_of(&squares), values.len() as f64)
}

#[test]
fn batch_norm_of_every_type_and_shape() {
    let (eps, momentum) = (1e-5_f32, 0.1_f32);
    for (shape, dtype) in CHANNELS.into_iter().flat_map(|s| FLOATS.map(|d| (s, d))) {
        let mut bench = Bench::new();
        let of_statistics = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let what = format!("{dtype:?} {shape:?}");
        let (src, x) = bench.random(dtype, shape.len(), 1);
        let (weight, w) = bench.random(of_statistics, shape.channels, 2);
        let (bias, b) = bench.random(of_statistics, shape.channels, 3);
        let (running_mean, before_mean) = bench.random(of_statistics, shape.channels, 4);
        let (running_var, before_var) = bench.random(of_statistics, shape.channels, 5);
        let dst = bench.empty(dtype, shape.len());
        let [mean, rstd] = [(); 2].map(|()| bench.empty(of_statistics, shape.channels));
        bench.run(kernels::BatchNorm::Forward {
            src,
            weight,
            bias,
            dst,
            mean,
            rstd,
            running_mean,
            running_var,
            shape,
            eps,
            momentum,
        });
        let fine = tolerance(of_statistics);
        let truth: Vec<_> = (0..shape.channels).map(|c| statistics(&x, shape, c)).collect();
        let each = |f: &dyn Fn(usize, f64, f64, f64) -> f64| -> Vec<f64> {
            truth.iter().enumerate().map(|(c, &(mean, variance, n))| f(c, mean, variance, n)).collect()
        };
        let scale = |variance: f64| 1.0 / (variance + f64::from(eps)).sqrt();
        assert_close(&bench.get(mean), &each(&|_, mean, _, _| mean), fine, 1.0, &what);
        let rstds = each(&|_, _, variance, _| scale(variance));
        assert_close(&bench.get(rstd), &rstds, 4.0 * fine, 0.0, &what);
        let kept = 1.0 - f64::from(momentum);
        let means = each(&|c, mean, _, _| kept * before_mean[c] + f64::from(momentum) * mean);
        assert_close(&bench.get(running_mean), &means, fine, 1.0, &what);
        let vars = each(&|c, _, variance, n| kept * before_var[c] + f64::from(momentum) * variance * n / (n - 1.0));
        assert_close(&bench.get(running_var), &vars, fine, 1.0, &what);
        let channel = |i: usize| i / shape.area % shape.channels;
        let y: Vec<f64> = (0..x.len())
            .map(|i| {
                let (mean, variance, _) = truth[channel(i)];
                (x[i] - mean) * scale(variance) * w[channel(i)] + b[channel(i)]
            })
            .collect();
        assert_close(&bench.get(dst), &y, tolerance(dtype), 8.0 + rstds.iter().fold(0.0, |a, &b| b.max(a)), &what);

        let (grad, g) = bench.random(dtype, shape.len(), 6);
        let dsrc = bench.empty(dtype, shape.len());
        let [dweight, dbias] = [(); 2].map(|()| bench.empty(of_statistics, shape.channels));
        bench.run(kernels::BatchNorm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, shape });
        let normalised = |i: usize| (x[i] - truth[channel(i)].0) * scale(truth[channel(i)].1);
        let (mut dw, mut db) = (vec![0.0; shape.channels], vec![0.0; shape.channels]);
        for i in 0..x.len() {
            dw[channel(i)] += g[i] * normalised(i);
            db[channel(i)] += g[i];
        }
        let dx: Vec<f64> = (0..x.len())
            .map(|i| {
                let (c, n) = (channel(i), truth[channel(i)].2);
                w[c] * rstds[c] * (g[i] - db[c] / n - normalised(i) * dw[c] / n)
            })
            .collect();
        let terms = shape.per_channel() as f64;
        assert_close(&bench.get(dweight), &dw, 4.0 * fine, 4.0 * terms, &what);
        assert_close(&bench.get(dbias), &db, 4.0 * fine, terms, &what);
        let largest = rstds.iter().fold(1.0, |a: f64, &b| a.max(b));
        assert_close(&bench.get(dsrc), &dx, tolerance(dtype), 16.0 * largest, &what);

        let sums = bench.empty(of_statistics, shape.channels);
        bench.run(kernels::Sums::Channels { src: grad, dst: sums, shape });
        assert_close(&bench.get(sums), &db, 4.0 * fine, terms, &what);
    }
}

#[test]
fn batch_norm_by_running_statistics() {
    let eps = 1e-3_f32;
    for (shape, dtype) in CHANNELS.into_iter().flat_map(|s| FLOATS.map(|d| (s, d))) {
        let mut bench = Bench::new();
        let of_statistics = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let (src, x) = bench.random(dtype, shape.len(), 1);
        let (weight, w) = bench.random(of_statistics, shape.channels, 2);
        let (bias, b) = bench.random(of_statistics, shape.channels, 3);
        let (running_mean, m) = bench.random(of_statistics, shape.channels, 4);
        let variance: Vec<f64> = random(shape.channels, 5).iter().map(|x| x.abs() + 0.1).collect();
        let running_var = bench.put(of_statistics, &variance);
        let variance = bench.get(running_var);
        let dst = bench.empty(dtype, shape.len());
        bench.run(kernels::BatchNorm::Inference { src, weight, bias, running_mean, running_var, dst, shape, eps });
        let y: Vec<f64> = (0..x.len())
            .map(|i| {
                let c = i / shape.area % shape.channels;
                (x[i] - m[c]) / (variance[c] + f64::from(eps)).sqrt() * w[c] + b[c]
            })
            .collect();
        assert_close(&bench.get(dst), &y, tolerance(dtype), 8.0, &format!("{dtype:?} {shape:?}"));
    }
}

#[test]
fn batch_norm_of_one_element_a_channel_has_no_variance() {
    let mut bench = Bench::new();
    let shape = channels(1, 3, 1);
    let [src, weight, bias, dst, mean, rstd, running_mean, running_var] = [(); 8].map(|()| bench.empty(DType::F32, 3));
    let (eps, momentum) = (1e-5, 0.1);
    let kernel = kernels::BatchNorm::Forward {
        src,
        weight,
        bias,
        dst,
        mean,
        rstd,
        running_mean,
        running_var,
        shape,
        eps,
        momentum,
    };
    assert!(bench.try_run(kernel).is_err());
}

fn pool(planes: usize, [in_height, in_width]: [usize; 2], [kernel, stride, padding]: [usize; 3]) -> Option<PoolShape> {
    let side = |n: usize| Some((n + 2 * padding).checked_sub(kernel)? / stride + 1);
    let (out_height, out_width) = (side(in_height)?, side(in_width)?);
    Some(PoolShape { planes, in_height, in_width, out_height, out_width, kernel, stride, padding, interleaved: 1 })
}

/// The largest element of each window and its place in the plane.
fn pooled(x: &[f64], s: &PoolShape) -> (Vec<f64>, Vec<f64>) {
    let mut result = (Vec::new(), Vec::new());
    for plane in x.chunks(s.in_area()) {
        for (y, x) in (0..s.out_height).flat_map(|y| (0..s.out_width).map(move |x| (y, x))) {
            let mut best: Option<(f64, usize)> = None;
            for (u, v) in (0..s.kernel).flat_map(|u| (0..s.kernel).map(move |v| (u, v))) {
                let (row, col) = (y * s.stride + u, x * s.stride + v);
                if row < s.padding || col < s.padding {
                    continue;
                }
                let (row, col) = (row - s.padding, col - s.padding);
                if row < s.in_height && col < s.in_width {
                    let at = row * s.in_width + col;
                    if best.is_none_or(|(value, _)| plane[at] > value || plane[at].is_nan()) {
                        best = Some((plane[at], at));
                    }
                }
            }
            let (value, at) = best.unwrap();
            result.0.push(value);
            result.1.push(at as f64);
        }
    }
    result
}

#[test]
fn pooling_finds_the_first_largest_element_and_leads_gradients_there() {
    let windows = [[1, 1, 0], [2, 2, 0], [3, 2, 1], [3, 1, 1], [4, 3, 2], [7, 4, 3], [2, 3, 1]];
    for (window, sides) in windows.into_iter().flat_map(|w| [[1, 1], [7, 9], [16, 16], [40, 33]].map(|s| (w, s))) {
        let Some(shape) = pool(13, sides, window) else { continue };
        for dtype in FLOATS {
            let mut bench = Bench::new();
            let what = format!("{dtype:?} {shape:?}");
            // Few different values: many are equal.
            let values: Vec<f64> =
                random(shape.planes * shape.in_area(), 1).iter().map(|x| (x * 4.0).round() / 4.0).collect();
            let src = bench.put(dtype, &values);
            let outputs = shape.planes * shape.out_area();
            let (dst, indices) = (bench.empty(dtype, outputs), bench.empty(DType::I64, outputs));
            bench.run(kernels::Pool::Max { src, dst, indices, shape });
            let (largest, places) = pooled(&values, &shape);
            assert_eq!(bench.get(dst), largest, "{what}");
            assert_eq!(bench.get(indices), places, "{what}");
            let (grad, g) = bench.random(dtype, outputs, 2);
            let back = bench.put(dtype, &vec![f64::NAN; values.len()]);
            bench.run(kernels::Pool::MaxBackward { grad, indices, dst: back, shape });
            let mut truth = vec![0.0; values.len()];
            for (i, (place, g)) in places.iter().zip(&g).enumerate() {
                truth[i / shape.out_area() * shape.in_area() + *place as usize] += g;
            }
            assert_close(&bench.get(back), &truth, tolerance(dtype), 8.0, &what);
        }
    }
}

#[test]
fn pooling_passes_nan_on_and_keeps_a_place_for_minus_infinity() {
    let mut bench = Bench::new();
    let shape = pool(1, [2, 4], [2, 2, 0]).unwrap();
    let low = f64::NEG_INFINITY;
    let src = bench.put(DType::F32, &[1.0, 5.0, low, low, f64::NAN, 9.0, low, low]);
    let (dst, indices) = (bench.empty(DType::F32, 2), bench.empty(DType::I64, 2));
    bench.run(kernels::Pool::Max { src, dst, indices, shape });
    let values = bench.get(dst);
    // PyTorch takes what is larger or NaN, and 9 is not larger than NaN.
    assert!(values[0].is_nan() && values[1] == low);
    assert_eq!(bench.get(indices), [4.0, 2.0]);
    let wrong = bench.put(DType::I64, &[0.0, 8.0]);
    let (grad, back) = (bench.empty(DType::F32, 2), bench.empty(DType::F32, 8));
    assert!(bench.try_run(kernels::Pool::MaxBackward { grad, indices: wrong, dst: back, shape }).is_err());
    assert!(bench.try_run(kernels::Pool::Max { src, dst, indices: dst, shape }).is_err());
    let thick = PoolShape { padding: 2, out_height: 3, out_width: 4, ..shape };
    assert!(bench.try_run(kernels::Pool::Max { src, dst, indices, shape: thick }).is_err());
}

#[test]
fn means_over_the_middle_dimension() {
    for [outer, middle, inner] in [[1, 1, 1], [128, 1, 1], [16, 64, 1], [3, 7, 5], [4, 16, 32], [2, 1000, 3], [1, 2, 9]]
    {
        for dtype in FLOATS {
            let mut bench = Bench::new();
            let what = format!("{dtype:?} {outer} {middle} {inner}");
            let (src, x) = bench.random(dtype, outer * middle * inner, 1);
            let dst = bench.empty(dtype, outer * inner);
            bench.run(kernels::Sums::Mean { src, dst, outer, middle, inner });
            let mut truth = vec![0.0; outer * inner];
            for (i, x) in x.iter().enumerate() {
                truth[i / (middle * inner) * inner + i % inner] += x / middle as f64;
            }
            assert_close(&bench.get(dst), &truth, tolerance(dtype), 1.0, &what);
            let back = bench.empty(dtype, x.len());
            let (grad, g) = bench.random(dtype, outer * inner, 2);
            bench.run(kernels::Sums::MeanBackward { grad, dst: back, outer, middle, inner });
            let truth: Vec<f64> =
                (0..x.len()).map(|i| g[i / (middle * inner) * inner + i % inner] / middle as f64).collect();
            assert_close(&bench.get(back), &truth, tolerance(dtype), 0.0, &what);
        }
    }
}

/// Runs `kernel` on a source and a gradient and compares with `f` of both.
fn compare(
    kernel: impl Fn(Operand, Operand, Operand) -> kernels::Elementwise,
    f: impl Fn(f64, f64) -> f64,
    what: &str,
) {
    for (n, dtype) in [1, 513, 40_001].into_iter().flat_map(|n| FLOATS.map(|d| (n, d))) {
        let mut bench = Bench::new();
        let (x, g) = (bench.random(dtype, n, 1), bench.random(dtype, n, 2));
        let dst = bench.empty(dtype, n);
        bench.run(kernel(x.0, g.0, dst));
        let truth: Vec<f64> = x.1.iter().zip(&g.1).map(|(&x, &g)| f(x, g)).collect();
        assert_close(&bench.get(dst), &truth, tolerance(dtype), 1.0, what);
    }
}

#[test]
fn activations_and_their_gradients() {
    let slope = 0.2_f32;
    let leaky = |x: f64| if x > 0.0 { x } else { f64::from(slope) * x };
    compare(|src, _, dst| kernels::Elementwise::LeakyRelu { src, dst, slope }, |x, _| leaky(x), "leaky relu");
    compare(
        |output, grad, dst| kernels::Elementwise::LeakyReluBackward { output, grad, dst, slope },
        |y, g| if y > 0.0 { g } else { f64::from(slope) * g },
        "leaky relu backward",
    );
    let most = 0.25_f32;
    compare(|src, _, dst| kernels::Elementwise::AtMost { src, dst, most }, |x, _| x.min(0.25), "at most");
    compare(
        |src, grad, dst| kernels::Elementwise::AtMostBackward { src, grad, dst, most },
        |x, g| if x <= 0.25 { g } else { 0.0 },
        "at most backward",
    );
    compare(|src, _, dst| kernels::Elementwise::Tanh { src, dst }, |x, _| x.tanh(), "tanh");
    compare(
        |output, grad, dst| kernels::Elementwise::TanhBackward { output, grad, dst },
        |y, g| g * (1.0 - y * y),
        "tanh backward",
    );
    compare(|src, _, dst| kernels::Elementwise::AddScalar { src, dst, value: 0.75 }, |x, _| x + 0.75, "add scalar");
}

#[test]
fn activations_work_in_place_and_counters_count() {
    let mut bench = Bench::new();
    let src = bench.put(DType::F32, &[-2.0, 3.0]);
    bench.run(kernels::Elementwise::LeakyRelu { src, dst: src, slope: 0.5 });
    assert_eq!(bench.get(src), [-1.0, 3.0]);
    let grad = bench.put(DType::F32, &[4.0, 5.0]);
    bench.run(kernels::Elementwise::LeakyReluBackward { output: src, grad, dst: grad, slope: 0.5 });
    assert_eq!(bench.get(grad), [2.0, 5.0]);
    bench.run(kernels::Elementwise::Tanh { src, dst: src });
    assert_close(&bench.get(src), &[(-1.0_f64).tanh(), 3.0_f64.tanh()], 1e-6, 0.0, "tanh");
    let steps = bench.put(DType::I64, &[41.0]);
    bench.run(kernels::Elementwise::AddScalar { src: steps, dst: steps, value: 1.0 });
    assert_eq!(bench.get(steps), [42.0]);
}

#[test]
fn binary_cross_entropy_of_logits() {
    for dtype in FLOATS {
        let mut bench = Bench::new();
        let x: Vec<f64> = random(301, 1).iter().map(|x| 6.0 * x).chain([40.0, -40.0, 0.0]).collect();
        let t: Vec<f64> = random(304, 2).iter().map(|x| x.abs()).collect();
        let (logits, targets) = (bench.put(dtype, &x), bench.put(dtype, &t));
        let (x, t) = (bench.get(logits), bench.get(targets));
        let loss = bench.empty(DType::F32, 1);
        bench.run(kernels::Loss::BceWithLogits { logits, targets, loss });
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let terms: Vec<f64> =
            x.iter().zip(&t).map(|(&x, t)| -t * sigmoid(x).ln() - (1.0 - t) * sigmoid(-x).ln()).collect();
        assert_close(&bench.get(loss), &[mean_of(&terms)], 1e-6, 0.0, "loss");
        let grad = bench.put(DType::F32, &[2.5]);
        let dst = bench.empty(dtype, x.len());
        bench.run(kernels::Loss::BceWithLogitsBackward { grad, logits, targets, dst });
        let truth: Vec<f64> = x.iter().zip(&t).map(|(&x, t)| 2.5 * (sigmoid(x) - t) / terms.len() as f64).collect();
        let subnormal = if dtype == DType::F16 { 0.06 } else { 0.01 };
        assert_close(&bench.get(dst), &truth, tolerance(dtype), subnormal, "gradient");
    }
    let mut bench = Bench::new();
    let (logits, targets) = (bench.put(DType::F32, &[1e4, -1e4]), bench.put(DType::F32, &[1.0, 1.0]));
    let loss = bench.empty(DType::F32, 1);
    bench.run(kernels::Loss::BceWithLogits { logits, targets, loss });
    assert_eq!(bench.get(loss), [5e3]);
}
