//! `vramlab run`: trains without a screen and prints figures.

use std::io::{IsTerminal, Write};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use serde_json::{Map, Value, json};

use super::Status;
use super::output::stdout;
use super::spec::SpecArgs;
use super::times::Times;
use crate::device::KernelTimes;
use crate::model::{Micros, Phase, StepReport};
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
pub(super) fn run(args: &RunArgs) -> Result<Status> {
    let mut spec = args.spec.lab(Some(&args.workload), Some(args.steps))?;
    if args.kernels {
        return kernels(&mut spec, args.steps);
    }
    if args.json {
        let (trainer, steps) = train(&spec, Steps::new(args.steps, true), |_| {})?;
        writeln!(stdout(), "{}", object(&spec, &trainer, &steps))?;
        return Ok(Status::DONE);
    }
    table(&spec, args.steps)
}

/// Trains and prints where the device's time went, and which kernels it chose.
fn kernels(spec: &mut LabSpec, count: u64) -> Result<Status> {
    let times = spec.kernels.insert(KernelTimes::default()).clone();
    let (mut finished, warm) = (0, count / 2);
    let (trainer, _) = train(spec, Steps::new(count, false), |_| {
        finished += 1;
        if finished == warm {
            times.clear();
        }
    })?;
    let steps = (count - warm).max(1) as f64;
    let mut out = stdout();
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
    Ok(Status::DONE)
}

/// What is known of the steps of a run.
struct Steps {
    /// How many there will be.
    wanted: u64,
    finished: u64,
    /// Of the later half.
    times: Times,
    shortest: Option<Micros>,
    first_loss: Option<f32>,
    last_loss: Option<f32>,
    /// Every one, where they are to be listed.
    losses: Option<Vec<f32>>,
}

impl Steps {
    fn new(wanted: u64, list_losses: bool) -> Self {
        Self {
            wanted,
            finished: 0,
            times: Times::default(),
            shortest: None,
            first_loss: None,
            last_loss: None,
            losses: list_losses.then(Vec::new),
        }
    }

    fn push(&mut self, report: &StepReport) {
        if self.finished >= self.wanted / 2 {
            self.times.add(report.total);
        }
        self.finished += 1;
        self.shortest = Some(self.shortest.map_or(report.total, |shortest| shortest.min(report.total)));
        self.first_loss = self.first_loss.or(report.loss);
        self.last_loss = report.loss;
        if let (Some(losses), Some(loss)) = (&mut self.losses, report.loss) {
            losses.push(loss);
        }
    }
}

/// Trains as many steps as `steps` wants; `each` sees every one.
fn train(spec: &LabSpec, mut steps: Steps, mut each: impl FnMut(&StepReport)) -> Result<(Trainer, Steps)> {
    let mut trainer = spec.build(Box::new(spec.pace()))?;
    for number in 0..steps.wanted {
        let report = trainer.step().wrap_err_with(|| format!("training ended in step {number}"))?;
        each(&report);
        steps.push(&report);
    }
    Ok((trainer, steps))
}

fn milliseconds(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}

/// One object with the reference's keys; sizes in bytes, times in milliseconds.
fn object(spec: &LabSpec, trainer: &Trainer, steps: &Steps) -> Value {
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
        "steps": steps.finished,
        "step_ms": steps.times.median(),
        "min_ms": steps.shortest.map(milliseconds),
        "losses": steps.losses,
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
pub(super) fn table(spec: &LabSpec, count: u64) -> Result<Status> {
    let progress = std::io::stderr().is_terminal();
    let (trainer, steps) = train(spec, Steps::new(count, false), |report| {
        if progress {
            let loss = report.loss.map_or_else(|| "no loss".to_owned(), |loss| format!("loss {loss:.4}"));
            let (mut stderr, time) = (std::io::stderr(), milliseconds(report.total));
            // Progress that can't be shown is no reason to stop.
            let _ = write!(stderr, "\rstep {}/{count}  {loss}  {time:.1} ms\x1b[K", report.step + 1);
            let _ = stderr.flush();
        }
    })?;
    if progress {
        let _ = writeln!(std::io::stderr());
    }
    let mut out = stdout();
    write_table(&mut out, spec, &trainer, &steps).wrap_err("the table can't be written")?;
    Ok(Status::DONE)
}

fn write_table(out: &mut impl Write, spec: &LabSpec, trainer: &Trainer, steps: &Steps) -> std::io::Result<()> {
    let stats = trainer.statistics();
    let info = trainer.device_info();
    let Marks { before_step, forward, backward, optimizer, zero_grad } = trainer.marks();
    writeln!(out, "{} on {} ({}), {} steps", spec.workload.name, info.id, info.name, steps.finished)?;
    if steps.finished > 0 {
        match (spec.inference, steps.first_loss, steps.last_loss) {
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
        writeln!(out, "  step, median          {:.2} ms{simulated}", steps.times.median())?;
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
