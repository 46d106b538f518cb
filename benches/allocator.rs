//! How long the allocator's own work takes, with a driver that costs nothing.
//!
//! `cargo bench --bench allocator`

#![expect(clippy::expect_used, reason = "a benchmark that cannot allocate has nothing to measure")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use vramlab::allocator::{CachingAllocator, Settings, SimulatedDriver};
use vramlab::units::{Address, Bytes, StreamId};

type Allocator = CachingAllocator<SimulatedDriver>;

fn allocator(conf: &str) -> Allocator {
    let settings = Settings::parse(conf).expect("a valid configuration");
    CachingAllocator::new(SimulatedDriver::new(Bytes::gib(140), Bytes::ZERO), settings, ())
}

fn malloc(allocator: &mut Allocator, size: Bytes) -> Address {
    allocator.malloc(size, StreamId::DEFAULT).expect("the device is large enough").address
}

fn pair(allocator: &mut Allocator, size: Bytes) {
    let address = malloc(allocator, black_box(size));
    allocator.free(address).expect("it was handed out");
}

/// A block is taken from the cache and given back.
fn cached_pair(c: &mut Criterion) {
    let mut group = c.benchmark_group("cached pair");
    for (name, conf, size) in [
        ("small", "", Bytes::kib(64)),
        ("large", "", Bytes::mib(4)),
        ("whole segment", "", Bytes::mib(64)),
        ("expandable", "expandable_segments:True", Bytes::mib(4)),
    ] {
        let mut allocator = allocator(conf);
        let _live = malloc(&mut allocator, size);
        group.bench_function(name, |b| b.iter(|| pair(&mut allocator, size)));
    }
    group.finish();
}

/// The same beside 100,000 live blocks and as many holes of other sizes.
fn crowded_pair(c: &mut Criterion) {
    let mut allocator = allocator("");
    let blocks: Vec<Address> =
        (0..200_000_u64).map(|i| malloc(&mut allocator, Bytes(512 * (1 + i * 7 % 97)))).collect();
    for address in blocks.into_iter().step_by(2) {
        allocator.free(address).expect("it was handed out");
    }
    c.bench_function("pair among 100,000 live blocks", |b| b.iter(|| pair(&mut allocator, Bytes::kib(20))));
}

/// Mixed sizes and lifetimes of a training step: 1,000 requests, each freed 40 requests later.
fn churn(c: &mut Criterion) {
    let mut group = c.benchmark_group("churn of 1,000 requests");
    for (name, conf) in
        [("default", ""), ("expandable", "expandable_segments:True"), ("roundup", "roundup_power2_divisions:4")]
    {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || allocator(conf),
                |allocator| {
                    let mut live = std::collections::VecDeque::with_capacity(64);
                    let mut state = 1_u64;
                    for _ in 0..1000 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let shift = (state >> 33) % 15;
                        live.push_back(malloc(allocator, Bytes(((state >> 40) % 2000 + 1) << shift)));
                        if live.len() > 40
                            && let Some(oldest) = live.pop_front()
                        {
                            allocator.free(oldest).expect("it was handed out");
                        }
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, cached_pair, crowded_pair, churn);
criterion_main!(benches);
