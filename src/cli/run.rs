//! `vramlab run`: trains without a screen and prints figures.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Report, Result, WrapErr};
use serde_json::{Map, Value, json};

use super::config;
use super::flags;
use super::followers::Followers;
use super::foresight;
use super::ghost::GhostArgs;
use super::output::{stdout, warn};
use super::record;
use super::spec::SpecArgs;
use super::times::Times;
use super::{Status, Usage};
use crate::allocator::Statistics;
use crate::device::KernelTimes;
use crate::export;
use crate::model::{Boundaries, Finding, Level, Micros, ModuleOutput, Phase, StepReport, Study, View};
use crate::session::{Headless, LabSpec, NotMade};
use crate::source::Recorder;
use crate::train::{Amp, OptimizerKind, Tf32, TrainError, Trainer};
use crate::tui;
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
    /// Call torch.cuda.reset_peak_memory_stats() after this many steps: max_memory_allocated and max_memory_reserved then cover the
    /// steps that follow, beside the peaks of the whole run.
    #[arg(long, value_name = "N", conflicts_with = "kernels")]
    reset_peaks_after: Option<u64>,
    /// Print one JSON object, with the keys of the PyTorch reference figures.
    #[arg(long)]
    json: bool,
    /// Print the time of every kernel in the later half of the steps. Waits for each kernel, so steps are slower.
    #[arg(long, conflicts_with = "json")]
    kernels: bool,
    /// Record to this file, or to standard output (`-`) instead of the table: `vramlab open` plays it.
    #[arg(long, value_name = "FILE|-", conflicts_with = "kernels")]
    record: Option<PathBuf>,
    /// Print torch.cuda.memory_summary() after the table.
    #[arg(long, conflicts_with_all = ["json", "kernels"])]
    summary: bool,
    #[command(flatten)]
    ghost: GhostArgs,
    /// Print the output of each module's forward, as a forward hook sees it, and what it keeps until backward; with --json, as
    /// the key "modules".
    #[arg(long, conflicts_with = "kernels")]
    modules: bool,
    /// Accepted for clarity: `run` never opens a screen.
    #[arg(long)]
    headless: bool,
}

/// Trains and prints.
pub(super) fn run(args: &RunArgs) -> Result<Status> {
    let mut settings = config::settings();
    let device = args.spec.device.clone().or_else(|| settings.device());
    settings.told.iter().for_each(warn);
    let spec = SpecArgs { device, ..args.spec.clone() };
    let mut spec = spec.lab(Some(&args.workload), Some(args.steps))?;
    foresight::announce(&spec);
    if args.kernels {
        return kernels(&mut spec, args.steps);
    }
    let piped = args.record.as_deref() == Some(Path::new("-"));
    if piped && args.json {
        return Err(Usage("the recording and the JSON can't both go to the standard output".to_owned()).into());
    }
    let recorder = args.record.as_deref().map(record::create).transpose()?;
    if args.json {
        let mut followers = Followers::new(recorder, args.ghost.follower(&spec)?);
        if args.modules {
            followers = followers.keeping_a_step();
        }
        let steps = Steps::new(args.steps, true).resetting_after(args.reset_peaks_after);
        let Trained { run, steps, view, ended } = train(&spec, steps, &followers, |_| {});
        let (ghost, study) = (followers.ghost(), followers.study(&view));
        followers.finish()?;
        let Some(run) = run else { return ended.map_or(Ok(Status::DONE), Err) };
        let mut row = object(&spec, run.trainer(), &steps, &view);
        if let Some(row) = row.as_object_mut() {
            if let Some(ghost) = ghost {
                row.insert("ghost".into(), ghost.json());
            }
            if let Some(study) = study {
                row.insert("modules".into(), export::modules(&view, Some(&study)));
            }
        }
        writeln!(stdout(), "{row}")?;
        return ended.map_or(Ok(Status::DONE), Err);
    }
    let mut out: Box<dyn Write> = if piped { Box::new(std::io::stderr()) } else { Box::new(stdout()) };
    let behind = Behind { summary: args.summary, modules: args.modules, reset: args.reset_peaks_after };
    table_to(&mut out, &spec, args.steps, recorder, (behind, &args.ghost))
}

/// Trains and prints where the device's time went, and which kernels it chose.
fn kernels(spec: &mut LabSpec, count: u64) -> Result<Status> {
    let times = spec.kernels.insert(KernelTimes::default()).clone();
    let (mut finished, warm) = (0, count / 2);
    let trained = train(spec, Steps::new(count, false), &Followers::new(None, None), |_| {
        finished += 1;
        if finished == warm {
            times.clear();
        }
    });
    let run = match trained {
        Trained { run: Some(run), ended: None, .. } => run,
        Trained { ended, .. } => return ended.map_or(Ok(Status::DONE), Err),
    };
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
    for note in run.trainer().memory().with_device(|device| device.notes()) {
        writeln!(out, "{note}")?;
    }
    Ok(Status::DONE)
}

/// What is known of the steps of a run.
struct Steps {
    /// How many there will be.
    wanted: u64,
    finished: u64,
    /// Of them, those that the gradient scaler kept from the parameters.
    skipped: u64,
    /// Of the later half.
    times: Times,
    shortest: Option<Micros>,
    first_loss: Option<f32>,
    last_loss: Option<f32>,
    /// Every one, where they are to be listed.
    losses: Option<Vec<f32>>,
    /// After how many steps peaks are to be reset.
    reset_after: Option<u64>,
    /// Peaks before they were reset.
    before_reset: Option<Peaks>,
}

/// Highest allocated and reserved, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    allocated: i64,
    reserved: i64,
}

impl Peaks {
    fn of(statistics: &Statistics) -> Self {
        Self { allocated: statistics.allocated_bytes.all.peak, reserved: statistics.reserved_bytes.all.peak }
    }
}

impl Steps {
    fn new(wanted: u64, list_losses: bool) -> Self {
        Self {
            wanted,
            finished: 0,
            skipped: 0,
            times: Times::default(),
            shortest: None,
            first_loss: None,
            last_loss: None,
            losses: list_losses.then(Vec::new),
            reset_after: None,
            before_reset: None,
        }
    }

    fn resetting_after(self, reset_after: Option<u64>) -> Self {
        Self { reset_after, ..self }
    }

    /// Peaks of the whole run, whatever was reset.
    fn peaks(&self, statistics: &Statistics) -> Peaks {
        let (before, now) = (self.before_reset.unwrap_or_default(), Peaks::of(statistics));
        Peaks { allocated: before.allocated.max(now.allocated), reserved: before.reserved.max(now.reserved) }
    }

    fn reset_if_due(&mut self, run: &mut Headless) {
        if self.reset_after == Some(self.finished) {
            self.before_reset = Some(Peaks::of(&run.statistics()));
            run.reset_peaks();
        }
    }

    fn push(&mut self, report: &StepReport) {
        if self.finished >= self.wanted / 2 {
            self.times.add(report.total);
        }
        self.finished += 1;
        self.skipped += u64::from(!report.optimizer_ran);
        self.shortest = Some(self.shortest.map_or(report.total, |shortest| shortest.min(report.total)));
        self.first_loss = self.first_loss.or(report.loss);
        self.last_loss = report.loss;
        if let (Some(losses), Some(loss)) = (&mut self.losses, report.loss) {
            losses.push(loss);
        }
    }
}

/// A run that is over.
struct Trained {
    /// `None` where the model could not be made.
    run: Option<Headless>,
    steps: Steps,
    /// What is known at its end.
    view: View,
    /// Why it ended before its last step, where it did.
    ended: Option<Report>,
}

/// Trains as many steps as `steps` wants; `each` sees every one.
fn train(spec: &LabSpec, mut steps: Steps, followers: &Followers, mut each: impl FnMut(&StepReport)) -> Trained {
    let mut run = match Headless::make(spec.clone(), Some(followers.listener())) {
        Ok(run) => run,
        Err(not_made) => {
            let NotMade { error, view } = *not_made;
            return Trained { run: None, steps, view, ended: Some(error.into()) };
        }
    };
    steps.reset_if_due(&mut run);
    let mut ended = None;
    for number in 0..steps.wanted {
        match run.step() {
            Ok(report) => {
                each(&report);
                steps.push(&report);
                steps.reset_if_due(&mut run);
            }
            Err(error) => {
                if matches!(error, TrainError::OutOfMemory { .. }) {
                    run.try_remedies();
                }
                ended = Some(Report::new(error).wrap_err(format!("training ended in step {number}")));
                break;
            }
        }
    }
    run.finish();
    Trained { view: run.view(), run: Some(run), steps, ended }
}

fn milliseconds(time: Micros) -> f64 {
    time.0 as f64 / 1e3
}

/// What was allocated between the phases of the last step.
struct Between {
    before: Bytes,
    /// Of what is no training, while its result was alive.
    forward: Bytes,
    boundaries: Boundaries,
}

impl Between {
    fn of(trainer: &Trainer, view: &View) -> Self {
        let boundaries = view.boundaries;
        let after_forward = boundaries.after(Phase::Forward).unwrap_or_default();
        Self {
            before: boundaries.before_first_step().unwrap_or_else(|| view.ledger.allocated()),
            forward: trainer.outcome().allocated.unwrap_or(after_forward),
            boundaries,
        }
    }

    /// Nothing where no step got that far.
    fn after(&self, phase: Phase) -> Bytes {
        self.boundaries.after(phase).unwrap_or_default()
    }
}

/// One object with the reference's keys; sizes in bytes, times in milliseconds.
fn object(spec: &LabSpec, trainer: &Trainer, steps: &Steps, view: &View) -> Value {
    let between = Between::of(trainer, view);
    let stats: Map<String, Value> =
        trainer.statistics().entries().into_iter().map(|(key, value)| (key, json!(value))).collect();
    let peaks = steps.peaks(&trainer.statistics());
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
        "torch": spec.settings.torch(),
        "batch": trainer.config().batch,
        "steps": steps.finished,
        "step_ms": steps.times.median(),
        "min_ms": steps.shortest.map(milliseconds),
        "losses": steps.losses,
        "allocated_before_step": between.before,
        "allocated_after": {
            "forward": between.forward,
            "backward": between.after(Phase::Backward),
            "optimizer": between.after(Phase::Optimizer),
            "zero_grad": between.after(Phase::ZeroGrad),
        },
        "peak_allocated": peaks.allocated,
        "peak_reserved": peaks.reserved,
        "reserved": stat("reserved_bytes.all.current"),
        "inactive_split": stat("inactive_split_bytes.all.current"),
        "segments": stat("segment.all.current"),
        "allocations": stat("allocation.all.allocated"),
        "device": trainer.device_info().name,
        "simulated": trainer.device_info().simulated,
        "stats": stats,
        "findings": view.findings.iter().map(|finding| export::finding(finding, &flags::WORDS)).collect::<Vec<_>>(),
        "effects": view.effects.iter().map(|effect| json!(**effect)).collect::<Vec<_>>(),
        "readings": view.gpu.as_deref(),
        "oom": view.autopsy.as_deref().map(|autopsy| export::out_of_memory(autopsy, view, &flags::WORDS)),
    });
    if let Some(row) = row.as_object_mut() {
        row.insert("attention_ran".into(), json!(trainer.attention_ran()));
        row.insert("on_oom".into(), json!(config.on_oom));
        row.insert("max_memory_allocated".into(), stat("allocated_bytes.all.peak"));
        row.insert("max_memory_reserved".into(), stat("reserved_bytes.all.peak"));
        row.insert("skipped".into(), json!(steps.skipped));
        row.insert("scale".into(), json!(trainer.loss_scale()));
    }
    if let (Some(plan), Some(row)) = (spec.inference, row.as_object_mut()) {
        // A forward pass has one boundary and no loss.
        row.insert("mode".into(), json!(plan.mode.label()));
        row.insert("half".into(), json!(plan.half));
        row.insert("losses".into(), json!([]));
        row.insert("allocated_before".into(), json!(between.before));
        row.insert("allocated_after".into(), json!(between.forward));
        row.insert("output".into(), json!(trainer.outcome().output));
    }
    row
}

/// Trains with progress on standard error, then prints a table.
pub(super) fn table(spec: &LabSpec, count: u64, ghost: &GhostArgs) -> Result<Status> {
    table_to(&mut stdout(), spec, count, None, (Behind::default(), ghost))
}

/// What is printed behind the table, and what of it is reset before.
#[derive(Clone, Copy, Debug, Default)]
struct Behind {
    summary: bool,
    modules: bool,
    /// After how many steps peaks are reset.
    reset: Option<u64>,
}

fn table_to(
    out: &mut dyn Write,
    spec: &LabSpec,
    count: u64,
    recorder: Option<Recorder>,
    (behind, ghost): (Behind, &GhostArgs),
) -> Result<Status> {
    let mut followers = Followers::new(recorder, ghost.follower(spec)?);
    if behind.modules {
        followers = followers.keeping_a_step();
    }
    let progress = std::io::stderr().is_terminal();
    let trained = train(spec, Steps::new(count, false).resetting_after(behind.reset), &followers, |report| {
        if progress {
            let loss = report.loss.map_or_else(|| "no loss".to_owned(), |loss| format!("loss {loss:.4}"));
            let (mut stderr, time) = (std::io::stderr(), milliseconds(report.total));
            // Progress that can't be shown is no reason to stop.
            let _ = write!(stderr, "\rstep {}/{count}  {loss}  {time:.1} ms\x1b[K", report.step + 1);
            let _ = stderr.flush();
        }
    });
    if progress {
        let _ = writeln!(std::io::stderr());
    }
    let Trained { run, steps, view, ended } = trained;
    let (ghost, study) = (followers.ghost(), followers.study(&view));
    followers.finish()?;
    if let Some(ended) = ended {
        for line in tui::autopsy_lines(&view, 100, flags::flag) {
            writeln!(out, "{line}")?;
        }
        return Err(ended);
    }
    let Some(run) = run else { return Ok(Status::DONE) };
    let trainer = run.trainer();
    write_table(out, spec, trainer, &steps, &view).wrap_err("the table can't be written")?;
    if let Some(ghost) = ghost {
        let statistics = trainer.statistics();
        ghost.write(out, &statistics, bytes(steps.peaks(&statistics).reserved))?;
    }
    let findings: Vec<&Finding> = view.findings.iter().filter(|finding| finding.level >= Level::Warning).collect();
    if !findings.is_empty() {
        writeln!(out)?;
    }
    for finding in findings {
        let flags: Vec<String> = finding.remedies.iter().map(flags::flag).collect();
        let remedy = if flags.is_empty() { String::new() } else { format!(" Try {}.", flags.join(" or ")) };
        writeln!(out, "  {finding}.{remedy}")?;
    }
    if let Some(study) = study {
        modules(out, &view, &study)?;
    }
    if behind.summary {
        write!(out, "\n{}", trainer.statistics().summary(0, false))?;
    }
    Ok(Status::DONE)
}

/// What the forward of each module puts out, in the order in which they return.
fn modules(out: &mut dyn Write, view: &View, study: &Study) -> std::io::Result<()> {
    let name = |row: &ModuleOutput| match view.names.get(row.module) {
        "" => "(the model)".to_owned(),
        name => name.to_owned(),
    };
    let names = view.modules.iter().map(|row| name(row).chars().count()).max().unwrap_or_default().max(6);
    writeln!(out, "\n  {:<names$}  {:<20} {:<9}{:>12}{:>12}  calls", "module", "shape", "dtype", "output", "kept")?;
    for row in &*view.modules {
        let shape = format!("{:?}", row.shape);
        let kept = study.kept_by(view.names.get(row.module)).map_or_else(|| "?".to_owned(), |kept| kept.to_string());
        let (name, dtype, bytes) = (name(row), view.names.get(row.dtype), row.bytes.to_string());
        writeln!(out, "  {name:<names$}  {shape:<20} {dtype:<9}{bytes:>12}{kept:>12}{:>7}", row.calls)?;
    }
    writeln!(
        out,
        "  kept: bytes that a module, or one inside it, allocated in forward and that are alive when backward begins"
    )
}

fn bytes(count: i64) -> Bytes {
    Bytes(u64::try_from(count).unwrap_or(0))
}

fn write_table(
    out: &mut dyn Write,
    spec: &LabSpec,
    trainer: &Trainer,
    steps: &Steps,
    view: &View,
) -> std::io::Result<()> {
    let stats = trainer.statistics();
    let info = trainer.device_info();
    let between = Between::of(trainer, view);
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
        if let Some(scale) = trainer.loss_scale() {
            let (skipped, finished) = (steps.skipped, steps.finished);
            writeln!(out, "  gradient scaler       {skipped} of {finished} steps skipped; scale {scale}")?;
        }
    }
    writeln!(out, "\n  allocated")?;
    let rows = [
        ("before the first step", between.before),
        (Phase::Forward.label(), between.forward),
        (Phase::Backward.label(), between.after(Phase::Backward)),
        (Phase::Optimizer.label(), between.after(Phase::Optimizer)),
        (Phase::ZeroGrad.label(), between.after(Phase::ZeroGrad)),
    ];
    let boundaries = if spec.inference.is_some() { 2 } else { rows.len() };
    for (i, (label, bytes)) in rows.into_iter().take(boundaries).enumerate() {
        let label = if i == 0 { label.to_owned() } else { format!("after {label}") };
        writeln!(out, "    {label:<22}{bytes:>12}")?;
    }
    let peaks = steps.peaks(&stats);
    let since = Peaks::of(&stats);
    let reset = steps.before_reset.is_some();
    writeln!(out, "    {:<22}{:>12}", "peak", bytes(peaks.allocated))?;
    if reset {
        writeln!(out, "    {:<22}{:>12}", "peak since the reset", bytes(since.allocated))?;
    }
    writeln!(out, "\n  reserved")?;
    writeln!(out, "    {:<22}{:>12}", "peak", bytes(peaks.reserved))?;
    if reset {
        writeln!(out, "    {:<22}{:>12}", "peak since the reset", bytes(since.reserved))?;
    }
    writeln!(out, "    {:<22}{:>12}", "now", bytes(stats.reserved_bytes.all.current))?;
    writeln!(out, "    {:<22}{:>12}", "of it, inactive split", bytes(stats.inactive_split_bytes.all.current))?;
    writeln!(out, "    {:<22}{:>12}", "segments", stats.segment.all.current)
}
