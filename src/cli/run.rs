//! `vramlab run`: trains without a screen and prints figures.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use serde_json::{Map, Value, json};

use super::spec::SpecArgs;
use crate::device::KernelTimes;
use crate::model::Phase;
use crate::session::LabSpec;
use crate::train::{Amp, Marks, OptimizerKind, Tf32, Trainer};
use crate::units::Bytes;

/// Arguments of `vramlab run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// What to train: see `vramlab list`.
    #[arg(value_name = "WORKLOAD")]
    workload: String,
    #[command(flatten)]
    spec: SpecArgs,
    /// Steps to train.
    #[arg(long, value_name = "N", default_value_t = 24)]
    steps: u64,
    /// Print one JSON object, with the keys of the PyTorch figures that vramlab is compared with.
    #[arg(long)]
    json: bool,
    /// Print the time of every kernel in the later half of the steps. Each is waited for: steps take longer.
    #[arg(long, conflicts_with = "json")]
    kernels: bool,
    /// Accepted for clarity: `run` never opens a screen.
    #[arg(long)]
    headless: bool,
}

/// Trains and prints.
pub(super) fn run(args: &RunArgs) -> Result<ExitCode> {
    let mut spec = args.spec.lab(Some(&args.workload), Some(args.steps))?;
    if args.kernels {
        return kernels(&mut spec, args.steps);
    }
    if args.json {
        let (trainer, steps) = train(&spec, args.steps, |_, _| {})?;
        writeln!(std::io::stdout(), "{}", object(&spec, &trainer, &steps))?;
        return Ok(ExitCode::SUCCESS);
    }
    table(&spec, args.steps)
}

/// Trains and prints where the device's time went, and which kernels it chose.
fn kernels(spec: &mut LabSpec, count: u64) -> Result<ExitCode> {
    let times = spec.kernels.insert(KernelTimes::default()).clone();
    let (mut finished, warm) = (0, count / 2);
    let (trainer, _) = train(spec, count, |_, _| {
        finished += 1;
        if finished == warm {
            times.clear();
        }
    })?;
    let steps = (count - warm).max(1) as f64;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:>9} {:>9} {:>12}  kernel", "ms a step", "launches", "rate")?;
    let mut total = 0.0;
    for kernel in times.sorted() {
        let seconds = kernel.time.as_secs_f64();
        let rate = if kernel.flops > 0.0 {
            format!("{:.1} TFLOP/s", kernel.flops / seconds / 1e12)
        } else {
            format!("{:.0} GB/s", kernel.bytes / seconds / 1e9)
        };
        total += seconds;
        let launches = kernel.launches as f64 / steps;
        writeln!(out, "{:9.3} {launches:9.1} {rate:>12}  {}", seconds * 1e3 / steps, kernel.label)?;
    }
    writeln!(
        out,
        "{:9.3} in all; a rate in GB/s counts the bytes that PyTorch's eager kernels would move",
        total * 1e3 / steps
    )?;
    for note in trainer.memory().with_device(|device| device.notes()) {
        writeln!(out, "{note}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is kept of each step.
struct Step {
    loss: Option<f32>,
    milliseconds: f64,
}

/// Trains `count` steps; `each` sees every one.
fn train(spec: &LabSpec, count: u64, mut each: impl FnMut(&Trainer, &Step)) -> Result<(Trainer, Vec<Step>)> {
    let mut trainer = spec.build(Box::new(spec.pace()))?;
    let mut steps = Vec::new();
    for number in 0..count {
        let report = trainer.step().wrap_err_with(|| format!("training ended in step {number}"))?;
        let step = Step { loss: report.loss, milliseconds: report.total.0 as f64 / 1e3 };
        each(&trainer, &step);
        steps.push(step);
    }
    Ok((trainer, steps))
}

/// The median time of the later half of the steps, as the reference measures it, in milliseconds.
fn median_of_later_half(steps: &[Step]) -> f64 {
    let mut times: Vec<f64> = steps[steps.len() / 2..].iter().map(|step| step.milliseconds).collect();
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => 0.0,
        n if n % 2 == 1 => times[n / 2],
        n => (times[n / 2 - 1] + times[n / 2]) / 2.0,
    }
}

/// One object with the reference's keys; sizes in bytes, times in milliseconds.
fn object(spec: &LabSpec, trainer: &Trainer, steps: &[Step]) -> Value {
    let marks = trainer.marks();
    let stats: Map<String, Value> =
        trainer.statistics().entries().into_iter().map(|(key, value)| (key, json!(value))).collect();
    let stat = |key: &str| stats.get(key).cloned().unwrap_or(Value::Null);
    let amp = match spec.config.amp {
        Amp::Off => Value::Null,
        Amp::Fp16 => json!("fp16"),
        Amp::Bf16 => json!("bf16"),
    };
    let opt = match spec.config.optimizer {
        OptimizerKind::Sgd => "sgd",
        OptimizerKind::Momentum => "momentum",
        OptimizerKind::Adam => "adam",
        OptimizerKind::AdamW => "adamw",
    };
    let config = &spec.config;
    let mut row = json!({
        "workload": spec.workload.name,
        "amp": amp,
        "ckpt": spec.config.checkpointing,
        "accum": spec.config.accumulation,
        "opt": opt,
        "tf32": config.tf32 == Tf32::On,
        "tf32_mode": config.tf32,
        "opt_form": config.form,
        "weight_decay": config.hyper.decay(config.optimizer),
        "schedule": config.schedule,
        "zero_grad": config.zero_grad,
        "offload": config.offload,
        "attention": config.attention,
        "fuse": config.fuse,
        "retain": config.retain,
        "pinned": config.pinned,
        "limit": spec.limit.map(|limit| limit.of(trainer.device_info().memory)),
        "alloc_conf": spec.alloc_conf,
        "batch": spec.config.batch,
        "steps": steps.len(),
        "step_ms": median_of_later_half(steps),
        "min_ms": steps.iter().map(|step| step.milliseconds).fold(f64::INFINITY, f64::min),
        "losses": steps.iter().filter_map(|step| step.loss).collect::<Vec<_>>(),
        "allocated_before_step": marks.before_step,
        "allocated_after": {
            "forward": marks.forward,
            "backward": marks.backward,
            "optimizer": marks.optimizer,
            "zero_grad": marks.zero_grad,
        },
        "peak_allocated": stat("allocated_bytes.all.peak"),
        "peak_reserved": stat("reserved_bytes.all.peak"),
        "reserved": stat("reserved_bytes.all.current"),
        "inactive_split": stat("inactive_split_bytes.all.current"),
        "segments": stat("segment.all.current"),
        "allocations": stat("allocation.all.allocated"),
        "device": trainer.device_info().name,
        "simulated": trainer.device_info().simulated,
        "stats": stats,
    });
    if let (Some(plan), Some(row)) = (spec.inference, row.as_object_mut()) {
        // A forward pass has one boundary and no loss.
        row.insert("mode".into(), json!(plan.mode.label()));
        row.insert("half".into(), json!(plan.half));
        row.insert("losses".into(), json!([]));
        row.insert("allocated_before".into(), json!(marks.before_step));
        row.insert("allocated_after".into(), json!(marks.forward));
        row.insert("output".into(), json!(trainer.outcome().output));
    }
    row
}

/// Trains with progress on standard error, then prints a table.
pub(super) fn table(spec: &LabSpec, count: u64) -> Result<ExitCode> {
    let progress = std::io::stderr().is_terminal();
    let (trainer, steps) = train(spec, count, |trainer, step| {
        if progress {
            let loss = step.loss.map_or_else(|| "no loss".to_owned(), |loss| format!("loss {loss:.4}"));
            eprint!("\rstep {}/{count}  {loss}  {:.1} ms\x1b[K", trainer.steps(), step.milliseconds);
            // Progress that can't be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    })?;
    if progress {
        eprintln!();
    }
    let mut out = std::io::stdout().lock();
    write_table(&mut out, spec, &trainer, &steps).wrap_err("the table can't be written")?;
    Ok(ExitCode::SUCCESS)
}

fn write_table(out: &mut impl Write, spec: &LabSpec, trainer: &Trainer, steps: &[Step]) -> std::io::Result<()> {
    let stats = trainer.statistics();
    let info = trainer.device_info();
    let Marks { before_step, forward, backward, optimizer, zero_grad } = trainer.marks();
    writeln!(out, "{} on {} ({}), {} steps", spec.workload.name, info.id, info.name, steps.len())?;
    if let (Some(first), Some(last)) = (steps.first(), steps.last()) {
        match (spec.inference, first.loss, last.loss) {
            (Some(plan), ..) => writeln!(
                out,
                "
  inference             {}",
                plan.mode.label()
            )?,
            (None, Some(first), Some(last)) => writeln!(
                out,
                "
  loss, first → last    {first:.4} → {last:.4}"
            )?,
            _ => writeln!(
                out,
                "
  loss                  none: nothing is computed on a simulated device"
            )?,
        }
        let simulated = if info.simulated { ", simulated" } else { "" };
        writeln!(out, "  step, median          {:.2} ms{simulated}", median_of_later_half(steps))?;
    }
    writeln!(out, "\n  allocated")?;
    let rows = [
        ("before the first step", before_step),
        (Phase::Forward.label(), forward),
        (Phase::Backward.label(), backward),
        (Phase::Optimizer.label(), optimizer),
        (Phase::ZeroGrad.label(), zero_grad),
    ];
    let boundaries = if spec.inference.is_some() { 2 } else { rows.len() };
    for (i, (label, bytes)) in rows.into_iter().take(boundaries).enumerate() {
        let label = if i == 0 { label.to_owned() } else { format!("after {label}") };
        writeln!(out, "    {label:<22}{bytes:>12}")?;
    }
    let bytes = |n: i64| Bytes(u64::try_from(n).unwrap_or(0));
    writeln!(out, "    {:<22}{:>12}", "peak", bytes(stats.allocated_bytes.all.peak))?;
    writeln!(out, "\n  reserved")?;
    writeln!(out, "    {:<22}{:>12}", "peak", bytes(stats.reserved_bytes.all.peak))?;
    writeln!(out, "    {:<22}{:>12}", "now", bytes(stats.reserved_bytes.all.current))?;
    writeln!(out, "    {:<22}{:>12}", "of it, inactive split", bytes(stats.inactive_split_bytes.all.current))?;
    writeln!(out, "    {:<22}{:>12}", "segments", stats.segment.all.current)
}
