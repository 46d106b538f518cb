//! How fast snapshots are read (bytes and entries a second) and replayed (entries a second).

#![allow(missing_docs, reason = "criterion's macros")]
#![expect(clippy::unwrap_used, reason = "a benchmark that can't read its data must fail")]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramlab::snapshot::Snapshot;
use vramlab::snapshot::replay::{Conditions, Overrides, verify};

#[path = "../tests/common/big.rs"]
mod big;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/traces").join(format!("{name}.pickle.xz"))
}

fn snapshot(criterion: &mut Criterion) {
    // A long one without stacks, and one with stacks, as most people record it.
    for name in ["oom-and-recover", "gpt-frames"] {
        let compressed = BufReader::new(File::open(path(name)).unwrap());
        let mut pickle = Vec::new();
        lzma_rust2::XzReader::new(compressed, true).read_to_end(&mut pickle).unwrap();
        let entries = Snapshot::read(&pickle[..]).unwrap().device_trace(0).len() as u64;
        let mut group = criterion.benchmark_group(format!("parse/{name}"));
        group.sample_size(20);
        group.throughput(Throughput::Bytes(pickle.len() as u64));
        group.bench_function("bytes", |bencher| bencher.iter(|| Snapshot::read(black_box(&pickle[..])).unwrap()));
        group.throughput(Throughput::Elements(entries));
        group.bench_function("entries", |bencher| bencher.iter(|| Snapshot::read(black_box(&pickle[..])).unwrap()));
        group.finish();
    }
    // The same shape as the longest snapshots that people have; this is one part in seventy.
    let mut pickle = Vec::new();
    let (entries, bytes) = big::Big::of(30_000).write(&mut pickle).unwrap();
    let mut group = criterion.benchmark_group("parse/long, with deep stacks");
    group.sample_size(20);
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("bytes", |bencher| bencher.iter(|| Snapshot::read(black_box(&pickle[..])).unwrap()));
    group.throughput(Throughput::Elements(entries));
    group.bench_function("entries", |bencher| bencher.iter(|| Snapshot::read(black_box(&pickle[..])).unwrap()));
    group.finish();
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(20);
    for name in ["oom-and-recover", "churn-default", "churn-expandable", "churn-gc", "bert-varlen"] {
        let snapshot = Snapshot::open(path(name)).unwrap();
        let conditions = Conditions::find(&path(name), &snapshot, &Overrides::default()).unwrap();
        group.throughput(Throughput::Elements(snapshot.device_trace(0).len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let report = verify(black_box(&snapshot), &conditions);
                assert!(report.is_match());
                report
            });
        });
    }
    group.finish();
}

criterion_group!(benches, snapshot);
criterion_main!(benches);
