//! The simulated GPUs: what must hold on any card. Step times beside PyTorch's are in `parity.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that can't be set up fails")]

#[path = "common/training.rs"]
mod training;

use vramlab::allocator::Settings;
use vramlab::device::sim::{CardCatalog, SimDevice};
use vramlab::model::{Event, EventKind, Evidence, Lab, Why};
use vramlab::train::{Config, DataPath, OptimizerForm, TrainError, Trainer, TrainerOptions};
use vramlab::units::Bytes;

/// Milliseconds of a step when the first ones are over.
fn step_ms(trainer: &mut Trainer) -> f64 {
    (0..4).map(|_| trainer.step().unwrap().total.0 as f64 / 1e3).last().unwrap()
}

fn on(card: &str, config: Config) -> Trainer {
    let card = CardCatalog::with_user_cards(None).card(card).unwrap();
    let (model, _) = training::workload("gpt2");
    let device = Box::new(SimDevice::new(card));
    Trainer::new(
        device,
        model,
        config,
        TrainerOptions { settings: Settings::default(), ..Default::default() },
        Box::new(()),
    )
    .unwrap()
}

#[test]
fn cards_are_as_fast_as_their_data_sheets_order_them() {
    let times: Vec<f64> = ["h200", "h100-80g", "a100-80g", "rtx-3060-12g", "t4"]
        .iter()
        .map(|card| step_ms(&mut on(card, training::variant("ckpt", 2))))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[4] > 3.0 * times[0], "{times:?}");
}

#[test]
fn two_runs_are_the_same_to_the_last_event() {
    let run = || {
        let (model, batch) = training::workload("gpt-mini");
        let mut config = training::variant("all", batch);
        config.data = DataPath::Streamed;
        config.pinned = true;
        let (mut trainer, events) = training::simulated(model, config);
        for _ in 0..5 {
            trainer.step().unwrap();
        }
        drop(trainer);
        events.take()
    };
    assert_eq!(run(), run());
}

#[test]
fn copies_from_page_locked_memory_overlap_the_computation() {
    let step = |pinned| {
        let (model, _) = training::workload("mlp");
        let config = Config { data: DataPath::Streamed, pinned, ..training::variant("bf16", 8192) };
        let (mut trainer, events) = training::simulated(model, config);
        let time = step_ms(&mut trainer);
        let copy = |event: &Event| matches!(event.kind, EventKind::Copy { pinned: p, .. } if p == pinned);
        assert!(events.borrow().iter().any(copy));
        time
    };
    let (resident, _) = training::simulated(training::workload("mlp").0, training::variant("bf16", 8192));
    let resident = step_ms(&mut { resident });
    // 32 MiB: half a millisecond beside the computation, three before it.
    assert!((step(true) / resident - 1.0).abs() < 0.05, "{} {resident}", step(true));
    assert!(step(false) > resident + 1.5, "{} {resident}", step(false));
}

#[test]
fn forms_of_an_optimizer_differ_in_time() {
    let optimizer = |form| {
        let mut config = training::variant("bf16", 16);
        config.form = form;
        let mut trainer = on("h200", config);
        (0..3).map(|_| trainer.step().unwrap().phases[3].0).last().unwrap()
    };
    let [foreach, fused, per_parameter] =
        [OptimizerForm::Foreach, OptimizerForm::Fused, OptimizerForm::Loop].map(optimizer);
    assert!(2 * fused < foreach && foreach < per_parameter, "{fused} {foreach} {per_parameter} µs");
}

#[test]
fn gpt2_at_batch_16_runs_out_of_memory_on_a_t4_which_is_explained_and_survived() {
    let card = CardCatalog::with_user_cards(None).card("t4").unwrap();
    let (model, batch) = training::workload("gpt2");
    let events = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let mut trainer = Trainer::new(
        Box::new(SimDevice::new(card)),
        model,
        training::variant("base", batch),
        TrainerOptions::default(),
        Box::new(std::rc::Rc::clone(&events)),
    )
    .unwrap();
    assert!(matches!(trainer.step(), Err(TrainError::OutOfMemory { .. })));
    let mut lab = Lab::new();
    events.borrow().iter().for_each(|event| lab.apply(event));
    assert_eq!(lab.malformed(), 0);
    let view = lab.view();
    let first = &view.findings[0];
    assert!(matches!(first.evidence, Evidence::OutOfMemory { .. }) && !first.remedies.is_empty(), "{first:?}");
    let autopsy = view.autopsy.unwrap();
    // What the driver had left is too little for the segment; nobody set a limit.
    assert!(autopsy.request.device_free < autopsy.request.segment && autopsy.limit.is_none());
    assert_eq!(autopsy.short, autopsy.request.segment - autopsy.request.device_free);
    assert!(!autopsy.request.attempts.is_empty() && !autopsy.owners.is_empty());
    let free: Bytes = autopsy.unusable.iter().filter(|part| part.why != Why::Pending).map(|part| part.bytes).sum();
    assert_eq!(free, autopsy.ledger.free());
    trainer.configure(training::variant("ckpt", 2)).unwrap();
    let report = trainer.step().unwrap();
    assert_eq!(report.loss, None);
}
