//! `vramlab run`: trains without a screen and prints figures.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Report, Result, WrapErr};

use super::config;
use super::epoch;
use super::flags;
use super::followers::Followers;
use super::foresight;
use super::ghost::GhostArgs;
use super::output::{stdout, warn};
use super::ranks;
use super::record;
use super::row::{Peaks, PhaseMemory, Steps, bytes, milliseconds, object};
use super::spec::SpecArgs;
use super::{Status, Usage};
use crate::device::KernelTimes;
use crate::export;
use crate::model::{Finding, Level, ModuleOutput, Phase, StepReport, Study, View};
use crate::session::{DeviceChoice, Headless, LabSpec, NotMade};
use crate::source::Recorder;
use crate::train::{Parallelism, TrainError, Trainer};
use crate::tui;

/// Steps of a run by default.
const STEPS: u64 = 24;

/// Arguments of `vramlab run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// What to train: see `vramlab list`.
    #[arg(value_name = "WORKLOAD")]
    workload: String,
    #[command(flatten)]
    spec: SpecArgs,
    /// Number of steps to train [default: 24; with --lengths an epoch].
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Train on several GPUs (--device cuda:0,1 or sim:h200x2) or threads (cpux2), which share the work in this way: ddp,
    /// ddp-view (gradients are views of the buckets), zero1 (sharded optimizer state), zero2 (and gradients), fsdp (and
    /// parameters), tp (layers split), pp-gpipe or pp-1f1b (blocks in a pipeline), or ps (a parameter server: rank 0 has the
    /// optimizer). --batch is the batch of all ranks together. Under torchrun --no-python, mpirun or srun each process is a rank,
    /// on --device cuda or cpu.
    #[arg(long, value_name = "WAY", conflicts_with_all = ["kernels", "summary", "modules", "reset_peaks_after", "ghost"])]
    parallel: Option<Parallelism>,
    /// Call torch.cuda.reset_peak_memory_stats() after this many steps: max_memory_allocated and max_memory_reserved then cover
    /// the steps that follow. The peaks of the whole run are printed, too.
    #[arg(long, value_name = "N", conflicts_with = "kernels")]
    reset_peaks_after: Option<u64>,
    /// Print one JSON object instead of the table, with the keys of the PyTorch reference figures.
    #[arg(long)]
    json: bool,
    /// Print the time of every kernel in the later half of the steps. The run waits for each kernel, so steps are
    /// slower.
    #[arg(long, conflicts_with = "json")]
    kernels: bool,
    /// Record to this file, or to standard output (`-`) instead of the table; `vramlab open` plays it. If each rank is a process,
    /// each writes its own file: run.rank0.vram for run.vram.
    #[arg(long, value_name = "FILE|-", conflicts_with = "kernels")]
    record: Option<PathBuf>,
    /// Print torch.cuda.memory_summary() after the table.
    #[arg(long, conflicts_with_all = ["json", "kernels"])]
    summary: bool,
    #[command(flatten)]
    ghost: GhostArgs,
    /// Print how large the output of each module's forward is, as a forward hook sees it, and what the module keeps until
    /// backward; with --json, as the key "modules".
    #[arg(long, conflicts_with = "kernels")]
    modules: bool,
    /// Has no effect: `run` never opens a screen.
    #[arg(long)]
    headless: bool,
}

/// Trains and prints.
pub(super) fn run(args: &RunArgs) -> Result<Status> {
    let mut settings = config::settings();
    let device = args.spec.device.clone().or_else(|| settings.device());
    settings.told.iter().for_each(warn);
    let (device, ranks) = ranks::split_count(device);
    // A process that a launcher started is a rank by itself.
    let launched = match (args.parallel, ranks) {
        (Some(way), None) => ranks::launched()?.map(|launched| (way, launched)),
        _ => None,
    };
    let parallel = if launched.is_some() { None } else { ranks::parallel(args.parallel, ranks)? };
    let device_is_named = device.as_deref().is_some_and(|device| device != "cuda");
    let spec = SpecArgs { device, ..args.spec.clone() };
    let mut spec = spec.lab(Some(&args.workload), None)?;
    let sharing = match (&parallel, &launched) {
        (Some(parallel), _) if parallel.parallelism.splits_batch() => parallel.ranks,
        (_, Some((way, launched))) if way.splits_batch() => launched.rendezvous.world.size(),
        _ => 1,
    };
    let epoch = epoch::steps_of(&spec, sharing);
    let count = args.steps.or(epoch).unwrap_or(STEPS);
    spec.steps = Some(count);
    if args.parallel.is_some() && args.spec.data.is_none() {
        ranks::keep_batches(&mut spec);
    }
    if let Some((way, launched)) = launched {
        let record = args.record.as_deref();
        let told = ranks::RankOutput { steps: count, as_json: args.json, record, device_is_named };
        return ranks::run_launched(&mut stdout(), &spec, way, &launched, &told);
    }
    foresight::announce(&spec);
    if args.kernels {
        return kernels(&mut spec, count);
    }
    let piped = args.record.as_deref() == Some(Path::new("-"));
    if piped && args.json {
        return Err(Usage("the recording and the JSON can't both go to the standard output".to_owned()).into());
    }
    // If something follows the run's events, every step must be run.
    let followed = args.record.is_some() || args.summary || args.modules || args.reset_peaks_after.is_some();
    let simulated = matches!(spec.device, DeviceChoice::Sim(_));
    // Each rank has its own batches, so every step must be run.
    let alone = parallel.is_none();
    if epoch.is_some() && simulated && alone && !followed && !args.ghost.is_wanted() {
        if let Some(status) = epoch::run(&mut stdout(), &spec, count, args.json)? {
            return Ok(status);
        }
        warn("the steps of this run are not alike, so each is run, and no other batches or settings are compared");
    }
    let recorder = args.record.as_deref().map(record::create).transpose()?;
    if let Some(parallel) = parallel {
        let mut out: Box<dyn Write> = if piped { Box::new(std::io::stderr()) } else { Box::new(stdout()) };
        return ranks::run(&mut out, &spec, parallel, count, args.json, recorder);
    }
    if args.json {
        let mut followers = Followers::new(recorder, args.ghost.follower(&spec)?);
        if args.modules {
            followers = followers.keeping_a_step();
        }
        let steps = Steps::new(count, true).resetting_after(args.reset_peaks_after);
        let FinishedRun { run, steps, view, ended } = train(&spec, steps, &followers, |_| {});
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
    let extras = Extras { summary: args.summary, modules: args.modules, reset: args.reset_peaks_after };
    table_to(&mut out, &spec, count, recorder, (extras, &args.ghost))
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
        FinishedRun { run: Some(run), ended: None, .. } => run,
        FinishedRun { ended, .. } => return ended.map_or(Ok(Status::DONE), Err),
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

/// A run that has ended.
struct FinishedRun {
    /// `None` if the model could not be built.
    run: Option<Headless>,
    steps: Steps,
    /// The view at the end of the run.
    view: View,
    /// Why the run ended before its last step, if it did.
    ended: Option<Report>,
}

/// After this step, a recorded run evaluates flips: the optimizer has its state by then.
const WEIGHED: u64 = 1;

/// Trains as many steps as `steps` plans; calls `each` for every step.
fn train(spec: &LabSpec, mut steps: Steps, followers: &Followers, mut each: impl FnMut(&StepReport)) -> FinishedRun {
    let mut run = match Headless::make(spec.clone(), Some(followers.listener())) {
        Ok(run) => run,
        Err(not_made) => {
            let NotMade { error, view } = *not_made;
            return FinishedRun { run: None, steps, view, ended: Some(error.into()) };
        }
    };
    steps.reset_if_due(&mut run);
    let mut ended = None;
    let mut weighing = None;
    for number in 0..steps.wanted {
        match run.step() {
            Ok(report) => {
                // The recording shows what flips would do, as the lab does: they are tried beside the run.
                if number == WEIGHED && followers.record() {
                    let run = run.shortage();
                    weighing = std::thread::Builder::new().name("weighing".to_owned()).spawn(move || run.weigh()).ok();
                }
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
    let weighed = weighing.and_then(|weighing| weighing.join().ok().flatten());
    if let Some(weighed) = weighed.filter(|_| ended.is_none()) {
        run.weighed(weighed);
    }
    run.finish();
    FinishedRun { view: run.view(), run: Some(run), steps, ended }
}

/// Trains with progress on standard error, then prints a table.
pub(super) fn table(spec: &LabSpec, count: u64, ghost: &GhostArgs) -> Result<Status> {
    table_to(&mut stdout(), spec, count, None, (Extras::default(), ghost))
}

/// What is printed below the table, and when peaks are reset.
#[derive(Clone, Copy, Debug, Default)]
struct Extras {
    summary: bool,
    modules: bool,
    /// The number of steps after which peaks are reset.
    reset: Option<u64>,
}

fn table_to(
    out: &mut dyn Write,
    spec: &LabSpec,
    count: u64,
    recorder: Option<Recorder>,
    (extras, ghost): (Extras, &GhostArgs),
) -> Result<Status> {
    let mut followers = Followers::new(recorder, ghost.follower(spec)?);
    if extras.modules {
        followers = followers.keeping_a_step();
    }
    let progress = std::io::stderr().is_terminal();
    let trained = train(spec, Steps::new(count, false).resetting_after(extras.reset), &followers, |report| {
        if progress {
            let loss = report.loss.map_or_else(|| "no loss".to_owned(), |loss| format!("loss {loss:.4}"));
            let (mut stderr, time) = (std::io::stderr(), milliseconds(report.total));
            // A failure to print progress is ignored.
            let _ = write!(stderr, "\rstep {}/{count}  {loss}  {time:.1} ms\x1b[K", report.step + 1);
            let _ = stderr.flush();
        }
    });
    if progress {
        let _ = writeln!(std::io::stderr());
    }
    let FinishedRun { run, steps, view, ended } = trained;
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
    if extras.summary {
        write!(out, "\n{}", trainer.statistics().summary(0, false))?;
    }
    Ok(Status::DONE)
}

/// The outputs of all modules' forward passes, in the order in which they return.
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

fn write_table(
    out: &mut dyn Write,
    spec: &LabSpec,
    trainer: &Trainer,
    steps: &Steps,
    view: &View,
) -> std::io::Result<()> {
    let stats = trainer.statistics();
    let info = trainer.device_info();
    let between = PhaseMemory::of(trainer, view);
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
    writeln!(out, "    {:<22}{:>12}", "segments", stats.segment.all.current)?;
    let managed = trainer.memory().managed();
    if managed > crate::units::Bytes::ZERO {
        writeln!(out, "\n  unified memory, which the allocator does not count")?;
        writeln!(out, "    {:<22}{:>12}", "optimizer state", managed.to_string())?;
    }
    Ok(())
}
