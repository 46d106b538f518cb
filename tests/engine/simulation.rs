//! The simulated GPUs: what must hold for any card. `parity.rs` compares step times with PyTorch's.

use vramlab::allocator::Settings;
use vramlab::device::sim::{CardCatalog, SimDevice};
use vramlab::model::{Event, EventKind, Evidence, Lab, Why};
use vramlab::train::{
    Amp, Config, DataPath, Libraries, OptimizerForm, OptimizerKind, TrainError, Trainer, TrainerOptions,
};
use vramlab::units::Bytes;

/// Milliseconds of a step after the first ones.
fn step_ms(trainer: &mut Trainer) -> f64 {
    (0..4).map(|_| trainer.step().unwrap().total.0 as f64 / 1e3).last().unwrap()
}

fn on(card: &str, config: Config) -> Trainer {
    let card = CardCatalog::with_user_cards(None).card(card).unwrap();
    let (model, _) = crate::training::workload("gpt2");
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
    let times: Vec<f64> = ["b200", "h200", "h100-80g", "l40s", "rtx-3090", "a100-80g", "rtx-3060-12g", "t4"]
        .iter()
        .map(|card| step_ms(&mut on(card, crate::training::variant("ckpt", 2))))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[7] > 3.0 * times[1], "{times:?}");
}

/// How many times as fast a step is under AMP as in fp32, by card and workload: between published figures for the card
/// or its generation, as lab/devices says. bf16 on a T4 is computed in fp32, with conversions.
#[test]
fn mixed_precision_is_as_much_faster_as_on_cards_of_the_kind() {
    let (geforce, turing) = ((1.3, 2.4), (1.5, 4.0));
    // We know of no published figures for these: their tensor cores are four times as fast as fp32, but their memory is
    // not.
    let workstation = (1.5, 4.0);
    let table = [
        ("h200", [(3.0, 7.0); 2]),
        ("h100-80g", [(2.5, 7.0); 2]),
        ("a100-80g", [(2.2, 8.0); 2]),
        ("a100-40g", [(2.0, 8.0); 2]),
        ("rtx-4090", [geforce; 2]),
        ("b200", [(2.5, 8.0); 2]),
        ("h100-94g", [(2.5, 8.0); 2]),
        ("rtx-pro-6000", [workstation; 2]),
        ("l40s", [workstation; 2]),
        ("l4", [workstation; 2]),
        ("a6000", [workstation; 2]),
        ("a10g", [(1.3, 3.0); 2]),
        ("rtx-5090", [geforce; 2]),
        ("rtx-5060ti-16g", [geforce; 2]),
        ("rtx-3090", [geforce; 2]),
        ("rtx-3060-12g", [geforce; 2]),
        // Nothing is published for it either. According to the data sheet its fp32 is so fast that small models wait
        // for the host in any type.
        ("mi300x", [(0.9, 8.0); 2]),
        ("t4", [turing, (0.3, 1.0)]),
    ];
    let mut wrong = Vec::new();
    for (card, bounds) in table {
        for (workload, batch) in [("gpt2", 2), ("gpt2", 4), ("vit-b16", 32), ("bert-large", 2), ("mlp", 2048)] {
            let time = |amp| {
                let card = CardCatalog::with_user_cards(None).card(card).unwrap();
                let (model, _) = crate::training::workload(workload);
                let config = Config { amp, optimizer: OptimizerKind::Momentum, ..Config::new(batch) };
                let device = Box::new(SimDevice::new(card.clone()));
                let libraries = Libraries {
                    compute_capability: card.compute_capability,
                    multiprocessors: card.multiprocessors,
                    workspaces: true,
                };
                let options = TrainerOptions { workspaces: libraries, ..TrainerOptions::default() };
                step_ms(&mut Trainer::new(device, model, config, options, Box::new(())).unwrap())
            };
            let off = time(Amp::Off);
            for (amp, (least, most)) in [Amp::Fp16, Amp::Bf16].into_iter().zip(bounds) {
                let faster = off / time(amp);
                println!("{card}: {workload} at {batch}, {amp:?}: {off:.1} ms / {faster:.2}");
                // Small steps wait for the host on a large card.
                let least: f64 = if off < 100.0 { f64::min(least, 1.1) } else { least };
                // Products only: 10 times at batch 8,192 on the H200.
                let most = if workload == "mlp" { 1.4 * most } else { most };
                if !(least..=most).contains(&faster) {
                    wrong.push(format!("{card}: {workload} at {batch} is {faster:.2} times as fast under {amp:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Measured with PyTorch 2.11 on an H200: 71.0, 72.6 and 78.9 ms.
#[test]
fn every_attention_kernel_has_a_time_of_its_own() {
    let time = |variant| {
        step_ms(
            &mut crate::training::simulated_plain(
                crate::training::workload("gpt2").0,
                crate::training::variant(variant, 16),
            )
            .0,
        )
    };
    for (variant, theirs) in [("cudnn", 70.995), ("flash", 72.643), ("efficient", 78.917)] {
        let ours: f64 = time(variant);
        println!("{variant}: {ours:.1} ms, PyTorch {theirs:.1} ms");
        assert!((ours / theirs - 1.0).abs() < 0.03, "{variant}: {ours:.1} ms, PyTorch {theirs:.1} ms");
    }
}

#[test]
fn two_runs_are_the_same_to_the_last_event() {
    let run = || {
        let (model, batch) = crate::training::workload("gpt-mini");
        let mut config = crate::training::variant("all", batch);
        config.data = DataPath::Streamed;
        config.pinned = true;
        let (mut trainer, events) = crate::training::simulated(model, config);
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
        let (model, _) = crate::training::workload("mlp");
        let config = Config { data: DataPath::Streamed, pinned, ..crate::training::variant("bf16", 8192) };
        let (mut trainer, events) = crate::training::simulated(model, config);
        let time = step_ms(&mut trainer);
        let copy = |event: &Event| matches!(event.kind, EventKind::Copy { pinned: p, .. } if p == pinned);
        assert!(events.borrow().iter().any(copy));
        time
    };
    let (resident, _) =
        crate::training::simulated(crate::training::workload("mlp").0, crate::training::variant("bf16", 8192));
    let resident = step_ms(&mut { resident });
    // 32 MiB: half a millisecond at the same time as the computation, three before it.
    assert!((step(true) / resident - 1.0).abs() < 0.05, "{} {resident}", step(true));
    assert!(step(false) > resident + 1.5, "{} {resident}", step(false));
}

#[test]
fn forms_of_an_optimizer_differ_in_time() {
    let optimizer = |form| {
        let mut config = crate::training::variant("bf16", 16);
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
    let (model, batch) = crate::training::workload("gpt2");
    let events = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let mut trainer = Trainer::new(
        Box::new(SimDevice::new(card)),
        model,
        crate::training::variant("base", batch),
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
    assert!(matches!(first.evidence, Evidence::OutOfMemory { .. }), "{first:?}");
    assert!(first.remedies.is_empty(), "nothing was tried yet: {first:?}");
    let autopsy = view.autopsy.unwrap();
    // The driver had too little left for the segment; nobody set a limit.
    assert!(autopsy.request.device_free < autopsy.request.segment && autopsy.limit.is_none());
    assert_eq!(autopsy.short, autopsy.request.segment - autopsy.request.device_free);
    assert!(!autopsy.request.attempts.is_empty() && !autopsy.owners.is_empty());
    let free: Bytes = autopsy.unusable.iter().filter(|part| part.why != Why::Pending).map(|part| part.bytes).sum();
    assert_eq!(free, autopsy.ledger.free());
    trainer.configure(crate::training::variant("ckpt", 2)).unwrap();
    let report = trainer.step().unwrap();
    assert_eq!(report.loss, None);
}
