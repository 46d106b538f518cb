//! Decoders whose linear layers multiply in 8 bits, as torchao converts them: requests and figures compared with
//! transformers and torchao on the stand-in GPU, losses compared with torchao on the processor.

use std::collections::BTreeMap;

use serde_json::Value;
use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::SimDevice;
use vramlab::train::{Amp, Checkpointing, Config, Float8Recipe, Libraries, LoopStyle, Workload};
use vramlab::units::Bytes;
use vramlab::workload::{Data, Extent, Sizes, WorkloadEntry};

use crate::alignment::{difference, made, recorded, requests_are_made_on_ada, rows_are_made};
use crate::llama::configured;

/// The `config.json` of each mini.
fn minis() -> BTreeMap<String, Value> {
    let mut all: BTreeMap<String, Value> = serde_json::from_str(include_str!("../data/families/minis.json")).unwrap();
    for more in [include_str!("../data/padding/minis.json"), include_str!("../data/float8/minis.json")] {
        all.extend(serde_json::from_str::<BTreeMap<String, Value>>(more).unwrap());
    }
    all
}

/// The number of samples of a batch, and their tokens.
fn batch(name: &str) -> (usize, usize) {
    match name {
        "four" => (4, 64),
        "two" => (2, 128),
        "rows" => (3, 16),
        "tiny" => (2, 8),
        "odd" => (3, 17),
        "big" => (2, 1024),
        _ => panic!("no batch {name}"),
    }
}

fn recipe(variant: &str) -> Float8Recipe {
    if variant.contains("rowwise") { Float8Recipe::Rowwise } else { Float8Recipe::Tensorwise }
}

/// A recorded program: its model, its batches, its switches, and the number of steps.
fn program(name: &str) -> (Box<dyn Workload>, Config, u64) {
    let [_, mini, size, variant] = name.splitn(4, '.').collect::<Vec<_>>()[..] else { panic!("no program {name}") };
    let has = |word: &str| variant.contains(word);
    let (samples, tokens) = batch(size);
    let mut entry = WorkloadEntry::of_config(mini, serde_json::from_value(minis()[mini].clone()).unwrap());
    let weights = if has("bf16w") { DType::Bf16 } else { DType::F32 };
    entry.config.as_mut().unwrap().dtype = Some(weights.label().to_owned());
    let sizes = Sizes { seq: Some(Extent::nearest(tokens)), ..Sizes::default() };

    let mut config = Config { float8: recipe(variant), ..configured(variant, samples) };
    if has("fp16") {
        config.amp = Amp::Fp16;
    }
    (entry.workload(sizes, Data::Reference, 1).unwrap(), config, 3)
}

/// Every recorded row: requests one by one from the first parameter on, three steps, and the allocator's statistics at
/// the end.
#[test]
fn converted_layers_ask_as_torchaos_do() {
    rows_are_made(include_str!("../data/float8/rows.jsonl"), program);
}

/// A card of the first generation that has such products: requests one by one.
#[test]
fn converted_layers_ask_an_ada_card_as_torchaos_do() {
    let names = ["fp8.llama-mini.four.bf16w", "fp8.llama-mini.four.bf16", "fp8.qwen3-mini.two.bf16wckpt"];
    requests_are_made_on_ada(&names, program);
}

/// The same requests on a device that computes: kernels access only live blocks.
#[test]
fn the_processor_asks_for_converted_layers_as_the_simulated_card_does() {
    for name in ["fp8.llama-mini.four.base", "fp8.llama-mini.four.bf16ckpt", "fp8.llama-odd.four.bf16w"] {
        let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(1) }).unwrap();
        let (workload, config, steps) = program(name);
        let (mut trainer, events) =
            crate::training::on(Box::new(device), workload, config, Libraries::HOPPER, LoopStyle::Logging);
        for _ in 0..steps {
            trainer.step().unwrap();
        }
        assert_eq!(difference(&made(&events.borrow()), &recorded(name)), None, "{name}");
    }
}

/// Losses of `steps` steps with the reference's weights, tokens and AdamW.
fn losses(name: &str, steps: usize, configure: impl Fn(&mut Config)) -> Vec<f64> {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
    let (workload, mut config, _) = program(name);
    configure(&mut config);
    let (mut trainer, _) =
        crate::training::on(Box::new(device), workload, config, Libraries::PROCESSOR, LoopStyle::Logging);
    (0..steps).map(|_| f64::from(trainer.step().unwrap().loss.unwrap())).collect()
}

/// Six steps, compared with torchao on the processor, whose products sum bytes and multiply by both inverse scales, as
/// a card does. The first two losses show that forward and every gradient are the same. From then on AdamW has divided
/// small gradients by themselves, and a value between two of the few 8-bit values can be rounded either way. So the
/// third loss differs, as it does between two ways of summing in PyTorch.
#[test]
fn converted_layers_learn_as_torchaos_do() {
    let all: BTreeMap<String, [f64; 6]> = serde_json::from_str(include_str!("../data/float8/losses.json")).unwrap();
    for (name, theirs) in all {
        let (mini, variant) = name.split_once('.').unwrap();
        let name = format!("fp8.{mini}.four.{variant}");
        let same = if variant.starts_with("base") { 2e-6 } else { 1e-3 };
        for checkpointing in [Checkpointing::Off, Checkpointing::ALL] {
            let ours = losses(&name, 6, |config| config.checkpointing = checkpointing);
            for (step, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                let allowed = if step < 2 { same } else { 2e-3 };
                let words = format!("{name}, checkpointing {checkpointing}, step {step}");
                assert!((ours - theirs).abs() < allowed, "{words}: {ours} for {theirs}");
            }
        }
        if variant.starts_with("base") {
            let plain = losses(&name, 2, |config| config.float8 = Float8Recipe::Off);
            let apart = plain.iter().zip(theirs).map(|(plain, theirs)| (plain - theirs).abs());
            assert!(apart.fold(0.0, f64::max) > 10.0 * same, "{name}: {plain:?} in f32 for {theirs:?} in 8 bits");
        }
    }
}

/// `torch._scaled_mm` refuses a number of tokens that is no multiple of 16, in backward, and cards before Ada, in
/// forward.
#[test]
fn what_has_no_such_product_is_a_sentence() {
    let fails = |name: &str, libraries: Libraries| {
        let device = Box::new(SimDevice::h200().unwrap());
        let (workload, config, _) = program(name);
        let (mut trainer, _) = crate::training::on(device, workload, config, libraries, LoopStyle::Logging);
        trainer.step().unwrap_err().to_string()
    };
    let odd = fails("fp8.llama-mini.odd.bf16w", Libraries::HOPPER);
    assert!(odd.contains("multiples of 16, and a batch has 51 tokens"), "{odd}");
    let ampere = Libraries { compute_capability: 80, ..Libraries::HOPPER };
    let old = fails("fp8.llama-mini.four.bf16w", ampere);
    assert!(old.contains("needs compute capability 8.9, this card has 8.0; leave --fp8 off"), "{old}");
    let ada = Libraries { compute_capability: 89, ..Libraries::HOPPER };
    let by_rows = fails("fp8.llama-mini.four.bf16wrowwise", ada);
    assert!(by_rows.contains("known here of compute capability 9.0, this card has 8.9; use --fp8 tens"), "{by_rows}");
}

/// The switch applies to every step: once it is off, the next step makes the same requests as if it had never been on,
/// except for the workspaces, which stay.
#[test]
fn it_can_be_turned_off_between_two_steps() {
    let (workload, config, _) = program("fp8.llama-mini.four.bf16w");
    let device = Box::new(SimDevice::h200().unwrap());
    let (mut trainer, events) = crate::training::on(device, workload, config, Libraries::HOPPER, LoopStyle::Logging);
    let mut steps = Vec::new();
    for float8 in [Float8Recipe::Tensorwise, Float8Recipe::Off, Float8Recipe::Tensorwise, Float8Recipe::Off] {
        trainer.configure(Config { float8, ..config }).unwrap();
        let before = made(&events.borrow()).len();
        trainer.step().unwrap();
        steps.push(made(&events.borrow()).len() - before);
    }
    assert_eq!(steps[1], steps[3]);
    assert!(steps[2] > 3 * steps[3], "{steps:?}");
}
