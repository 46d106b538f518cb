//! How fast a program is replayed under other settings (requests a second), and how long a search takes.

#![allow(missing_docs, reason = "criterion's macros")]
#![expect(clippy::unwrap_used, reason = "a benchmark that can't read its data must fail")]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramlab::allocator::TorchVersion;
use vramlab::source::{RunHints, Whole, asked};
use vramlab::whatif::{Effort, RecordedRun, Tuning, smallest_limit};

/// A history of some 20,000 blocks of varying sizes.
fn run() -> RecordedRun {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/traces/bert-varlen.pickle.xz");
    asked(&Whole::read(&path, None, |_| {}).unwrap(), RunHints::default(), |_, _| {}).unwrap().swap_remove(0)
}

fn tuning(criterion: &mut Criterion) {
    let run = run();
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(20);
    group.throughput(Throughput::Elements(run.program.len() as u64));
    for conf in ["", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:4"] {
        let conditions = run.under(conf).unwrap();
        let name = if conf.is_empty() { "defaults" } else { conf };
        group.bench_function(name, |bencher| bencher.iter(|| black_box(&run.program).replay(&conditions)));
    }
    group.finish();
    let mut group = criterion.benchmark_group("search");
    group.sample_size(10);
    let tried = Tuning::of(&run, None, Effort::Full, TorchVersion::default(), &|_, _| {}).unwrap().tried.len() as u64;
    group.throughput(Throughput::Elements(tried * run.program.len() as u64));
    group.bench_function("settings", |bencher| {
        bencher.iter(|| Tuning::of(black_box(&run), None, Effort::Full, TorchVersion::default(), &|_, _| {}).unwrap());
    });
    let defaults = run.under("").unwrap();
    group.throughput(Throughput::Elements(run.program.len() as u64));
    group.bench_function("smallest limit", |bencher| {
        bencher.iter(|| smallest_limit(black_box(&run.program), &defaults));
    });
    group.finish();
}

criterion_group!(benches, tuning);
criterion_main!(benches);
