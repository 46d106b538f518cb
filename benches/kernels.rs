//! The processor device's kernels: `cargo bench --bench kernels`.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use vramlab::allocator::SegmentSource;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::{
    AdamParameters, AttentionShape, DType, Device, HeadView, Kernel, MatrixView, Operand, ParameterUpdate, UpdatePasses,
};
use vramlab::units::{Address, Bytes, StreamId};

/// A device and one segment, cut from its start.
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
        self.run(&Kernel::Fill { dst: operand, value: 0.01 });
        operand
    }

    fn run(&mut self, kernel: &Kernel<'_>) {
        self.device.launch(black_box(kernel), StreamId::DEFAULT).unwrap();
    }
}

fn matrix(operand: Operand, cols: usize) -> MatrixView {
    MatrixView { address: operand.address, dtype: operand.dtype, row_stride: cols, col_stride: 1, batch_stride: 0 }
}

/// Elements a second are floating-point operations a second here.
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
        let kernel = Kernel::Gemm { m, n, k, batch: 1, a, b, c, bias: None, alpha: 1.0, accumulate: false };
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        group.bench_function(BenchmarkId::new(format!("{dtype:?}"), format!("{m}x{n}x{k}")), |bencher| {
            bencher.iter(|| memory.run(&kernel));
        });
    }
}

fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention");
    for (batch, count, rows, size) in [(4, 4, 32, 8), (8, 4, 256, 32)] {
        let mut memory = Memory::new();
        let n = batch * count * rows * size;
        let shape = AttentionShape { batch, heads: count, rows, head_size: size, causal: true, scale: 0.2 };
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
            bencher.iter(|| memory.run(&Kernel::Attention { shape, q, k, v, out, logsumexp, lse_stride }));
        });
        let backward = Kernel::AttentionBackward { shape, q, k, v, out, logsumexp, lse_stride, grad, dq, dk, dv };
        group.bench_function(BenchmarkId::new("backward", &name), |bencher| bencher.iter(|| memory.run(&backward)));
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
        let mut bench = |what: &str, kernel: &Kernel<'_>| {
            group.bench_function(BenchmarkId::new(what, &name), |bencher| bencher.iter(|| memory.run(kernel)));
        };
        bench("layer norm", &Kernel::LayerNorm { src, weight, bias, dst, mean, rstd, cols, eps: 1e-5 });
        bench(
            "layer norm backward",
            &Kernel::LayerNormBackward { grad, src, mean, rstd, weight, dsrc: dst, dweight, dbias, cols },
        );
        bench("log-softmax", &Kernel::LogSoftmax { src, dst, cols });
        bench("gelu", &Kernel::Gelu { src, dst, tanh: true });
        bench("gelu backward", &Kernel::GeluBackward { src, grad, dst, tanh: true });
        bench("add", &Kernel::Add { a: src, b: grad, dst });
        bench("column sum", &Kernel::ColumnSum { src, dst: dbias, rows, cols });
    }
}

fn small(c: &mut Criterion) {
    let mut group = c.benchmark_group("small");
    let mut memory = Memory::new();
    let dst = memory.take(DType::F32, 1);
    group.bench_function("fill of one element", |bencher| {
        bencher.iter(|| memory.run(&Kernel::Fill { dst, value: 1.0 }))
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
            memory.run(&Kernel::Adam { updates: &updates, parameters, scaling: None, passes: UpdatePasses::Several })
        });
    });
}

criterion_group!(benches, small, gemm, attention, rows);
criterion_main!(benches);
