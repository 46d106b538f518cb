//! One step of GPT-2 at full size on a simulated H200: alone, and with the model of the lab kept up to date.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use vramlab::allocator::Settings;
use vramlab::device::sim::CardCatalog;
use vramlab::model::{Event, Lab};
use vramlab::session::{DeviceChoice, LabSpec, Speed};
use vramlab::train::{Amp, Config, DataPath, Observer, Trainer};
use vramlab::workload::{Catalog, Data, Sizes};

/// Applies every event at once.
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
        kernels: None,
        steps: None,
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

criterion_group!(benches, steps);
criterion_main!(benches);
