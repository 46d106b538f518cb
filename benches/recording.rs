//! Recordings: an event's size on disk and its time, and how long it takes to open ten million events and to go to any
//! of them.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/synthetic.rs"]
mod synthetic;
#[path = "../tests/common/training.rs"]
mod training;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramlab::model::{About, Event, EventKind, Micros, Ranks};
use vramlab::recording::{Frame, FrameBuilder, Next, Reader, Timeline, Writer};
use vramlab::train::{Config, Libraries};
use vramlab::units::DeviceIndex;

const MANY: usize = 10_000_000;

/// The streams that are measured.
fn streams() -> [(&'static str, Vec<Event>); 4] {
    let (mut crowd, churn) = synthetic::churn(5000, 100_000);
    crowd.extend(churn);
    let sized = |name| training::workload(name);
    let (workload, batch) = sized("gpt-mini");
    let (mut trainer, simulated) = training::simulated(workload, Config::new(batch));
    (0..200).for_each(|_| assert!(trainer.step().is_ok()));
    drop(trainer);
    let (workload, batch) = sized("gpt-mini");
    let (mut trainer, timed) = training::trainer(workload, Config::new(batch), Libraries::PROCESSOR);
    (0..200).for_each(|_| assert!(trainer.step().is_ok()));
    drop(trainer);
    [
        ("training run", times(&synthetic::training_run(), 300_000)),
        ("churn among 5000 blocks", crowd),
        ("gpt-mini on sim:h200", simulated.take()),
        ("gpt-mini on the processor", timed.take()),
    ]
}

/// A run repeated until there are `count` events.
fn times(run: &[Event], count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    each_of(run, count, |event| events.push(event));
    events
}

fn each_of(run: &[Event], count: usize, mut each: impl FnMut(Event)) {
    let length = run.last().unwrap().time.0;
    let (mut left, mut later) = (count, 0);
    while left > 0 {
        each(Event::new(Micros(later), EventKind::Begin(Arc::new(About::default()))));
        for event in run.iter().take(left) {
            each(Event { time: Micros(event.time.0 + later), ..event.clone() });
        }
        left -= run.len().min(left);
        later += length;
    }
}

fn frames_of(events: &[Event]) -> Vec<Frame> {
    let mut builder = FrameBuilder::new(0);
    let mut frames = Vec::new();
    for event in events {
        builder.push(event);
        if builder.is_full() {
            frames.extend(builder.finish());
        }
    }
    frames.extend(builder.finish());
    frames
}

fn frames(c: &mut Criterion) {
    for (name, events) in streams() {
        let frames = frames_of(&events);
        let bytes: usize = frames.iter().map(|frame| frame.bytes().len() + 44).sum();
        println!("{name}: {} events, {:.2} bytes an event", events.len(), bytes as f64 / events.len() as f64);
        let mut group = c.benchmark_group(name);
        group.sample_size(10).throughput(Throughput::Elements(events.len() as u64));
        group.bench_function("apply", |b| {
            b.iter(|| {
                let mut ranks = Ranks::default();
                events.iter().for_each(|event| ranks.apply(event));
                ranks
            });
        });
        group.bench_function("encode and compress", |b| b.iter(|| frames_of(black_box(&events))));
        group.bench_function("decompress and decode", |b| {
            b.iter(|| {
                let mut last = Micros(0);
                for frame in &frames {
                    frame.unpack().unwrap().each(0..u64::MAX, |event| last = event.time).unwrap();
                }
                last
            });
        });
        group.bench_function("decode and apply", |b| {
            b.iter(|| {
                let mut ranks = Ranks::default();
                for frame in &frames {
                    frame.unpack().unwrap().each(0..u64::MAX, |event| ranks.apply(event)).unwrap();
                }
                ranks
            });
        });
        group.bench_function("append to a timeline", |b| {
            b.iter(|| {
                let mut timeline = Timeline::default();
                frames.iter().for_each(|frame| timeline.append(frame.clone()).unwrap());
                timeline
            });
        });
        group.bench_function("push to a timeline", |b| {
            b.iter(|| {
                let mut timeline = Timeline::default();
                events.iter().for_each(|event| timeline.push(event));
                timeline
            });
        });
        group.finish();
    }
}

/// Ten million events: how long a person waits.
fn many(_: &mut Criterion) {
    for (name, run) in streams() {
        let mut writer = Writer::new(Vec::new()).unwrap();
        let mut builder = FrameBuilder::new(0);
        each_of(&run, MANY, |event| {
            builder.push(&event);
            if builder.is_full() {
                builder.finish().iter().for_each(|frame| writer.write(frame).unwrap());
            }
        });
        builder.finish().iter().for_each(|frame| writer.write(frame).unwrap());
        let file = writer.into_inner();

        let begun = Instant::now();
        let mut reader = Reader::new(&file[..]);
        let mut timeline = Timeline::default();
        let mut first = None;
        while let Next::Frame(frame) = reader.next().unwrap() {
            timeline.append(frame).unwrap();
            first.get_or_insert_with(|| {
                black_box(timeline.now().lab_mut(DeviceIndex::FIRST).unwrap().view());
                begun.elapsed()
            });
        }
        let opened = begun.elapsed();
        let (begin, end) = (timeline.first(), timeline.end());
        println!(
            "{name}, {end} events in {} MiB: first picture after {:.1?}, opened in {opened:.2?}, {begin} forgotten, {} MiB",
            file.len() >> 20,
            first.unwrap_or_default(),
            timeline.weight() >> 20,
        );
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let anywhere = (0..1000).map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            begin + seed % (end - begin + 1)
        });
        let middle = u64::midpoint(begin, end);
        tell("at, anywhere", &mut timeline, anywhere);
        tell("at, an event on", &mut timeline, middle..middle + 3000);
        tell("at, an event back", &mut timeline, (middle - 3000..middle).rev());
    }
}

fn tell(what: &str, timeline: &mut Timeline, positions: impl Iterator<Item = u64>) {
    let mut spent: Vec<Duration> = positions
        .map(|position| {
            let begun = Instant::now();
            black_box(timeline.at(position).unwrap());
            begun.elapsed()
        })
        .collect();
    spent.sort_unstable();
    let share = |part: f64| spent[((spent.len() - 1) as f64 * part) as usize];
    println!("  {what}: median {:.2?}, 99th percentile {:.2?}, worst {:.2?}", share(0.5), share(0.99), share(1.0));
}

criterion_group!(benches, many, frames);
criterion_main!(benches);
