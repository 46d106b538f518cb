//! One step of GPT-2 at full size on a simulated H200: alone, and with the model of the lab kept up to date.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::RefCell;
use std::rc::Rc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramlab::allocator::Settings;
use vramlab::device::sim::CardCatalog;
use vramlab::model::{Event, Lab};
use vramlab::session::{DeviceChoice, LabSpec, Speed};
use vramlab::train::{Amp, Config, DataPath, Observer, Trainer};
use vramlab::units::DeviceIndex;
use vramlab::whatif::{Conditions, Follower, Places, Program};
use vramlab::workload::{Catalog, Data, Sizes};

/// Applies every event at once to the model.
struct Watching(Lab);

impl Observer for Watching {
    fn event(&mut self, event: Event) {
        self.0.apply(&event);
    }
}

fn gpt2(amp: Amp, observer: Box<dyn Observer>) -> Trainer {
    let workload = Catalog::with_user_workloads(None).entry("gpt2").unwrap();
    let config = Config { data: DataPath::Resident, amp, ..Config::new(workload.batch.get()) };
    let spec = LabSpec {
        parallel: None,
        apart: false,
        member: None,
        seat: None,
        timetable: None,
        index: vramlab::units::DeviceIndex::FIRST,
        workload,
        sizes: Sizes::default(),
        data: Data::Reference,
        seed: 1,
        config,
        device: DeviceChoice::Sim(Box::new(CardCatalog::with_user_cards(None).card("h200").unwrap())),
        speed: Speed::Max,
        settings: Settings::default(),
        alloc_conf: "".into(),
        limit: None,
        inference: None,
        load: None,
        preallocate: None,
        kernels: None,
        steps: None,
        rests: false,
    };
    spec.build(observer).unwrap()
}

fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("gpt2 step on sim:h200");
    for (precision, amp) in [("fp32", Amp::Off), ("bf16", Amp::Bf16)] {
        let mut trainer = gpt2(amp, Box::new(()));
        group.bench_function(format!("{precision}, headless"), |b| b.iter(|| trainer.step().unwrap()));
        let mut trainer = gpt2(amp, Box::new(Watching(Lab::new())));
        group.bench_function(format!("{precision}, watched"), |b| b.iter(|| trainer.step().unwrap()));
    }
    group.finish();
}

/// The events of a step of GPT-2, replayed by another allocator and read as a program.
fn ghost(c: &mut Criterion) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let mut trainer = gpt2(Amp::Off, Box::new(Rc::clone(&events)));
    for _ in 0..3 {
        trainer.step().unwrap();
    }
    let start = events.take();
    trainer.step().unwrap();
    let step = events.take();
    let mut group = c.benchmark_group(format!("ghost of a gpt2 step of {} events", step.len()));
    group.throughput(Throughput::Elements(step.len() as u64));
    for conf in ["", "expandable_segments:True"] {
        let conditions = Conditions::parse(conf, None).unwrap();
        let mut follower = Follower::new(&conditions, Places::Simulated, DeviceIndex::FIRST);
        start.iter().for_each(|event| follower.apply(event));
        group.bench_function(format!("follow {conf}"), |b| {
            b.iter(|| step.iter().for_each(|event| follower.apply(event)));
        });
    }
    let run: Vec<Event> = start.iter().chain(std::iter::repeat_n(&step, 20).flatten()).cloned().collect();
    group.throughput(Throughput::Elements(run.len() as u64));
    group.bench_function(format!("read a run of {}", run.len()), |b| {
        b.iter(|| Program::of(&run, DeviceIndex::FIRST, Places::Simulated));
    });
    let program = Program::of(&run, DeviceIndex::FIRST, Places::Simulated);
    let conditions = Conditions::parse("expandable_segments:True", None).unwrap();
    group.bench_function(format!("replay a run of {}", run.len()), |b| b.iter(|| program.replay(&conditions)));
    group.finish();
}

criterion_group!(benches, steps, ghost);
criterion_main!(benches);
