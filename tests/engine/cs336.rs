//! The model of Stanford's CS336: requests and figures beside the course's own code on a card that is not there.

use serde_json::Value;
use vramlab::device::sim::SimDevice;
use vramlab::train::{Config, Libraries, LoopStyle, Workload};
use vramlab::workload::{
    Cs336, Cs336Sizes, Data, Extent, Inference, InferenceMode, InferencePlan, Models, Repeats,
};

use crate::alignment::{difference, made, recorded};
use crate::llama::configured;

/// The sizes and the batch of a recorded model.
fn sizes(model: &str) -> (Cs336Sizes, usize) {
    let ([vocab, seq, width, layers, heads, hidden], batch) = match model {
        "cs336-mini" => ([512, 64, 64, 2, 4, 128], 4),
        "cs336-odd" => ([1000, 48, 48, 3, 6, 200], 5),
        "cs336-mid" => ([10_000, 512, 256, 3, 4, 1024], 4),
        // Those of the handout with two blocks each.
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

/// Every recorded row: requests one by one from the first parameter on, three steps or three forward passes, and what the
/// allocator says in the end.
#[test]
fn the_model_of_the_course_asks_as_its_code_does() {
    let mut differences = Vec::new();
    for line in include_str!("../data/cs336/rows.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["name"].as_str().unwrap();
        let (model, variant) = name.split_once('.').unwrap();
        let mut config: Config = configured(variant, sizes(model).1);
        let mut workload = workload(model);
        if variant.contains("nograd") {
            let plan = InferencePlan { mode: InferenceMode::NoGrad, half: false, models: Models::One };
            workload = Box::new(Inference::new(workload, plan));
        }
        if variant == "loop" {
            config.form = vramlab::train::OptimizerForm::Loop;
        }
        let device = Box::new(SimDevice::h200().unwrap());
        let (mut trainer, events) =
            crate::training::on(device, workload, config, Libraries::HOPPER, LoopStyle::Logging);
        for _ in 0..3 {
            trainer.step().unwrap();
        }
        if let Some(difference) = difference(&made(&events.borrow()), &recorded(name)) {
            differences.push(format!("{name}: {difference}"));
            continue;
        }
        let statistics = trainer.statistics();
        let (allocated, reserved) = (statistics.allocated_bytes.all, statistics.reserved_bytes.all);
        let ours = [allocated.current, allocated.peak, reserved.peak];
        let theirs = ["allocated", "peak", "reserved"].map(|key| row[key].as_i64().unwrap());
        if ours != theirs {
            differences.push(format!("{name}: allocated, peak and reserved are {ours:?} for {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}
