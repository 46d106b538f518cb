//! `vramlab open`: plays a recording, even while it is being written, or PyTorch snapshots in the lab's screens.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Report, Result, eyre};

use super::config;
use super::farewell;
use super::ghost::GhostArgs;
use super::screen::ScreenArgs;
use super::spec::themes;
use super::{Status, Usage};
use crate::allocator::TorchVersion;
use crate::model::RunState;
use crate::source::{self, ReadingStage};
use crate::tui;

/// Arguments of `vramlab open`.
#[derive(Debug, Args)]
pub(super) struct OpenArgs {
    /// A recording, or PyTorch memory snapshots: those of the ranks of one job, or runs to show side by side. `-` reads
    /// standard input. Further recordings, and output of `vramlab run --json`, are compared with the first file.
    #[arg(value_name = "FILE|-", required = true)]
    files: Vec<PathBuf>,
    /// The PyTorch version of a snapshot, from 2.1 to 2.15 [default: the one that its keys show].
    #[arg(long, value_name = "VERSION")]
    torch: Option<TorchVersion>,
    /// Follow a recording that is still being written.
    #[arg(long)]
    follow: bool,
    /// Group blocks under NAME if REGEX matches their name or a line of their stack: --category 'attention=attn|flash'. May be
    /// repeated; the first match counts. The Stacks screen (7) shows memory by these names.
    #[arg(long, value_name = "NAME=REGEX")]
    category: Vec<String>,
    #[command(flatten)]
    ghost: GhostArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

/// Opens the file and stays until the user leaves it.
pub(super) fn run(args: &OpenArgs) -> Result<Status> {
    let origin = tui::OpeningCommand::Open(args.files.iter().map(|file| file.display().to_string()).collect());
    let mut options = args.screen.options(&config::settings(), origin)?;
    for rule in &args.category {
        options.tags.add(rule).map_err(|error| Usage(format!("--category: {error}")))?;
    }
    let (files, compared) = source::side_by_side(&args.files);
    options.compare = compared;
    let piped = args.files.iter().any(|file| file == Path::new("-"));
    if !std::io::stdout().is_terminal() || (!piped && !std::io::stdin().is_terminal()) {
        return Err(eyre!("there is no terminal to draw on; run `vramlab open` in one"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let source = source::open(&files, args.follow, args.torch).map_err(|(file, error)| {
        let name = if file == Path::new("-") { "the standard input".to_owned() } else { file.display().to_string() };
        Report::new(error).wrap_err(format!("{name} can't be opened"))
    })?;
    args.ghost.haunt(&source, args.torch.unwrap_or_default())?;
    // The thread that reads standard input may wait forever: the process does not wait for it.
    let origin = options.origin.clone();
    let pictures = source.pictures.clone();
    let left = runtime.block_on(tui::run(source, options, themes()))?;
    farewell::print(&left, &origin)?;
    // Remarks that came up only while the file was open.
    let picture = pictures.borrow();
    if let (Some(ReadingStage::Failed), RunState::Failed(why)) =
        (picture.reading.as_ref().map(|reading| reading.doing), &picture.run)
    {
        return Err(eyre!("{why}").wrap_err("the snapshot could be read in part only"));
    }
    Ok(left.exit.into())
}
