//! `vramlab demo`: the lab plays a story by itself.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use color_eyre::eyre::{Report, Result, WrapErr, eyre};

use super::ranks::{check_live, keep_batches};
use super::screen::ScreenArgs;
use super::spec::{device, workloads};
use super::{Status, Usage, config, lab};
use crate::session::{LabSpec, Parallel, Speed};
use crate::source;
use crate::tui::{self, Ranks, ReadingPace, Story};
use crate::user_input::TomlText;
use crate::workload::WorkloadEntry;

/// How long captions stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PaceArg {
    /// Slow: for a talk.
    Slow,
    /// For reading by yourself.
    #[default]
    Normal,
    /// As fast as the lab goes.
    Fast,
}

/// Arguments of `vramlab demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// How long captions stay.
    #[arg(long, value_enum, default_value_t)]
    pace: PaceArg,
    /// Play a story of your own instead; the lab's, lab/demo.toml, shows what a story can have.
    #[arg(long, value_name = "FILE")]
    story: Option<PathBuf>,
    /// Where the lab runs, such as cuda:0 or sim:rtx-4090 [default: the story's]; full-size models are slow on cpu.
    #[arg(long)]
    device: Option<String>,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// Plays the story; afterwards the lab goes on as usual.
pub(super) fn run(args: &DemoArgs) -> Result<Status> {
    let story = match &args.story {
        None => Story::built_in().wrap_err("the built-in story can't be read; report this")?,
        Some(file) => read(file).wrap_err_with(|| format!("the story {} can't be played", file.display()))?,
    };
    let settings = config::settings();
    story.check(&settings.keys).map_err(Usage)?;
    let entry = workloads().entry(&story.workload).map_err(|error| Usage(error.to_string()))?;
    let device = device(args.device.as_deref().unwrap_or(&story.device))?;
    let story = story.with_runs(|ranks| shared(ranks, &entry))?;
    let mut options = args.screen.options(&settings, tui::OpeningCommand::default())?;
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(eyre!("there is no terminal to draw on; run `vramlab demo` in one"));
    }
    let spec = LabSpec { device, speed: Speed::Watchable, ..LabSpec::new(entry) };
    let pace = match args.pace {
        PaceArg::Slow => ReadingPace::Slow,
        PaceArg::Normal => ReadingPace::Normal,
        PaceArg::Fast => ReadingPace::Fast,
    };
    options.story = Some((story, pace));
    lab::stay(source::live(spec).wrap_err("can't start a thread")?, options)
}

/// The run that a scene starts.
fn shared(ranks: &Ranks, entry: &WorkloadEntry) -> Result<LabSpec> {
    let parallel = Parallel { parallelism: ranks.parallel, ranks: ranks.count };
    let device = device(&ranks.device)?;
    let mut spec = LabSpec { device, speed: Speed::Watchable, parallel: Some(parallel), ..LabSpec::new(entry.clone()) };
    keep_batches(&mut spec);
    check_live(&spec, parallel)?;
    Ok(spec)
}

fn read(file: &std::path::Path) -> Result<Story> {
    let text = TomlText::read(file)?;
    text.parse().map_err(Report::new)
}
