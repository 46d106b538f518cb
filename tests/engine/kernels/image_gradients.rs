//! The backward kernels of convolution nets against central differences of their forward kernels, in f64.

use vramlab::device::{ChannelShape, ConvShape, DType, PoolShape, kernels};

use super::convolution::convolution;
use super::gradients::{check, evaluate};
use super::harness::{Bench, random};

#[test]
fn convolutions_with_bias_and_their_transposes() {
    for (channels, sides, window) in [
        ([2, 3, 2], [5, 6], [3, 1, 1]),
        ([1, 2, 3], [6, 5], [4, 2, 1]),
        ([2, 2, 5], [3, 3], [1, 2, 0]),
        ([1, 2, 3], [4, 4], [4, 1, 0]),
        ([2, 1, 2], [9, 8], [7, 4, 3]),
    ] {
        let shape: ConvShape = convolution(channels, sides, window).unwrap();
        let what = format!("{shape:?}");
        let [x, w, y] = [shape.in_len(), shape.weight_len(), shape.out_len()];
        let inputs = [random(x, 1), random(w, 2), random(shape.out_channels, 3)];
        let g = random(y, 4);
        let back = |grad: &[f64], weight: &[f64]| {
            evaluate(&[grad.to_vec(), weight.to_vec()], x, |v, dst| kernels::Convolution::BackwardInput {
                shape,
                grad: v[0],
                weight: v[1],
                dst,
            })
        };
        let of_weight = |grad: &[f64], src: &[f64]| {
            evaluate(&[grad.to_vec(), src.to_vec()], w, |v, dst| kernels::Convolution::BackwardWeight {
                shape,
                grad: v[0],
                src: v[1],
                dst,
            })
        };
        let of_bias = evaluate(std::slice::from_ref(&g), shape.out_channels, |v, dst| kernels::Sums::Channels {
            src: v[0],
            dst,
            shape: ChannelShape { batch: shape.batch, channels: shape.out_channels, area: shape.out_area() },
        });
        let mut forward = |v: &[Vec<f64>]| {
            evaluate(v, y, |v, dst| kernels::Convolution::Forward {
                shape,
                src: v[0],
                weight: v[1],
                bias: v.get(2).copied(),
                dst,
            })
        };
        let analytic = [back(&g, &inputs[1]), of_weight(&g, &inputs[0]), of_bias];
        check(&what, &inputs, &g, &mut forward, &analytic);
        // The transposed convolution takes a tensor of the output's shape; the roles are those of ConvShape.
        let inputs = [random(y, 5), random(w, 6)];
        let g = random(x, 7);
        let dx = forward(&[g.clone(), inputs[1].clone()]);
        let analytic = [dx, of_weight(&inputs[0], &g)];
        check(&format!("transposed {what}"), &inputs, &g, &mut |v| back(&v[0], &v[1]), &analytic);
    }
}

#[test]
fn batch_norm_with_respect_to_source_weight_and_bias() {
    for (batch, channels, area) in [(3, 2, 5), (6, 3, 1)] {
        let shape = ChannelShape { batch, channels, area };
        let inputs = [random(shape.len(), 1), random(channels, 2), random(channels, 3)];
        let g = random(shape.len(), 4);
        let run = |x: &[Vec<f64>]| {
            let mut bench = Bench::with_threads(1);
            let [src, weight, bias] = [0, 1, 2].map(|i| bench.put(DType::F64, &x[i]));
            let dst = bench.empty(DType::F64, shape.len());
            let [mean, rstd, running_mean, running_var] = [(); 4].map(|()| bench.put(DType::F64, &vec![1.0; channels]));
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
                eps: 1e-3,
                momentum: 0.1,
            });
            (bench, [src, weight, dst, mean, rstd])
        };
        let (mut bench, [src, weight, _, mean, rstd]) = run(&inputs);
        let grad = bench.put(DType::F64, &g);
        let dsrc = bench.empty(DType::F64, shape.len());
        let [dweight, dbias] = [(); 2].map(|()| bench.empty(DType::F64, channels));
        bench.run(kernels::BatchNorm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, shape });
        let analytic = [bench.get(dsrc), bench.get(dweight), bench.get(dbias)];
        let mut forward = |x: &[Vec<f64>]| {
            let (mut bench, [.., dst, _, _]) = run(x);
            bench.get(dst)
        };
        check("batch norm", &inputs, &g, &mut forward, &analytic);
    }
}

#[test]
fn max_pool_and_mean() {
    let shape = PoolShape {
        planes: 3,
        in_height: 7,
        in_width: 6,
        out_height: 4,
        out_width: 3,
        kernel: 3,
        stride: 2,
        padding: 1,
        interleaved: 1,
    };
    let inputs = [random(shape.planes * shape.in_area(), 1)];
    let outputs = shape.planes * shape.out_area();
    let g = random(outputs, 2);
    let run = |x: &[f64]| {
        let mut bench = Bench::with_threads(1);
        let src = bench.put(DType::F64, x);
        let (dst, indices) = (bench.empty(DType::F64, outputs), bench.empty(DType::I64, outputs));
        bench.run(kernels::Pool::Max { src, dst, indices, shape });
        (bench, dst, indices)
    };
    let (mut bench, _, indices) = run(&inputs[0]);
    let (grad, dst) = (bench.put(DType::F64, &g), bench.empty(DType::F64, inputs[0].len()));
    bench.run(kernels::Pool::MaxBackward { grad, indices, dst, shape });
    let analytic = [bench.get(dst)];
    let mut forward = |x: &[Vec<f64>]| {
        let (mut bench, dst, _) = run(&x[0]);
        bench.get(dst)
    };
    check("max pool", &inputs, &g, &mut forward, &analytic);
    for [outer, middle, inner] in [[4, 9, 1], [2, 5, 3]] {
        let (inputs, g) = ([random(outer * middle * inner, 3)], random(outer * inner, 4));
        let back = evaluate(std::slice::from_ref(&g), inputs[0].len(), |x, dst| kernels::Sums::MeanBackward {
            grad: x[0],
            dst,
            outer,
            middle,
            inner,
        });
        let mut forward = |x: &[Vec<f64>]| {
            evaluate(x, g.len(), |x, dst| kernels::Sums::Mean { src: x[0], dst, outer, middle, inner })
        };
        check("mean", &inputs, &g, &mut forward, &[back]);
    }
}

#[test]
fn leaky_relu_tanh_and_binary_cross_entropy() {
    let n = 33;
    let inputs = [random(n, 1).iter().map(|x| 3.0 * x).collect::<Vec<_>>()];
    let g = random(n, 2);
    let slope = 0.2;
    let mut leaky = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::LeakyRelu { src: x[0], dst, slope });
    let both = [leaky(&inputs), g.clone()];
    let back =
        evaluate(&both, n, |x, dst| kernels::Elementwise::LeakyReluBackward { output: x[0], grad: x[1], dst, slope });
    check("leaky relu", &inputs, &g, &mut leaky, &[back]);
    let mut tanh = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::Tanh { src: x[0], dst });
    let both = [tanh(&inputs), g.clone()];
    let back = evaluate(&both, n, |x, dst| kernels::Elementwise::TanhBackward { output: x[0], grad: x[1], dst });
    check("tanh", &inputs, &g, &mut tanh, &[back]);
    let targets: Vec<f64> = random(n, 3).iter().map(|x| x.abs()).collect();
    let mut loss = |x: &[Vec<f64>]| {
        evaluate(&[x[0].clone(), targets.clone()], 1, |x, dst| kernels::Loss::BceWithLogits {
            logits: x[0],
            targets: x[1],
            loss: dst,
        })
    };
    let all = [vec![1.75], inputs[0].clone(), targets.clone()];
    let back = evaluate(&all, n, |x, dst| kernels::Loss::BceWithLogitsBackward {
        grad: x[0],
        logits: x[1],
        targets: x[2],
        dst,
    });
    check("binary cross-entropy", &inputs, &[1.75], &mut loss, &[back]);
}
