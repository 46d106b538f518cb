//! Losses and bytes compared with PyTorch's: `tests/data/pytorch-rows.jsonl` has rows measured with PyTorch 2.11 on an
//! H200.

use serde_json::Value;
use vramlab::model::Lab;
use vramlab::train::{Config, DataPath, Libraries, OptimizerForm, Tensor, Trainer};
use vramlab::units::{Bytes, MIB};

struct Row {
    job: String,
    row: Value,
}

impl Row {
    fn bytes(&self, key: &str) -> i64 {
        self.row[key].as_i64().unwrap()
    }

    fn after(&self, phase: &str) -> i64 {
        self.row["allocated_after"][phase].as_i64().unwrap()
    }
}

fn rows(workload: &str) -> Vec<Row> {
    let path = format!("{}/tests/data/pytorch-rows.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Row> = rows
        .map(|row| Row { job: row["job"].as_str().unwrap().into(), row })
        .filter(|r| r.row["workload"] == workload)
        .collect();
    assert!(!rows.is_empty());
    rows
}

fn train(row: &Row, library: Libraries) -> (Trainer, Lab, Vec<f64>) {
    let (workload, variant) = row.job.split_once(' ').unwrap();
    let batch = usize::try_from(row.bytes("batch")).unwrap();
    let (model, _) = crate::training::workload(workload);
    let (mut trainer, events) = crate::training::trainer(model, crate::training::variant(variant, batch), library);
    let mut lab = Lab::new();
    let steps = row.row["losses"].as_array().unwrap().len();
    let losses = (0..steps)
        .map(|_| {
            let loss = trainer.step().unwrap().loss.unwrap();
            events.borrow_mut().drain(..).for_each(|event| lab.apply(&event));
            f64::from(loss)
        })
        .collect();
    (trainer, lab, losses)
}

/// The values of a row that differ from ours, in words.
fn differences(row: &Row, trainer: &Trainer, lab: &Lab, losses: &[f64], workspaces: i64) -> Vec<String> {
    let mut wrong = Vec::new();
    let half = !row.row["amp"].is_null();
    for (i, (ours, theirs)) in losses.iter().zip(row.row["losses"].as_array().unwrap()).enumerate() {
        let theirs = theirs.as_f64().unwrap();
        let tolerance = if row.row["workload"] == "resnet-mini" || row.row["workload"] == "dcgan-mini" {
            // Batch norm over few values makes much of rounding: after some steps programs part. Largest relative
            // differences of steps 0 to 11 and 12 to 23, measured (PyTorch on an H200, cuDNN on or off, and in f64):
            //
            //                     ours–PyTorch    without–with cuDNN   ours–f64        PyTorch–f64
            // resnet-mini adamw   4.4e-3  2.4e-2  1.6e-2  4.5e-2       1.5e-2  5.6e-2  1.2e-2  5.4e-2
            // resnet-mini sgd     1.0e-3  2.4e-1  2.0e-2  2.4e-1       2.1e-2  4.8e-1  2.0e-2  1.9e-1
            // dcgan-mini adamw    4.6e-7  3.1e-7  1.1e-4  6.8e-3       2.0e-5  7.6e-3  2.0e-5  7.6e-3
            // dcgan-mini sgd      4.7e-7  2.5e-1  1.5e-4  3.7e-1       7.9e-7  3.7e-2  7.7e-7  2.3e-1
            //
            // In fp16 the scaler skips steps 0 and 1 here and in PyTorch without cuDNN, 0 and 2 with it: a gradient of
            // the stem is that near to the largest f16.
            if i < 8 { 1e-3 } else { f64::INFINITY }
        } else if half {
            1e-2
        } else if i < 12 {
            1e-4
        } else {
            1e-3
        };
        if ((ours - theirs) / theirs).abs() > tolerance || !ours.is_finite() {
            wrong.push(format!("loss {i}: {ours} for {theirs}"));
        }
    }
    let statistics = trainer.statistics();
    let [before, forward, backward, optimizer, zero_grad] = crate::training::boundaries(lab).map(Bytes::get);
    let mut compare = |what: &str, ours: u64, theirs: i64| {
        let ours = i64::try_from(ours).unwrap();
        if ours != theirs {
            wrong.push(format!("{what}: {ours} for {theirs} ({:+})", ours - theirs));
        }
    };
    compare("before step", before, row.bytes("allocated_before_step"));
    compare("after forward", forward, row.after("forward") - workspaces);
    compare("after backward", backward, row.after("backward") - workspaces);
    compare("after optimizer", optimizer, row.after("optimizer") - workspaces);
    compare("after zero_grad", zero_grad, row.after("zero_grad") - workspaces);
    let unsigned = |n: i64| u64::try_from(n).unwrap();
    compare("peak allocated", unsigned(statistics.allocated_bytes.all.peak), row.bytes("peak_allocated") - workspaces);
    if workspaces == 0 {
        compare("peak reserved", unsigned(statistics.reserved_bytes.all.peak), row.bytes("peak_reserved"));
        compare("reserved", unsigned(statistics.reserved_bytes.all.current), row.bytes("reserved"));
        compare("inactive split", unsigned(statistics.inactive_split_bytes.all.current), row.bytes("inactive_split"));
        compare("segments", unsigned(statistics.segment.all.current), row.bytes("segments"));
        compare("allocations", unsigned(statistics.allocation.all.allocated), row.bytes("allocations"));
    }
    wrong
}

fn check(workload: &str, variants: Option<&[&str]>, library: Libraries) {
    let mut failures = Vec::new();
    for row in rows(workload) {
        let variant = row.job.split_once(' ').unwrap().1;
        if variants.is_some_and(|wanted| !wanted.contains(&variant)) {
            continue;
        }
        let (trainer, lab, losses) = train(&row, library);
        let lt_twice = row.row["ckpt"].as_bool().unwrap();
        let workspaces = if library == Libraries::HOPPER { 0 } else { MIB * if lt_twice { 66 } else { 65 } };
        for wrong in differences(&row, &trainer, &lab, &losses, i64::try_from(workspaces).unwrap()) {
            failures.push(format!("{}: {wrong}", row.job));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn mlp_mini_is_pytorchs() {
    check("mlp-mini", None, Libraries::HOPPER);
}

#[test]
fn gpt_mini_is_pytorchs() {
    check("gpt-mini", None, Libraries::HOPPER);
}

#[test]
fn bert_mini_is_pytorchs() {
    check("bert-mini", None, Libraries::HOPPER);
}

#[test]
fn vit_mini_is_pytorchs() {
    check("vit-mini", None, Libraries::HOPPER);
}

#[test]
fn resnet_mini_is_pytorchs() {
    check("resnet-mini", None, Libraries::HOPPER);
}

#[test]
fn dcgan_mini_is_pytorchs() {
    check("dcgan-mini", None, Libraries::HOPPER);
}

#[test]
fn without_workspaces_everything_else_stays() {
    check("mlp-mini", Some(&["base", "all"]), Libraries::PROCESSOR);
    check("gpt-mini", Some(&["base", "bf16", "all"]), Libraries::PROCESSOR);
}

#[test]
fn batches_from_host_memory_are_the_same() {
    let losses = |data, pinned| {
        let (model, batch) = crate::training::workload("vit-mini");
        let config = Config { data, pinned, ..crate::training::variant("accum4", batch) };
        let (mut trainer, _) = crate::training::trainer(model, config, Libraries::PROCESSOR);
        let before = trainer.memory().allocated();
        let losses: Vec<f32> = (0..6).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
        (losses, before)
    };
    let (resident, with_batches) = losses(DataPath::Resident, false);
    for pinned in [false, true] {
        let (host, without) = losses(DataPath::Host, pinned);
        assert_eq!(host, resident, "page-locked: {pinned}");
        // Four images of 3 × 32 × 32, and four labels.
        assert_eq!(with_batches - without, Bytes(4 * (3 * 32 * 32 * 4 + 512)));
    }
}

/// The fused kernel detects an overflow on the device, after its step has been counted.
#[test]
fn a_step_that_overflows_counts_in_no_form_of_the_optimizer() {
    let weights = |form| {
        let (model, batch) = crate::training::workload("resnet-mini");
        let config = Config { form, ..crate::training::variant("amp16", batch) };
        let (mut trainer, _events) = crate::training::trainer(model, config, Libraries::PROCESSOR);
        let ran = [(); 3].map(|()| trainer.step().map(|_| !trainer.outcome().skipped).unwrap());
        assert_eq!(ran, [false, false, true]);
        let values = |tensor: &Tensor| {
            let mut bytes = vec![0; usize::try_from(tensor.bytes().get()).unwrap()];
            trainer.memory().read(tensor, &mut bytes).unwrap();
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>()
        };
        trainer.parameters().flat_map(|(_, tensor)| values(tensor)).collect::<Vec<_>>()
    };
    let (foreach, fused) = (weights(OptimizerForm::Foreach), weights(OptimizerForm::Fused));
    // AdamW's first update moves a weight by the learning rate of 1e-3; if it were the third, by two thirds of it.
    let apart = foreach.iter().zip(&fused).filter(|(a, b)| (*a - *b).abs() > 1e-4).count();
    assert!(apart * 1000 < foreach.len(), "{apart} of {} weights", foreach.len());
}

#[test]
fn other_sizes_are_pytorchs() {
    check("mlp-odd", None, Libraries::HOPPER);
    check("gpt-odd", Some(&["base", "all"]), Libraries::HOPPER);
    check("gpt-hd4", Some(&["bf16", "all"]), Libraries::HOPPER);
    check("gpt-hd10", Some(&["base", "all"]), Libraries::HOPPER);
}

#[test]
#[ignore = "minutes: every measured row"]
fn every_row_is_pytorchs() {
    for workload in ["gpt-odd", "gpt-wide", "gpt-hd4", "gpt-hd10", "mlp-rows"] {
        check(workload, None, Libraries::HOPPER);
    }
}
