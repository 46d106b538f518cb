//! Compares rows that PyTorch 2.11 measured on an H200 with the same runs on the simulated one.
//!
//! Bytes are exact, unless a list below names the figure; then they are within the tolerance of its kind. A figure that
//! is no longer exact, or leaves its tolerance, is a regression. Step times of full-size rows are within 25 %.

use std::cell::RefCell;
use std::rc::Rc;

use crate::training::Model;
use serde_json::Value;
use vramlab::device::sim::SimDevice;
use vramlab::model::{Event, EventKind, Lab, Phase};
use vramlab::train::{
    Config, DataPath, Libraries, LoopStyle, OptimizerForm, OptimizerKind, Skips, Tf32, Trainer, TrainerOptions,
};
use vramlab::workload::{Inference, InferenceMode, InferencePlan, Models};

/// Figures that are not exact, by run: some blocks keep a remainder that is too small to split off, and these are not
/// the same blocks as PyTorch's. All other figures are exact.
const INEXACT: &[(&str, &[&str])] = &[
    ("bert-large.ckpt", &["backward", "optimizer"]),
    ("gpt2.all", &["forward", "backward", "optimizer", "zero_grad", "peak_allocated"]),
    ("vit-b16.ckpt", &["peak_reserved"]),
    ("vit-b16.all", &["forward", "backward", "optimizer", "zero_grad", "peak_allocated"]),
];

/// Steps that PyTorch's gradient scaler skipped because of overflows. Nobody can know them without the arithmetic, but
/// the run can be told. Then all figures are PyTorch's, also the number of allocations and the bytes of split blocks.
const SKIPPED: &[(&str, Skips)] = &[
    ("resnet50.amp16", Skips::new(0, 2)),
    ("resnet50.all", Skips::new(0, 1)),
    ("resnet-mini.amp16", Skips::new(0, 2)),
    ("resnet-mini.all", Skips::new(0, 2)),
    ("mlp.amp16", Skips::new(1, 4)),
    ("dcgan.amp16", Skips::new(1, 3)),
];

/// The tolerance of a figure that is not exact, in per cent.
fn tolerance(run: &str, figure: &str) -> f64 {
    let convolutional = run.starts_with("resnet") || run.starts_with("dcgan");
    match (figure, convolutional) {
        ("peak_reserved", false) => 3.0,
        ("peak_reserved", true) => 8.0,
        ("peak_allocated", false) => 1.0,
        ("peak_allocated", true) => 5.0,
        _ => 0.5,
    }
}

/// The tolerance of a time, in per cent.
const TIME_TOLERANCE: f64 = 25.0;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap()
}

/// Every figure of ours with PyTorch's, in bytes.
fn figures(row: &Value, lab: &Lab, trainer: &Trainer) -> Vec<(&'static str, i64, i64)> {
    let statistics = trainer.statistics();
    let bytes = |bytes: vramlab::units::Bytes| i64::try_from(bytes.get()).unwrap();
    let [before, forward, backward, optimizer, zero_grad] = crate::training::boundaries(lab).map(bytes);
    let after = &row["allocated_after"];
    let theirs = |value: &Value| value.as_i64().unwrap();
    vec![
        ("before_step", before, theirs(&row["allocated_before_step"])),
        ("forward", forward, theirs(&after["forward"])),
        ("backward", backward, theirs(&after["backward"])),
        ("optimizer", optimizer, theirs(&after["optimizer"])),
        ("zero_grad", zero_grad, theirs(&after["zero_grad"])),
        ("peak_allocated", statistics.allocated_bytes.all.peak, theirs(&row["peak_allocated"])),
        ("peak_reserved", statistics.reserved_bytes.all.peak, theirs(&row["peak_reserved"])),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
fn percent(ours: i64, theirs: i64) -> f64 {
    (ours as f64 / theirs as f64 - 1.0) * 100.0
}

/// The figures of a row that differ from ours.
fn wrong_bytes(run: &str, row: &Value, lab: &Lab, trainer: &Trainer) -> Vec<String> {
    let inexact = INEXACT.iter().find(|(name, _)| *name == run).map_or(&[][..], |(_, figures)| *figures);
    let mut wrong = Vec::new();
    for (figure, ours, theirs) in figures(row, lab, trainer) {
        if ours == theirs {
            continue;
        }
        let off = percent(ours, theirs);
        println!("{run}: {figure} {ours} for {theirs} ({:+} B, {off:+.3} %)", ours - theirs);
        if !inexact.contains(&figure) || off.abs() > tolerance(run, figure) {
            wrong.push(format!("{run}: {figure} is {ours}, PyTorch's {theirs} ({off:+.3} %)"));
        }
    }
    wrong
}

fn wrong_time(run: &str, what: &str, ours: f64, theirs: f64) -> Option<String> {
    let off = (ours / theirs - 1.0) * 100.0;
    println!("{run}: {what} {ours:.2} ms, PyTorch {theirs:.2} ms, {off:+.1} %");
    (off.abs() > TIME_TOLERANCE).then(|| format!("{run}: {what} is {ours:.2} ms, PyTorch's {theirs:.2} ms"))
}

/// Trains `steps` steps; returns the milliseconds of each.
fn train(trainer: &mut Trainer, steps: u64) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    (0..steps).map(|_| trainer.step().unwrap().total.0 as f64 / 1e3).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A trainer on a simulated H200, and the model that follows it.
fn on_h200(name: &str, config: Config, style: LoopStyle) -> (Trainer, Rc<RefCell<Model>>) {
    let options = TrainerOptions { style, workspaces: Libraries::HOPPER, ..TrainerOptions::default() };
    let (model, _) = crate::training::workload(name);
    let device = Box::new(SimDevice::h200().unwrap());
    let seen = Rc::new(RefCell::new(Model::default()));
    (Trainer::new(device, model, config, options, Box::new(Rc::clone(&seen))).unwrap(), seen)
}

fn check(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The rows of a workload with the loop that can accumulate.
fn accumulating(workload: &str, rows: &[Value], timed: bool) -> String {
    let (mut wrong, mut table) = (Vec::new(), String::new());
    let rows: Vec<&Value> = rows.iter().filter(|row| text(row, "workload") == workload).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let (_, batch) = crate::training::workload(workload);
        let variant = text(row, "variant");
        let run = format!("{workload}.{variant}");
        let mut config = crate::training::variant(variant, batch);
        let skipped = SKIPPED.iter().find(|(name, _)| *name == run);
        config.hyper.scaler_skips = skipped.map_or_else(Skips::default, |(_, skips)| *skips);
        let (mut trainer, seen) = on_h200(workload, config, LoopStyle::Accumulating);
        let mut times = train(&mut trainer, row["steps"].as_u64().unwrap());
        wrong.extend(wrong_bytes(&run, row, &seen.borrow().0, &trainer));
        if skipped.is_some() {
            let statistics = trainer.statistics();
            let counted = [
                ("allocations", statistics.allocation.all.allocated, &row["allocations"]),
                ("inactive_split", statistics.inactive_split_bytes.all.current, &row["inactive_split"]),
            ];
            let off = counted.into_iter().filter(|(_, ours, theirs)| Some(*ours) != theirs.as_i64());
            wrong.extend(off.map(|(what, ours, theirs)| format!("{run}: {what} is {ours}, PyTorch's {theirs}")));
        }
        if timed {
            let later = times.split_off(times.len() / 2);
            let (ours, theirs) = (median(later), row["step_ms"].as_f64().unwrap());
            wrong.extend(wrong_time(&run, "step", ours, theirs));
            let compared = figures(row, &seen.borrow().0, &trainer);
            table.push_str(&line(variant, &compared, ours, theirs));
        }
    }
    check(&wrong);
    table
}

/// A row of the guide's table: PyTorch's figure, and how far ours is off.
fn line(variant: &str, figures: &[(&str, i64, i64)], ours: f64, theirs: f64) -> String {
    let cells = |figure: &str| {
        let (_, ours, theirs) = figures.iter().find(|(name, ..)| *name == figure).unwrap();
        let off = if ours == theirs { "=".to_owned() } else { format!("{:+.3} %", percent(*ours, *theirs)) };
        #[expect(clippy::cast_precision_loss, reason = "bytes of one card")]
        let gib = *theirs as f64 / f64::from(1 << 30);
        format!("{gib:.3} | {off}")
    };
    let time = format!("{theirs:.1} | {ours:.1} | {:+.1} %", (ours / theirs - 1.0) * 100.0);
    format!("| {variant} | {} | {} | {time} |\n", cells("peak_allocated"), cells("peak_reserved"))
}

fn full_size(workload: &str) {
    let rows = accumulating(workload, &rows(include_str!("../data/pytorch-full-rows.jsonl")), true);
    let head = "| variant | peak allocated, GiB | sim | peak reserved, GiB | sim | ms a step | simulated | off |\n\
                |---|--:|--:|--:|--:|--:|--:|--:|\n";
    let command = "VRAMLAB_UPDATE=1 cargo test --test engine parity writes it";
    crate::made::assert_part(
        "lab/guide/compared.md",
        &format!("parity of {workload}"),
        &format!("{head}{rows}"),
        command,
    );
}

#[test]
fn gpt2_is_pytorchs() {
    full_size("gpt2");
}

#[test]
fn bert_large_is_pytorchs() {
    full_size("bert-large");
}

#[test]
fn vit_is_pytorchs() {
    full_size("vit-b16");
}

#[test]
fn resnet50_is_pytorchs() {
    full_size("resnet50");
}

#[test]
fn mlp_is_pytorchs() {
    full_size("mlp");
}

#[test]
fn dcgan_is_pytorchs() {
    full_size("dcgan");
}

#[test]
fn minis_are_pytorchs() {
    let rows = rows(include_str!("../data/pytorch-mini-rows.jsonl"));
    for workload in ["gpt-mini", "bert-mini", "vit-mini", "resnet-mini", "mlp-mini", "dcgan-mini"] {
        accumulating(workload, &rows, false);
    }
}

/// Offload, optimizers, attention kernels, batches from the host: the shortest loop, with convolutions in TF32.
#[test]
fn every_switch_is_pytorchs() {
    let mut wrong = Vec::new();
    let rows = rows(include_str!("../data/pytorch-more-rows.jsonl"));
    for row in rows.iter().filter(|row| row["step_ms"].is_f64()) {
        let (run, _) = crate::training::plain_recording(&text(row, "case").replace(' ', "_"));
        let (workload, variant) = run.split_once('.').unwrap();
        let (_, batch) = crate::training::workload(workload);
        let config = Config { tf32: Tf32::Convolutions, ..crate::training::variant(variant, batch) };
        let (mut trainer, seen) = on_h200(workload, config, LoopStyle::Plain);
        let times = train(&mut trainer, row["steps"].as_u64().unwrap());
        wrong.extend(wrong_bytes(&run, row, &seen.borrow().0, &trainer));
        wrong.extend(wrong_time(&run, "step", median(times), row["step_ms"].as_f64().unwrap()));
        if let Some(theirs) = row["copy_ms"].as_f64() {
            // In a report, a copy between kernels of the same stream has no time of its own; a copy on another stream
            // has.
            let (mut streamed, _) = on_h200(workload, Config { data: DataPath::Streamed, ..config }, LoopStyle::Plain);
            #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
            let copies = (0..4).map(|_| streamed.step().unwrap().copy.0 as f64 / 1e3).collect();
            wrong.extend(wrong_time(&run, "copy", median(copies), theirs));
        }
    }
    check(&wrong);
}

/// Peaks of a forward pass of bert-large above what was allocated before it; cuBLAS already had its workspace.
#[test]
fn a_forward_pass_peaks_as_high_as_pytorchs() {
    let facts: Value = serde_json::from_str(include_str!("../data/pytorch-folklore.json")).unwrap();
    let peaks = |mode| {
        let (model, batch) = crate::training::workload("bert-large");
        let plan = InferencePlan { mode, half: false, models: Models::One };
        let (mut trainer, _) = crate::training::simulated(Box::new(Inference::new(model, plan)), Config::new(batch));
        [(); 2].map(|()| {
            trainer.memory().reset_peaks();
            let before = i64::try_from(trainer.memory().allocated().get()).unwrap();
            trainer.step().unwrap();
            trainer.statistics().allocated_bytes.all.peak - before
        })
    };
    let [_, second] = peaks(InferenceMode::Train);
    assert_eq!(peaks(InferenceMode::Eval)[1], facts["bert_eval_without_no_grad_peak"].as_i64().unwrap());
    assert_eq!(peaks(InferenceMode::NoGrad)[1], facts["bert_forward_no_grad_peak"].as_i64().unwrap());
    assert_eq!(peaks(InferenceMode::InferenceMode)[1], facts["bert_forward_inference_mode_peak"].as_i64().unwrap());
    // The first pass that kept a graph was also the first to fuse a product with its bias: another mebibyte stays.
    assert_eq!(second + (1 << 20), facts["bert_forward_grad_peak"].as_i64().unwrap());
}

/// Allocated bytes above those at the beginning of each optimizer phase: at its end, and at its peak.
fn optimizer_phases(events: &[Event]) -> Vec<[u64; 2]> {
    let (mut live, mut sizes, mut phases, mut open) = (0_u64, std::collections::HashMap::new(), Vec::new(), None);
    for event in events {
        match &event.kind {
            EventKind::Alloc { address, size, .. } => {
                sizes.insert(*address, size.get());
                live += size.get();
            }
            EventKind::FreeRequested { address } => live -= sizes.remove(address).unwrap(),
            EventKind::PhaseBegin { phase: Phase::Optimizer } => open = Some((live, live)),
            EventKind::PhaseEnd { phase: Phase::Optimizer } => {
                let (before, peak) = open.take().unwrap();
                phases.push([live - before, peak - before]);
            }
            _ => {}
        }
        if let Some((_, peak)) = &mut open {
            *peak = live.max(*peak);
        }
    }
    phases
}

/// State, the first step's peak and what later steps need temporarily, for the parameters of bert-large.
#[test]
fn optimizers_hold_and_borrow_as_much_as_pytorchs() {
    let facts: Value = serde_json::from_str(include_str!("../data/pytorch-folklore.json")).unwrap();
    let mut wrong = Vec::new();
    for (name, optimizer, form) in [
        ("sgd", OptimizerKind::Sgd, OptimizerForm::Foreach),
        ("momentum", OptimizerKind::Momentum, OptimizerForm::Foreach),
        ("adam", OptimizerKind::Adam, OptimizerForm::Foreach),
        ("adamw_foreach", OptimizerKind::AdamW, OptimizerForm::Foreach),
        ("adamw_fused", OptimizerKind::AdamW, OptimizerForm::Fused),
        ("adamw_loop", OptimizerKind::AdamW, OptimizerForm::Loop),
    ] {
        let (model, _) = crate::training::workload("bert-large");
        let config = Config { optimizer, form, ..Config::new(1) };
        let (mut trainer, events) = crate::training::simulated_plain(model, config);
        trainer.step().unwrap();
        trainer.step().unwrap();
        let phases = optimizer_phases(&events.borrow());
        let theirs = &facts[format!("optimizer_{name}")];
        for (what, ours) in
            [("state", phases[0][0]), ("first_step_peak", phases[0][1]), ("later_step_temp", phases[1][1])]
        {
            if Some(ours) != theirs[what].as_u64() {
                wrong.push(format!("{name}: {what} is {ours}, PyTorch's {}", theirs[what]));
            }
        }
    }
    check(&wrong);
}

/// The deep net: its peaks, and its step time.
#[test]
fn resnet152_is_pytorchs() {
    let facts: Value = serde_json::from_str(include_str!("../data/pytorch-folklore.json")).unwrap();
    let mut wrong = Vec::new();
    for variant in ["base", "ckpt", "amp16"] {
        let row = &facts[format!("resnet152_{variant}")];
        let run = format!("resnet152.{variant}");
        let (mut trainer, _) = on_h200("resnet152", crate::training::variant(variant, 64), LoopStyle::Accumulating);
        let times = train(&mut trainer, 4);
        let statistics = trainer.statistics();
        for (figure, ours) in [
            ("peak_allocated", statistics.allocated_bytes.all.peak),
            ("peak_reserved", statistics.reserved_bytes.all.peak),
        ] {
            let off = percent(ours, row[figure].as_i64().unwrap());
            println!("{run}: {figure} {off:+.3} %");
            if off.abs() > tolerance(&run, figure) {
                wrong.push(format!("{run}: {figure} is {ours}, PyTorch's {} ({off:+.3} %)", row[figure]));
            }
        }
        wrong.extend(wrong_time(&run, "step", times[3], row["step_ms"].as_f64().unwrap()));
    }
    check(&wrong);
}
