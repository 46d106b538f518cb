//! Every backward kernel against central differences of its forward kernel, in f64.

use vramlab::device::{AttentionShape, DType, DropoutMask, Earlier, FusedAttention, Kernel, Operand, kernels};

use super::harness::{Bench, heads, matrix, random, transposed};

/// Step of the differences: the error of a central difference is about its square.
const STEP: f64 = 1e-5;

/// The largest error, relative to the length of the gradient.
const TOLERANCE: f64 = 1e-6;

/// Compares `analytic[i]`, the gradient of Σ weights·forward(inputs) with respect to inputs[i], with differences.
pub fn check(
    what: &str,
    inputs: &[Vec<f64>],
    weights: &[f64],
    forward: &mut dyn FnMut(&[Vec<f64>]) -> Vec<f64>,
    analytic: &[Vec<f64>],
) {
    assert_eq!(inputs.len(), analytic.len());
    let mut loss = |inputs: &[Vec<f64>]| {
        let out = forward(inputs);
        assert_eq!(out.len(), weights.len(), "{what}");
        out.iter().zip(weights).map(|(y, w)| y * w).sum::<f64>()
    };
    for (n, gradient) in analytic.iter().enumerate() {
        let mut inputs = inputs.to_vec();
        let numeric: Vec<f64> = (0..inputs[n].len())
            .map(|i| {
                let x = inputs[n][i];
                inputs[n][i] = x + STEP;
                let above = loss(&inputs);
                inputs[n][i] = x - STEP;
                let below = loss(&inputs);
                inputs[n][i] = x;
                (above - below) / (2.0 * STEP)
            })
            .collect();
        assert_eq!(gradient.len(), numeric.len(), "{what} input {n}");
        let length = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let error = length(&mut gradient.iter().zip(&numeric).map(|(a, b)| a - b));
        let relative = error / length(&mut numeric.iter().copied());
        assert!(relative < TOLERANCE, "{what}, input {n}: relative error {relative:e}");
    }
}

/// A bench whose only segment is reused for each evaluation.
fn put_all(bench: &mut Bench, inputs: &[Vec<f64>]) -> Vec<Operand> {
    inputs.iter().map(|values| bench.put(DType::F64, values)).collect()
}

/// Uploads the inputs to a new bench, runs the kernel that `kernel` makes of them and an output, and downloads the
/// output.
pub fn evaluate<K: Into<Kernel<'static>>>(
    inputs: &[Vec<f64>],
    len: usize,
    kernel: impl Fn(&[Operand], Operand) -> K,
) -> Vec<f64> {
    let mut bench = Bench::with_threads(1);
    let operands = put_all(&mut bench, inputs);
    let dst = bench.empty(DType::F64, len);
    bench.run(kernel(&operands, dst));
    bench.get(dst)
}

#[test]
fn relu_and_both_forms_of_gelu() {
    let n = 65;
    let inputs = [random(n, 1).iter().map(|x| 4.0 * x).collect::<Vec<_>>()];
    let w = random(n, 2);
    for tanh in [true, false] {
        let backward = evaluate(&[inputs[0].clone(), w.clone()], n, |x, dst| kernels::Elementwise::GeluBackward {
            src: x[0],
            grad: x[1],
            dst,
            tanh,
        });
        let mut forward = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::Gelu { src: x[0], dst, tanh });
        check("gelu", &inputs, &w, &mut forward, &[backward]);
    }
    let mut forward = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::Relu { src: x[0], dst });
    let output = forward(&inputs);
    let backward = evaluate(&[output, w.clone()], n, |x, dst| kernels::Elementwise::ReluBackward {
        output: x[0],
        grad: x[1],
        dst,
    });
    check("relu", &inputs, &w, &mut forward, &[backward]);
}

#[test]
fn products_sums_and_scales() {
    let (n, m) = (12, 4);
    let inputs = [random(n, 1), random(m, 2)];
    let w = random(n, 3);
    let fold =
        |x: Vec<f64>| evaluate(&[x], m, |x, dst| kernels::Sums::Columns { src: x[0], dst, rows: n / m, cols: m });
    let times = |a: &[f64], b: &[f64]| {
        evaluate(&[a.to_vec(), b.to_vec()], n, |x, dst| kernels::Elementwise::Mul { a: x[0], b: x[1], dst })
    };
    let mut add = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::Add { a: x[0], b: x[1], dst });
    check("add", &inputs, &w, &mut add, &[w.clone(), fold(w.clone())]);
    let mut mul = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::Mul { a: x[0], b: x[1], dst });
    let analytic = [times(&w, &inputs[1]), fold(times(&w, &inputs[0]))];
    check("mul", &inputs, &w, &mut mul, &analytic);
    let mut scale =
        |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Elementwise::Scale { src: x[0], dst, factor: -1.7 });
    let gradient = scale(std::slice::from_ref(&w));
    check("scale", &inputs[..1], &w, &mut scale, &[gradient]);
}

#[test]
fn linear_layer_with_bias() {
    let (rows, from, to) = (5, 3, 4);
    let inputs = [random(rows * from, 1), random(to * from, 2), random(to, 3)];
    let w = random(rows * to, 4);
    let product = |m, n, k, a, b, c, bias| kernels::Gemm { m, n, k, batch: 1, a, b, c, bias, alpha: 1.0, beta: 0.0 };
    let mut forward = |x: &[Vec<f64>]| {
        evaluate(x, rows * to, |x, dst| {
            let weight = transposed(matrix(x[1], from));
            product(rows, to, from, matrix(x[0], from), weight, matrix(dst, to), Some(x[2]))
        })
    };
    let all = [w.clone(), inputs[0].clone(), inputs[1].clone()];
    let dx = evaluate(&all, rows * from, |x, dst| {
        product(rows, from, to, matrix(x[0], to), matrix(x[2], from), matrix(dst, from), None)
    });
    let dw = evaluate(&all, to * from, |x, dst| {
        product(to, from, rows, transposed(matrix(x[0], to)), matrix(x[1], from), matrix(dst, from), None)
    });
    let db = evaluate(&all, to, |x, dst| kernels::Sums::Columns { src: x[0], dst, rows, cols: to });
    check("linear", &inputs, &w, &mut forward, &[dx, dw, db]);
}

#[test]
fn layer_norm_with_respect_to_source_weight_and_bias() {
    let (rows, cols, eps) = (19, 7, 1e-3);
    let inputs = [random(rows * cols, 1), random(cols, 2), random(cols, 3)];
    let w = random(rows * cols, 4);
    let run = |x: &[Vec<f64>]| {
        let mut bench = Bench::with_threads(1);
        let x = put_all(&mut bench, x);
        let dst = bench.empty(DType::F64, rows * cols);
        let (mean, rstd) = (bench.empty(DType::F64, rows), bench.empty(DType::F64, rows));
        bench.run(kernels::LayerNorm::Forward { src: x[0], weight: x[1], bias: x[2], dst, mean, rstd, cols, eps });
        (bench, x, dst, mean, rstd)
    };
    let (mut bench, x, _, mean, rstd) = run(&inputs);
    let grad = bench.put(DType::F64, &w);
    let dsrc = bench.empty(DType::F64, rows * cols);
    let (dweight, dbias) = (bench.empty(DType::F64, cols), bench.empty(DType::F64, cols));
    bench.run(kernels::LayerNorm::Backward { grad, src: x[0], mean, rstd, weight: x[1], dsrc, dweight, dbias, cols });
    let analytic = [bench.get(dsrc), bench.get(dweight), bench.get(dbias)];
    let mut forward = |x: &[Vec<f64>]| {
        let (mut bench, _, dst, ..) = run(x);
        bench.get(dst)
    };
    check("layer norm", &inputs, &w, &mut forward, &analytic);
}

#[test]
fn add_layer_norm_with_respect_to_both_terms_weight_and_bias() {
    let (rows, cols, eps) = (11, 7, 1e-3);
    let n = rows * cols;
    let inputs = [random(n, 1), random(n, 2), random(cols, 3), random(cols, 4)];
    // The norm, its copy and the sum are all passed on.
    let w = random(3 * n, 5);
    let run = |x: &[Vec<f64>]| {
        let mut bench = Bench::with_threads(1);
        let x = put_all(&mut bench, x);
        let [dst, copy, sum] = [(); 3].map(|()| bench.empty(DType::F64, n));
        let (mean, rstd) = (bench.empty(DType::F64, rows), bench.empty(DType::F64, rows));
        let (add, copied) = (Some((x[1], sum)), Some(copy));
        let (weight, bias) = (x[2], x[3]);
        bench.run(kernels::LayerNorm::Add { src: x[0], add, weight, bias, dst, copy: copied, mean, rstd, cols, eps });
        (bench, weight, [dst, copy, sum], mean, rstd)
    };
    let (mut bench, weight, [_, _, src], mean, rstd) = run(&inputs);
    let [grad, second, residual] = [0, 1, 2].map(|i| bench.put(DType::F64, &w[i * n..(i + 1) * n]));
    let copy = bench.empty(DType::F64, n);
    let (dweight, dbias) = (bench.empty(DType::F64, cols), bench.empty(DType::F64, cols));
    bench.run(kernels::LayerNorm::AddBackward {
        grad,
        second: Some(second),
        residual: Some(residual),
        src,
        mean,
        rstd,
        weight,
        dsrc: residual,
        copy: Some(copy),
        dweight,
        dbias,
        cols,
    });
    let analytic = [bench.get(residual), bench.get(copy), bench.get(dweight), bench.get(dbias)];
    let mut forward = |x: &[Vec<f64>]| {
        let (mut bench, _, results, ..) = run(x);
        results.into_iter().flat_map(|result| bench.get(result)).collect()
    };
    check("add layer norm", &inputs, &w, &mut forward, &analytic);
}

#[test]
fn softmax_and_log_softmax() {
    let (rows, cols) = (4, 9);
    let inputs = [random(rows * cols, 1).iter().map(|x| 3.0 * x).collect::<Vec<_>>()];
    let w = random(rows * cols, 2);
    let n = rows * cols;
    let mut softmax = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Softmax::Forward { src: x[0], dst, cols });
    let output = softmax(&inputs);
    let backward =
        evaluate(&[output, w.clone()], n, |x, dst| kernels::Softmax::Backward { output: x[0], grad: x[1], dst, cols });
    check("softmax", &inputs, &w, &mut softmax, &[backward]);
    let mut log = |x: &[Vec<f64>]| evaluate(x, n, |x, dst| kernels::Softmax::Log { src: x[0], dst, cols });
    let output = log(&inputs);
    let backward = evaluate(&[output, w.clone()], n, |x, dst| kernels::Softmax::LogBackward {
        output: x[0],
        grad: x[1],
        dst,
        cols,
    });
    check("log-softmax", &inputs, &w, &mut log, &[backward]);
}

#[test]
fn negative_log_likelihood() {
    let (rows, cols) = (6, 5);
    let targets = [0.0, 4.0, -100.0, 2.0, 2.0, 1.0];
    let run = |logp: &[f64]| {
        let mut bench = Bench::with_threads(1);
        let logp = bench.put(DType::F64, logp);
        let targets = bench.put(DType::I64, &targets);
        let (loss, total_weight) = (bench.empty(DType::F64, 1), bench.empty(DType::F64, 1));
        bench.run(kernels::Loss::Nll { logp, targets, loss, total_weight, cols });
        (bench, targets, loss, total_weight)
    };
    let inputs = [random(rows * cols, 1)];
    let (mut bench, targets, _, total_weight) = run(&inputs[0]);
    let grad = bench.put(DType::F64, &[1.75]);
    let dst = bench.empty(DType::F64, rows * cols);
    bench.run(kernels::Loss::NllBackward { grad, targets, total_weight, dst, cols });
    let mut forward = |x: &[Vec<f64>]| {
        let (mut bench, _, loss, _) = run(&x[0]);
        bench.get(loss)
    };
    let analytic = bench.get(dst);
    check("nll loss", &inputs, &[1.75], &mut forward, &[analytic]);
}

#[test]
fn embedding() {
    let (table, width) = (5, 3);
    let at = [4.0, 0.0, 4.0, 2.0, 4.0, 2.0];
    let n = at.len() * width;
    let gather = |x: &[Vec<f64>]| {
        let mut bench = Bench::with_threads(1);
        let weight = bench.put(DType::F64, &x[0]);
        let indices = bench.put(DType::I64, &at);
        let dst = bench.empty(DType::F64, n);
        bench.run(kernels::Embedding::Forward { weight, indices, dst, width });
        bench.get(dst)
    };
    let w = random(n, 2);
    let mut bench = Bench::with_threads(1);
    let grad = bench.put(DType::F64, &w);
    let indices = bench.put(DType::I64, &at);
    let dst = bench.empty(DType::F64, table * width);
    bench.run(kernels::Embedding::Backward { grad, indices, dst, width });
    let analytic = bench.get(dst);
    check("embedding", &[random(table * width, 1)], &w, &mut { gather }, &[analytic]);
}

#[test]
fn attention_with_and_without_the_causal_mask() {
    let causal = |rows, window| (rows, true, window, 1, None);
    let dropout = Some(DropoutMask::new(3, 0.3));
    for (rows, causal, window, group, dropout) in [
        causal(1, None),
        causal(6, None),
        (6, false, None, 1, None),
        causal(67, None),
        (6, true, None, 2, None),
        (5, false, None, 4, None),
        causal(6, Some(2)),
        causal(6, Some(3)),
        causal(67, Some(9)),
        causal(67, Some(66)),
        (6, true, Some(2), 2, None),
        (6, false, None, 1, dropout),
        (67, true, None, 1, dropout),
        (6, true, Some(4), 2, dropout),
    ] {
        let (batch, count, size) = if rows > 10 { (1, 1, 2) } else { (2, 2 * group, 3) };
        let n = batch * count * rows * size;
        let shape = AttentionShape {
            batch,
            heads: count,
            group,
            rows,
            head_size: size,
            value_size: size,
            causal,
            earlier: window.map_or(Earlier::All, Earlier::Window),
            masked: false,
            scale: 0.7,
            dropout,
        };
        let inputs = [random(n, 1), random(n / group, 2), random(n / group, 3)];
        let w = random(n, 4);
        let run = |x: &[Vec<f64>]| {
            let mut bench = Bench::with_threads(1);
            let x = put_all(&mut bench, x);
            let (out, logsumexp) = (bench.empty(DType::F64, n), bench.empty(DType::F64, batch * count * rows));
            let [q, of_out] = [x[0], out].map(|x| heads(x, count, rows, size));
            let [k, v] = [x[1], x[2]].map(|x| heads(x, count / group, rows, size));
            bench.run(kernels::Attention::Forward {
                by: FusedAttention::Flash,
                shape,
                q,
                k,
                v,
                out: of_out,
                logsumexp,
                lse_stride: rows,
            });
            (bench, [q, k, v, of_out], out, logsumexp)
        };
        let (mut bench, [q, k, v, out], _, logsumexp) = run(&inputs);
        let grad = heads(bench.put(DType::F64, &w), count, rows, size);
        let gradients = [0; 3].map(|_| bench.empty(DType::F64, n));
        let [dq, dk, dv] = gradients.map(|x| heads(x, count, rows, size));
        let lse_stride = rows;
        bench.run(kernels::Attention::Backward {
            by: FusedAttention::Flash,
            shape,
            q,
            k,
            v,
            out,
            logsumexp,
            lse_stride,
            grad,
            dq,
            dk,
            dv,
        });
        let mut analytic = gradients.map(|x| bench.get(x));
        for of_shared in &mut analytic[1..] {
            // The gradients of every head of queries: their sum is the gradient.
            let per_group = of_shared.chunks(group * rows * size);
            let sum = |all: &[f64], at: usize| all.iter().skip(at).step_by(rows * size).sum::<f64>();
            *of_shared = per_group.flat_map(|all| (0..rows * size).map(move |at| sum(all, at))).collect();
        }
        let mut forward = |x: &[Vec<f64>]| {
            let (mut bench, _, out, _) = run(x);
            bench.get(out)
        };
        if rows == 1 {
            // One position sees only itself: the output is v, whatever q and k are.
            assert!(analytic[..2].iter().flatten().all(|g| g.abs() < 1e-12));
            let mut forward = |x: &[Vec<f64>]| forward(&[inputs[0].clone(), inputs[1].clone(), x[0].clone()]);
            check("attention", &inputs[2..], &w, &mut forward, &analytic[2..]);
        } else {
            check(&format!("attention of {rows} rows, causal: {causal}"), &inputs, &w, &mut forward, &analytic);
        }
    }
}
