//! A training step that nobody watches, and the same step in a running lab, with events, model thread and thirty
//! pictures a second. The difference is the cost of watching; it should stay under 2 %.
//!
//! The small workloads, whose steps are compared with PyTorch's, run in fp32 and in bf16.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark that can't be set up fails")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use vramlab::session::LabSpec;
use vramlab::source::{self, Request};
use vramlab::train::{Amp, Config, DataPath};
use vramlab::workload::{Catalog, Data, Text};

fn spec(name: &str, data: Data) -> LabSpec {
    // No text is written between steps: it is not part of what is compared.
    let mut workload = Catalog::with_user_workloads(None).entry(name).unwrap();
    workload.sample_every = None;
    let config = Config { data: DataPath::Streamed, ..Config::new(workload.batch.get()) };
    LabSpec { data, config, ..LabSpec::new(workload) }
}

fn steps(c: &mut Criterion) {
    for (name, data) in [("gpt-mini", Data::Streamed), ("gpt-char", Data::Text(Text::source()))] {
        let mut group = c.benchmark_group(format!("{name} step"));
        group.sample_size(10).measurement_time(Duration::from_secs(8));
        let mut trainer = spec(name, data.clone()).build(Box::new(())).unwrap();
        group.bench_function("unwatched", |b| b.iter(|| trainer.step().unwrap()));
        drop(trainer);
        let folder = tempfile::tempdir().unwrap();
        for (watched, recorded) in [("watched", false), ("watched and recorded", true)] {
            let mut lab = source::live(spec(name, data.clone())).unwrap();
            if recorded {
                lab.request(Request::Record(folder.path().join("run.vram")));
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            group.bench_function(watched, |b| {
                b.iter_custom(|count| {
                    runtime.block_on(async {
                        let first = lab.pictures.borrow_and_update().extent.steps;
                        let begun = Instant::now();
                        let seen = lab.pictures.wait_for(|picture| picture.extent.steps >= first + count).await;
                        // A picture comes every 33 ms: it shows all steps that were done by then, not only `count`.
                        let done = seen.unwrap().extent.steps - first;
                        begun.elapsed().mul_f64(count as f64 / done as f64)
                    })
                });
            });
        }
        group.finish();
    }
}

fn small(c: &mut Criterion) {
    for name in ["mlp-mini", "gpt-mini", "bert-mini", "vit-mini", "resnet-mini", "dcgan-mini"] {
        let mut group = c.benchmark_group(format!("{name} step"));
        group.sample_size(10).measurement_time(Duration::from_secs(3));
        for (precision, amp) in [("fp32", Amp::Off), ("bf16", Amp::Bf16)] {
            let mut spec = spec(name, Data::Reference);
            spec.config = Config { data: DataPath::Resident, amp, ..spec.config };
            let mut trainer = spec.build(Box::new(())).unwrap();
            group.bench_function(precision, |b| b.iter(|| trainer.step().unwrap()));
        }
        group.finish();
    }
}

criterion_group!(benches, steps, small);
criterion_main!(benches);
