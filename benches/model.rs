//! The memory model: events a second, the cost of a view, the cost of a seek.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/synthetic.rs"]
mod synthetic;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramlab::model::{Event, Lab, MemoryModel};
use vramlab::recording::{Bounds, Timeline};

const BLOCKS: usize = 100_000;

fn model_after(events: &[Event]) -> MemoryModel {
    let mut model = MemoryModel::new();
    for event in events {
        model.apply(event).unwrap();
    }
    model
}

fn apply(c: &mut Criterion) {
    let mut group = c.benchmark_group("apply");
    let run = synthetic::training_run();
    group.throughput(Throughput::Elements(run.len() as u64));
    group.bench_function("training run", |b| b.iter(|| model_after(black_box(&run)).ledger()));
    group.bench_function("training run, lab", |b| {
        b.iter(|| {
            let mut lab = Lab::new();
            for event in &run {
                lab.apply(black_box(event));
            }
            lab.memory().allocated()
        });
    });

    let (setup, churn) = synthetic::churn(BLOCKS, 50_000);
    let crowded = model_after(&setup);
    let mut lab = Lab::new();
    setup.iter().for_each(|event| lab.apply(event));
    group.throughput(Throughput::Elements(churn.len() as u64));
    // Every pair leaves the state unchanged, so the same model can go on and on.
    group.bench_function("100,000 live blocks", |b| {
        let mut model = crowded.clone();
        b.iter(|| {
            for event in &churn {
                model.apply(black_box(event)).unwrap();
            }
            model.ledger()
        });
    });
    group.bench_function("100,000 live blocks, lab", |b| {
        b.iter(|| churn.iter().for_each(|event| lab.apply(black_box(event))));
    });
    group.finish();
}

fn view(c: &mut Criterion) {
    let mut group = c.benchmark_group("view of 100,000 blocks");
    let (setup, churn) = synthetic::churn(BLOCKS, 5_000);
    let mut lab = Lab::new();
    setup.iter().for_each(|event| lab.apply(event));
    let mut next = churn.iter().cycle();
    group.bench_function("every segment changed", |b| {
        b.iter_custom(|count| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..count {
                next.by_ref().take(churn.len() / 3 * 3).for_each(|event| lab.apply(event));
                let start = std::time::Instant::now();
                black_box(lab.view());
                spent += start.elapsed();
            }
            spent
        });
    });
    group.bench_function("nothing changed", |b| b.iter(|| lab.view()));
    group.finish();
}

fn seek(c: &mut Criterion) {
    let mut group = c.benchmark_group("seek");
    for (name, events) in [
        ("training run", synthetic::training_run()),
        ("100,000 blocks", {
            let (mut events, churn) = synthetic::churn(BLOCKS, 50_000);
            events.extend(churn);
            events
        }),
    ] {
        let mut timeline = Timeline::new(Bounds::default());
        events.iter().for_each(|event| timeline.push(event));
        let mut at = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                at = (at + 7919) % timeline.end();
                timeline.at(black_box(at)).unwrap().position()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, apply, view, seek);
criterion_main!(benches);
