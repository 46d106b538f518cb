//! The model of Stanford's CS336: requests and figures compared with the course's own code on the stand-in GPU, losses
//! compared with it on the processor.

use std::collections::BTreeMap;

use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::train::{Checkpointing, Config, Libraries, LoopStyle, OptimizerForm, Workload};
use vramlab::units::Bytes;
use vramlab::workload::{Cs336, Cs336Sizes, Data, Extent, Inference, InferenceMode, InferencePlan, Models, Repeats};

use crate::alignment::rows_are_made;
use crate::llama::configured;

/// The sizes and the batch of a recorded model.
fn sizes(model: &str) -> (Cs336Sizes, usize) {
    let ([vocab, seq, width, layers, heads, hidden], batch) = match model {
        "cs336-mini" => ([512, 64, 64, 2, 4, 128], 4),
        "cs336-odd" => ([1000, 48, 48, 3, 6, 200], 5),
        "cs336-mid" => ([10_000, 512, 256, 3, 4, 1024], 4),
        // The sizes of the handout, with two blocks each.
        "cs336-small-two" => ([10_000, 512, 768, 2, 12, 3072], 4),
        "cs336-xl-two" => ([10_000, 2048, 2560, 2, 32, 10_240], 4),
        other => panic!("no model {other}"),
    };
    let [vocab, seq, width, heads, hidden] = [vocab, seq, width, heads, hidden].map(Extent::nearest);
    (Cs336Sizes { vocab, context: seq, seq, width, hidden, layers: Repeats::nearest(layers), heads }, batch)
}

fn workload(model: &str) -> Box<dyn Workload> {
    Box::new(Cs336::new(model, sizes(model).0, Data::Reference, 1).unwrap())
}

/// Every recorded row: requests one by one from the first parameter on, three steps or three forward passes, and the
/// allocator's statistics at the end.
#[test]
fn the_model_of_the_course_asks_as_its_code_does() {
    rows_are_made(include_str!("../data/cs336/rows.jsonl"), |name| {
        let (model, variant) = name.split_once('.').unwrap();
        let mut config: Config = configured(variant, sizes(model).1);
        let mut workload = workload(model);
        if variant.contains("nograd") {
            let plan = InferencePlan { mode: InferenceMode::NoGrad, half: false, models: Models::One };
            workload = Box::new(Inference::new(workload, plan));
        }
        if variant == "loop" {
            config.form = OptimizerForm::Loop;
        }
        (workload, config, 3)
    });
}

/// Six steps with the reference's weights, tokens and AdamW, in f32.
#[test]
fn the_model_of_the_course_learns_as_its_code_does() {
    let all: BTreeMap<String, [f64; 6]> = serde_json::from_str(include_str!("../data/cs336/losses.json")).unwrap();
    for (name, theirs) in all {
        let (model, variant) = name.split_once('.').unwrap();
        for checkpointing in [Checkpointing::Off, Checkpointing::ALL] {
            let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
            let mut config = configured(variant, sizes(model).1);
            config.checkpointing = checkpointing;
            let (mut trainer, _) = crate::training::on(
                Box::new(device),
                workload(model),
                config,
                Libraries::PROCESSOR,
                LoopStyle::Logging,
            );
            for theirs in theirs {
                let ours = f64::from(trainer.step().unwrap().loss.unwrap());
                assert!((ours - theirs).abs() < 1e-4, "{name}, checkpointing {checkpointing}: {ours} for {theirs}");
            }
        }
    }
}

/// Sizes that make no model, or leave nothing to learn, are reported.
#[test]
fn sizes_that_make_no_model_of_the_course_are_refused() {
    let (mini, _) = sizes("cs336-mini");
    let refused = |sizes: Cs336Sizes, data: Data| Cs336::new("mine", sizes, data, 1).err().unwrap().to_string();
    let size = Extent::nearest;
    for (error, words) in [
        (refused(Cs336Sizes { heads: size(5), ..mini }, Data::Reference), "5 heads do not divide a width of 64"),
        (refused(Cs336Sizes { heads: size(64), ..mini }, Data::Reference), "heads of 1 elements are no pairs"),
        (refused(Cs336Sizes { context: size(32), ..mini }, Data::Reference), "give --context 64"),
    ] {
        assert!(error.contains(words), "{error}");
    }
}
