//! Results have the same bits with any number of threads.

use vramlab::device::{
    AttentionShape, ChannelShape, ConvShape, DType, Earlier, FusedAttention, ImageLayout, Operand, kernels,
};

use super::harness::{Bench, heads, matrix, random, transposed};

/// Runs kernels that are large enough to be split, and returns all bytes that they wrote.
fn run_all(threads: usize) -> Vec<Vec<u8>> {
    let mut bench = Bench::with_threads(threads);
    let mut made = Vec::new();
    let (rows, cols) = (1000, 300);
    let n = rows * cols;
    let (src, _) = bench.random(DType::F32, n, 1);
    let (grad, _) = bench.random(DType::F32, n, 2);
    let (half, _) = bench.random(DType::Bf16, n, 3);
    let (weight, _) = bench.random(DType::F32, cols, 4);
    let keep = |bench: &mut Bench, operands: &[Operand], made: &mut Vec<Vec<u8>>| {
        operands.iter().for_each(|&x| made.push(bench.bytes(x)));
    };
    for (a, b, dtype) in [(src, grad, DType::F32), (half, half, DType::Bf16), (src, half, DType::F32)] {
        for (m, n, k) in [(cols, cols, rows), (rows, 64, cols), (300, 1, 1000), (1, 300, 1000), (700, 300, 7)] {
            let c = bench.empty(dtype, m * n);
            let (a, b) = (transposed(matrix(a, m)), matrix(b, n));
            let c_view = matrix(c, n);
            bench.run(kernels::Gemm { m, n, k, batch: 1, a, b, c: c_view, bias: None, alpha: 1.0, beta: 0.0 });
            keep(&mut bench, &[c], &mut made);
        }
    }
    let sums = bench.empty(DType::F32, cols);
    bench.run(kernels::Sums::Columns { src, dst: sums, rows, cols });
    let dst = bench.empty(DType::F32, n);
    let (mean, rstd) = (bench.empty(DType::F32, rows), bench.empty(DType::F32, rows));
    bench.run(kernels::LayerNorm::Forward { src, weight, bias: weight, dst, mean, rstd, cols, eps: 1e-5 });
    let (dsrc, dweight, dbias) =
        (bench.empty(DType::F32, n), bench.empty(DType::F32, cols), bench.empty(DType::F32, cols));
    bench.run(kernels::LayerNorm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, cols });
    keep(&mut bench, &[sums, dst, mean, rstd, dsrc, dweight, dbias], &mut made);
    let at: Vec<f64> = random(rows, 5).iter().map(|x| ((x + 1.0) * 20.0).floor()).collect();
    let indices = bench.put(DType::I64, &at);
    let table = bench.empty(DType::F32, 40 * cols);
    bench.run(kernels::Embedding::Backward { grad, indices, dst: table, width: cols });
    let logp = bench.empty(DType::F32, n);
    bench.run(kernels::Softmax::Log { src, dst: logp, cols });
    bench.run(kernels::Softmax::LogBackward { output: logp, grad, dst, cols });
    let gelu = bench.empty(DType::Bf16, n);
    bench.run(kernels::Elementwise::GeluBackward { src: half, grad: half, dst: gelu, tanh: true });
    keep(&mut bench, &[table, logp, dst, gelu], &mut made);
    let (batch, count, positions, size) = (2, 3, 200, 16);
    let shape = AttentionShape {
        batch,
        heads: count,
        group: 1,
        rows: positions,
        head_size: size,
        value_size: size,
        causal: true,
        earlier: Earlier::All,
        masked: false,
        scale: 0.25,
        dropout: None,
    };
    let len = batch * count * positions * size;
    let operands = [6, 7, 8, 9].map(|seed| bench.random(DType::F32, len, seed).0);
    let [q, k, v, grad] = operands.map(|x| heads(x, count, positions, size));
    let made_here = [0; 4].map(|_| bench.empty(DType::F32, len));
    let [out, dq, dk, dv] = made_here.map(|x| heads(x, count, positions, size));
    let logsumexp = bench.empty(DType::F32, batch * count * positions);
    let lse_stride = positions;
    bench.run(kernels::Attention::Forward { by: FusedAttention::Flash, shape, q, k, v, out, logsumexp, lse_stride });
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
    keep(&mut bench, &made_here, &mut made);
    keep(&mut bench, &[logsumexp], &mut made);
    let shape = ConvShape {
        batch: 9,
        in_channels: 6,
        in_height: 24,
        in_width: 20,
        out_channels: 10,
        out_height: 24,
        out_width: 20,
        kernel: 3,
        stride: 1,
        padding: 1,
        layout: ImageLayout::ChannelsFirst,
    };
    let [(src, _), (grad, _), (weight, _)] = [(shape.in_len(), 10), (shape.out_len(), 11), (shape.weight_len(), 12)]
        .map(|(n, seed)| bench.random(DType::F32, n, seed));
    let [dst, dsrc, dweight] =
        [shape.out_len(), shape.in_len(), shape.weight_len()].map(|n| bench.empty(DType::F32, n));
    bench.run(kernels::Convolution::Forward { shape, src, weight, bias: None, dst });
    bench.run(kernels::Convolution::BackwardInput { shape, grad, weight, dst: dsrc });
    bench.run(kernels::Convolution::BackwardWeight { shape, grad, src, dst: dweight });
    keep(&mut bench, &[dst, dsrc, dweight], &mut made);
    let shape = ChannelShape { batch: 9, channels: 10, area: 24 * 20 };
    let (weight, _) = bench.random(DType::F32, 10, 13);
    let [dweight, dbias, mean, rstd, running_mean, running_var] = [(); 6].map(|()| bench.put(DType::F32, &[0.0; 10]));
    let (eps, momentum, bias) = (1e-5, 0.1, weight);
    bench.run(kernels::BatchNorm::Forward {
        src: grad,
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
    let dsrc = bench.empty(DType::F32, shape.len());
    bench.run(kernels::BatchNorm::Backward { grad: dst, src: grad, mean, rstd, weight, dsrc, dweight, dbias, shape });
    keep(&mut bench, &[dst, running_mean, running_var, dsrc, dweight, dbias], &mut made);
    made
}

#[test]
fn results_are_the_same_bits_on_one_two_and_five_threads() {
    let one = run_all(1);
    for threads in [2, 5] {
        for (i, (x, y)) in one.iter().zip(&run_all(threads)).enumerate() {
            assert!(x == y, "result {i} differs on {threads} threads");
        }
    }
}
