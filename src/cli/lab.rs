//! `vramlab`: the lab on the terminal, or tables if there is no terminal.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr, eyre};
use tokio::sync::watch;

use super::config;
use super::ghost::GhostArgs;
use super::output::{complain, stdout, warn};
use super::ranks;
use super::record;
use super::screen::ScreenArgs;
use super::spec::{SpecArgs, themes};
use super::{Status, farewell, reproduce, run};
use crate::model::RunState;
use crate::session::{self, Engine};
use crate::source::{self, Picture, Request, Source};
use crate::train::Parallelism;
use crate::tui::{self, TuiOptions};

/// Steps of the tables that replace the lab if there is no terminal.
const STEPS_WITHOUT_TERMINAL: u64 = 50;

/// How long the first frame may wait to see whether the model can be built.
const MODEL_PATIENCE: Duration = Duration::from_millis(60);

/// Arguments of `vramlab` without a command.
#[derive(Debug, Args)]
pub(super) struct LabArgs {
    /// What to train: see `vramlab list` [default: gpt-char].
    #[arg(value_name = "WORKLOAD")]
    workload: Option<String>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Train on several GPUs (--device cuda:0,1 or sim:h200x2) or threads (cpux2), which share the work in this way: ddp,
    /// ddp-view (gradients are views of the buckets), zero1, zero2, fsdp, tp, pp-gpipe, pp-1f1b or ps (a parameter server).
    /// --batch is the batch of all ranks together.
    #[arg(long, value_name = "WAY")]
    parallel: Option<Parallelism>,
    /// Stop training after this many steps; the lab stays open [default: train on].
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Record to this file: `vramlab open FILE` plays it.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Compare with this recording, or with the output of `vramlab run --json`; may be repeated.
    #[arg(long, value_name = "FILE")]
    compare: Vec<PathBuf>,
    #[command(flatten)]
    ghost: GhostArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// Opens the lab and stays until the user leaves it.
pub(super) fn run(args: LabArgs) -> Result<Status> {
    let mut settings = config::settings();
    let device = args.spec.device.clone().or_else(|| settings.device());
    let (device, ranks) = ranks::split_count(device);
    // A process that a launcher started is a rank by itself.
    let launched = match (args.parallel, ranks) {
        (Some(way), None) => ranks::launched()?.map(|launched| (way, launched)),
        _ => None,
    };
    let mut parallel = if launched.is_some() { None } else { ranks::parallel(args.parallel, ranks)? };
    let device_is_named = device.as_deref().is_some_and(|device| device != "cuda");
    let spec = SpecArgs { device, ..args.spec.clone() };
    let workload = args.workload.clone().or_else(|| settings.workload());
    let mut options = args.screen.options(&settings, tui::OpeningCommand::Run(reproduce::flags(&args.spec)))?;
    options.compare.clone_from(&args.compare);
    let mut spec = spec.lab(workload.as_deref(), args.steps)?;
    if args.parallel.is_some() && args.spec.data.is_none() {
        ranks::keep_batches(&mut spec);
    }
    args.ghost.check(&spec)?;
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb;
    let mut processes = None;
    if let Some((way, launched)) = &launched {
        match ranks::gather(&spec, *way, launched, terminal, device_is_named)? {
            ranks::ProcessDuty::Lab(own, others) => (parallel, spec, processes) = (own.parallel, *own, Some(others)),
            ranks::ProcessDuty::Run => {
                let steps = args.steps.unwrap_or(STEPS_WITHOUT_TERMINAL);
                let told = ranks::RankOutput { steps, as_json: false, record: args.record.as_deref(), device_is_named };
                return ranks::run_launched(&mut stdout(), &spec, *way, launched, &told);
            }
            ranks::ProcessDuty::Ended => return Ok(Status::DONE),
        }
    }
    if !terminal {
        complain(format_args!(
            "no terminal to draw the lab on: training {STEPS_WITHOUT_TERMINAL} steps with tables instead"
        ));
        settings.told.iter().for_each(warn);
        let steps = args.steps.unwrap_or(STEPS_WITHOUT_TERMINAL);
        if let Some(parallel) = parallel {
            return ranks::run(&mut stdout(), &spec, parallel, steps, false, None);
        }
        return run::table(&session::LabSpec { steps: Some(steps), ..spec }, steps, &args.ghost);
    }
    if let Some(parallel) = parallel {
        ranks::check_live(&spec, parallel)?;
    }
    let spec = session::LabSpec { parallel, ..spec };
    let torch = spec.settings.torch();
    let speed = args.spec.speed.unwrap_or(session::Speed::Watchable);
    let silent = processes.as_ref().map(session::RankProcesses::silent);
    let source = source::live_among(session::LabSpec { speed, ..spec }, processes).wrap_err("can't start a thread")?;
    args.ghost.haunt(&source, torch)?;
    if let Some(path) = args.record {
        record::refuse_existing(&path)?;
        source.request(Request::Record(path));
    }
    if let Some(folder) = settings.recordings() {
        source.request(Request::RecordTo(folder));
    }
    let status = stay(source, options)?;
    let silent = silent.map_or_else(Vec::new, |silent| silent());
    // A launcher ends the other ranks if one ends with an error.
    Ok(if ranks::left_behind(&silent) && status == Status::DONE { Status::FAILED } else { status })
}

/// Shows a lab until the user leaves it.
pub(super) fn stay(source: Source, options: TuiOptions) -> Result<Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pictures = source.pictures.clone();
    let _ending = EngineGuard(source.engine());
    // A model that can't be built is reported at once: no screen opens for one sentence. For a large model, the wait is on screen.
    runtime.block_on(settled(pictures.clone()));
    failure(&pictures)?;
    let origin = options.origin.clone();
    let left = runtime.block_on(tui::run(source, options, themes()))?;
    failure(&pictures)?;
    farewell::print(&left, &origin)?;
    Ok(left.exit.into())
}

/// Ends the engine on drop, however the screen was left: a device is closed before the process ends.
struct EngineGuard(Option<Engine>);

impl Drop for EngineGuard {
    fn drop(&mut self) {
        // An engine that takes longer is in a library call that does not return: the process ends without it.
        if let Some(engine) = &self.0 {
            let _ = engine.end(tui::ENGINE_PATIENCE);
        }
    }
}

/// Waits until the lab has its model, but not for long.
async fn settled(mut pictures: watch::Receiver<Arc<Picture>>) {
    let made = pictures.wait_for(|picture| picture.run != RunState::Starting);
    // The caller looks at the picture in either case.
    let _ = tokio::time::timeout(MODEL_PATIENCE, made).await;
}

/// The error that stops the lab, if there is one.
fn failure(pictures: &watch::Receiver<Arc<Picture>>) -> Result<()> {
    match &pictures.borrow().run {
        RunState::Failed(reason) | RunState::Lost(reason) => Err(eyre!("{reason}")),
        _ => Ok(()),
    }
}
