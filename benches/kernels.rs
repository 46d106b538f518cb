//! The processor device's kernels: `cargo bench --bench kernels`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use vramlab::allocator::SegmentSource;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::{
    AdamParameters, AttentionShape, ChannelShape, ConvShape, DType, Device, Earlier, FusedAttention, HeadView,
    ImageLayout, Kernel, MatrixView, Operand, ParameterUpdate, PoolShape, UpdatePasses, kernels,
};
use vramlab::units::{Address, Bytes, StreamId};

/// A device and one segment, which is cut from its start.
struct Memory {
    device: CpuDevice,
    _source: Box<dyn SegmentSource>,
    next: Address,
}

impl Memory {
    fn new() -> Self {
        let size = Bytes::mib(512);
        let mut device = CpuDevice::open(CpuOptions { memory: Some(size), threads: None }).unwrap();
        let mut source = device.segments();
        let next = source.malloc(size).unwrap();
        Self { device, _source: source, next }
    }

    fn take(&mut self, dtype: DType, len: usize) -> Operand {
        let operand = Operand { address: self.next, dtype, len };
        self.next = self.next.offset(Bytes(dtype.bytes(len).get().next_multiple_of(512)));
        self.run(kernels::Elementwise::Fill { dst: operand, value: 0.01 });
        operand
    }

    fn run<'k>(&mut self, kernel: impl Into<Kernel<'k>>) {
        self.device.launch(black_box(&kernel.into()), StreamId::DEFAULT).unwrap();
    }
}

fn matrix(operand: Operand, cols: usize) -> MatrixView {
    MatrixView { address: operand.address, dtype: operand.dtype, row_stride: cols, col_stride: 1, batch_stride: 0 }
}

/// In these figures, elements a second are floating-point operations a second.
fn gemm(c: &mut Criterion) {
    let mut group = c.benchmark_group("gemm (elements: flops)");
    for (dtype, m, n, k) in [
        (DType::F32, 128, 96, 32),
        (DType::F32, 256, 256, 256),
        (DType::F32, 1024, 1024, 1024),
        (DType::F32, 4096, 768, 768),
        (DType::Bf16, 256, 256, 256),
        (DType::Bf16, 1024, 1024, 1024),
    ] {
        let mut memory = Memory::new();
        let (a, b, out) = (memory.take(dtype, m * k), memory.take(dtype, n * k), memory.take(dtype, m * n));
        let b = MatrixView { row_stride: 1, col_stride: k, ..matrix(b, k) };
        let (a, c) = (matrix(a, k), matrix(out, n));
        let kernel = kernels::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, beta: 0.0 };
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        group.bench_function(BenchmarkId::new(format!("{dtype:?}"), format!("{m}x{n}x{k}")), |bencher| {
            bencher.iter(|| memory.run(kernel));
        });
    }
}

fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention");
    for (batch, count, rows, size) in [(4, 4, 32, 8), (8, 4, 256, 32)] {
        let mut memory = Memory::new();
        let n = batch * count * rows * size;
        let shape = AttentionShape {
            batch,
            heads: count,
            group: 1,
            rows,
            head_size: size,
            value_size: size,
            causal: true,
            earlier: Earlier::All,
            masked: false,
            scale: 0.2,
            dropout: None,
        };
        let mut heads = || HeadView {
            address: memory.take(DType::F32, n).address,
            dtype: DType::F32,
            batch_stride: count * rows * size,
            head_stride: rows * size,
            row_stride: size,
        };
        let [q, k, v, out, grad, dq, dk, dv] = std::array::from_fn(|_| heads());
        let logsumexp = memory.take(DType::F32, batch * count * rows);
        let lse_stride = rows;
        let name = format!("{batch}x{count}x{rows}x{size}");
        group.bench_function(BenchmarkId::new("forward", &name), |bencher| {
            bencher.iter(|| {
                memory.run(kernels::Attention::Forward {
                    by: FusedAttention::Flash,
                    shape,
                    q,
                    k,
                    v,
                    out,
                    logsumexp,
                    lse_stride,
                })
            });
        });
        let backward = kernels::Attention::Backward {
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
        };
        group.bench_function(BenchmarkId::new("backward", &name), |bencher| bencher.iter(|| memory.run(backward)));
    }
}

fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    for (rows, cols) in [(128, 32), (4096, 768)] {
        let mut memory = Memory::new();
        let n = rows * cols;
        let [src, dst, grad] = std::array::from_fn(|_| memory.take(DType::F32, n));
        let [weight, bias, dweight, dbias] = std::array::from_fn(|_| memory.take(DType::F32, cols));
        let [mean, rstd] = std::array::from_fn(|_| memory.take(DType::F32, rows));
        let name = format!("{rows}x{cols}");
        group.throughput(Throughput::Elements(n as u64));
        let mut bench = |what: &str, kernel: Kernel<'_>| {
            group.bench_function(BenchmarkId::new(what, &name), |bencher| bencher.iter(|| memory.run(kernel)));
        };
        bench("layer norm", kernels::LayerNorm::Forward { src, weight, bias, dst, mean, rstd, cols, eps: 1e-5 }.into());
        bench(
            "layer norm backward",
            kernels::LayerNorm::Backward { grad, src, mean, rstd, weight, dsrc: dst, dweight, dbias, cols }.into(),
        );
        bench("log-softmax", kernels::Softmax::Log { src, dst, cols }.into());
        bench("gelu", kernels::Elementwise::Gelu { src, dst, tanh: true }.into());
        bench("gelu backward", kernels::Elementwise::GeluBackward { src, grad, dst, tanh: true }.into());
        bench("add", kernels::Elementwise::Add { a: src, b: grad, dst }.into());
        bench("column sum", kernels::Sums::Columns { src, dst: dbias, rows, cols }.into());
    }
}

fn small(c: &mut Criterion) {
    let mut group = c.benchmark_group("small");
    let mut memory = Memory::new();
    let dst = memory.take(DType::F32, 1);
    group.bench_function("fill of one element", |bencher| {
        bencher.iter(|| memory.run(kernels::Elementwise::Fill { dst, value: 1.0 }))
    });
    let updates: Vec<ParameterUpdate> = (0..28)
        .map(|_| {
            let [parameter, gradient, first, second] = std::array::from_fn(|_| memory.take(DType::F32, 1200));
            ParameterUpdate { parameter, gradient, first: Some(first), second: Some(second) }
        })
        .collect();
    let parameters =
        AdamParameters { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decoupled: true, step: 10 };
    group.bench_function("AdamW on 28 tensors of 1200", |bencher| {
        bencher.iter(|| {
            memory.run(kernels::Optimizer::Adam {
                updates: &updates,
                parameters,
                scaling: None,
                passes: UpdatePasses::Several,
            })
        });
    });
}

/// (batch, in, out channels), side of the images, (kernel, stride, padding).
type Convolution = ([usize; 3], usize, [usize; 3]);

/// The convolutions of resnet-mini, as often as a step has them.
const RESNET_MINI: [Convolution; 17] = [
    ([16, 3, 8], 32, [7, 2, 3]),
    ([16, 8, 8], 8, [1, 1, 0]),
    ([16, 8, 8], 8, [3, 1, 1]),
    ([16, 8, 32], 8, [1, 1, 0]),
    ([16, 8, 32], 8, [1, 1, 0]),
    ([16, 32, 16], 8, [1, 1, 0]),
    ([16, 16, 16], 8, [3, 2, 1]),
    ([16, 16, 64], 4, [1, 1, 0]),
    ([16, 32, 64], 8, [1, 2, 0]),
    ([16, 64, 32], 4, [1, 1, 0]),
    ([16, 32, 32], 4, [3, 2, 1]),
    ([16, 32, 128], 2, [1, 1, 0]),
    ([16, 64, 128], 4, [1, 2, 0]),
    ([16, 128, 64], 2, [1, 1, 0]),
    ([16, 64, 64], 2, [3, 2, 1]),
    ([16, 64, 256], 1, [1, 1, 0]),
    ([16, 128, 256], 2, [1, 2, 0]),
];

/// The convolutions of dcgan-mini: of its discriminator and, from its output to its input, of its generator.
const DCGAN_MINI: [Convolution; 10] = [
    ([4, 3, 8], 64, [4, 2, 1]),
    ([4, 8, 16], 32, [4, 2, 1]),
    ([4, 16, 32], 16, [4, 2, 1]),
    ([4, 32, 64], 8, [4, 2, 1]),
    ([4, 64, 1], 4, [4, 1, 0]),
    ([4, 3, 8], 64, [4, 2, 1]),
    ([4, 8, 16], 32, [4, 2, 1]),
    ([4, 16, 32], 16, [4, 2, 1]),
    ([4, 32, 64], 8, [4, 2, 1]),
    ([4, 64, 100], 4, [4, 1, 0]),
];

/// Convolutions of a size that belongs on a GPU.
const LARGE: [Convolution; 2] = [([8, 64, 64], 56, [3, 1, 1]), ([8, 256, 64], 56, [1, 1, 0])];

fn convolutions(c: &mut Criterion) {
    let mut group = c.benchmark_group("convolutions");
    for (name, shapes) in [("resnet-mini", &RESNET_MINI[..]), ("dcgan-mini", &DCGAN_MINI), ("large", &LARGE)] {
        let mut memory = Memory::new();
        let layers: Vec<_> = shapes
            .iter()
            .map(|&([batch, in_channels, out_channels], side, [kernel, stride, padding])| {
                let out = (side + 2 * padding - kernel) / stride + 1;
                let (in_height, in_width, out_height, out_width) = (side, side, out, out);
                let shape = ConvShape {
                    batch,
                    in_channels,
                    in_height,
                    in_width,
                    out_channels,
                    out_height,
                    out_width,
                    kernel,
                    stride,
                    padding,
                    layout: ImageLayout::ChannelsFirst,
                };
                let lens = [shape.in_len(), shape.weight_len(), shape.out_len()];
                (shape, lens.map(|n| memory.take(DType::F32, n)), lens.map(|n| memory.take(DType::F32, n)))
            })
            .collect();
        for (i, (shape, [src, weight, _], [dsrc, dweight, grad])) in layers.iter().copied().enumerate() {
            let ([batch, from, to], side, [k, s, _]) = shapes[i];
            let what = format!("{i} {batch}x{from}x{side} to {to}, {k}/{s}");
            group.throughput(Throughput::Elements(2 * shape.products() as u64));
            let mut bench = |pass: &str, kernel: Kernel<'_>| {
                group.bench_function(BenchmarkId::new(format!("{name} {pass}"), &what), |bencher| {
                    bencher.iter(|| memory.run(kernel));
                });
            };
            bench("forward", kernels::Convolution::Forward { shape, src, weight, bias: None, dst: grad }.into());
            bench("input", kernels::Convolution::BackwardInput { shape, grad, weight, dst: dsrc }.into());
            bench("weight", kernels::Convolution::BackwardWeight { shape, grad, src, dst: dweight }.into());
        }
    }
}

fn images(c: &mut Criterion) {
    let mut group = c.benchmark_group("images");
    for (batch, channels, side) in [(16, 8, 16), (16, 32, 8), (16, 256, 1), (4, 8, 32), (8, 64, 56)] {
        let mut memory = Memory::new();
        let shape = ChannelShape { batch, channels, area: side * side };
        let [src, dst, grad] = [(); 3].map(|()| memory.take(DType::F32, shape.len()));
        let [weight, bias, mean, rstd, running_mean, running_var, dweight, dbias] =
            [(); 8].map(|()| memory.take(DType::F32, channels));
        let name = format!("{batch}x{channels}x{side}x{side}");
        let mut bench = |what: &str, kernel: Kernel<'_>| {
            group.bench_function(BenchmarkId::new(what, &name), |bencher| bencher.iter(|| memory.run(kernel)));
        };
        let (eps, momentum) = (1e-5, 0.1);
        bench(
            "batch norm",
            kernels::BatchNorm::Forward {
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
            }
            .into(),
        );
        let dsrc = dst;
        bench(
            "batch norm backward",
            kernels::BatchNorm::Backward { grad, src, mean, rstd, weight, dsrc, dweight, dbias, shape }.into(),
        );
        bench(
            "batch norm inference",
            kernels::BatchNorm::Inference { src, weight, bias, running_mean, running_var, dst, shape, eps }.into(),
        );
        bench("channel sum", kernels::Sums::Channels { src, dst: dbias, shape }.into());
        bench("relu in place", kernels::Elementwise::Relu { src: dst, dst }.into());
        bench("leaky relu in place", kernels::Elementwise::LeakyRelu { src: dst, dst, slope: 0.2 }.into());
        bench(
            "leaky relu backward",
            kernels::Elementwise::LeakyReluBackward { output: src, grad, dst, slope: 0.2 }.into(),
        );
        bench("tanh", kernels::Elementwise::Tanh { src, dst }.into());
        bench("tanh backward", kernels::Elementwise::TanhBackward { output: src, grad, dst }.into());
        let (planes, middle) = (batch * channels, side * side);
        let means = memory.take(DType::F32, planes);
        let mut bench = |what: &str, kernel: Kernel<'_>| {
            group.bench_function(BenchmarkId::new(what, &name), |bencher| bencher.iter(|| memory.run(kernel)));
        };
        bench("mean", kernels::Sums::Mean { src, dst: means, outer: planes, middle, inner: 1 }.into());
        bench(
            "mean backward",
            kernels::Sums::MeanBackward { grad: means, dst, outer: planes, middle, inner: 1 }.into(),
        );
    }
    let mut memory = Memory::new();
    let shape = PoolShape {
        planes: 128,
        in_height: 16,
        in_width: 16,
        out_height: 8,
        out_width: 8,
        kernel: 3,
        stride: 2,
        padding: 1,
        interleaved: 1,
    };
    let [src, dst] = [(); 2].map(|()| memory.take(DType::F32, 128 * 256));
    let pooled = memory.take(DType::F32, 128 * 64);
    let indices = memory.take(DType::I64, 128 * 64);
    group.bench_function("max pool", |bencher| {
        bencher.iter(|| memory.run(kernels::Pool::Max { src, dst: pooled, indices, shape }));
    });
    group.bench_function("max pool backward", |bencher| {
        bencher.iter(|| memory.run(kernels::Pool::MaxBackward { grad: pooled, indices, dst, shape }));
    });
    let [logits, targets, gradient] = [(); 3].map(|()| memory.take(DType::F32, 4));
    let loss = memory.take(DType::F32, 1);
    group.bench_function("binary cross-entropy", |bencher| {
        bencher.iter(|| memory.run(kernels::Loss::BceWithLogits { logits, targets, loss }));
    });
    group.bench_function("binary cross-entropy backward", |bencher| {
        let kernel = kernels::Loss::BceWithLogitsBackward { grad: loss, logits, targets, dst: gradient };
        bencher.iter(|| memory.run(kernel));
    });
}

criterion_group!(benches, small, gemm, attention, rows, convolutions, images);
criterion_main!(benches);
