//! `vramlab open`: plays a recording, also while it is being written, or a PyTorch snapshot in the lab's screens.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Report, Result, WrapErr, eyre};

use super::Status;
use super::config;
use super::farewell;
use super::ghost::GhostArgs;
use super::screen::ScreenArgs;
use super::spec::themes;
use crate::allocator::TorchVersion;
use crate::recording::RecordingError;
use crate::source;
use crate::tui;

/// Arguments of `vramlab open`.
#[derive(Debug, Args)]
pub(super) struct OpenArgs {
    /// A recording (`-` is the standard input), or a PyTorch memory snapshot.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The PyTorch that a snapshot is of, from 2.1 to 2.15 [default: as its keys say].
    #[arg(long, value_name = "VERSION")]
    torch: Option<TorchVersion>,
    /// Recordings, and files with what `vramlab run --json` printed, to compare with it.
    #[arg(value_name = "OTHER")]
    others: Vec<PathBuf>,
    /// Go on with what is written later: of a run that is still under way.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    ghost: GhostArgs,
    #[command(flatten)]
    screen: ScreenArgs,
}

impl OpenArgs {
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.file).chain(&self.others)
    }
}

/// Opens the file and stays until somebody leaves it.
pub(super) fn run(args: &OpenArgs) -> Result<Status> {
    let origin = tui::Origin::Open(args.files().map(|file| file.display().to_string()).collect());
    let mut options = args.screen.options(&config::settings(), origin)?;
    options.compare.clone_from(&args.others);
    let piped = args.file == Path::new("-");
    if !std::io::stdout().is_terminal() || (!piped && !std::io::stdin().is_terminal()) {
        return Err(eyre!("there is no terminal to draw on; run `vramlab open` in one"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let name = if piped { "the standard input".to_owned() } else { args.file.display().to_string() };
    let opened = match source::recording(&args.file, args.follow) {
        Err(RecordingError::NoRecording) if !piped && is_snapshot(&args.file) => {
            source::snapshot(&args.file, args.torch).map_err(Report::new)
        }
        opened => opened.map_err(Report::new),
    };
    let source = opened.wrap_err_with(|| format!("{name} can't be opened"))?;
    args.ghost.haunt(&source)?;
    // What the thread of the standard input waits for may never come: the process does not wait for it.
    let origin = options.origin.clone();
    let left = runtime.block_on(tui::run(source, options, themes()))?;
    farewell::print(&left, &origin)?;
    Ok(left.exit.into())
}

/// Whether a file's name says that it is a snapshot: what neither format begins with is better called no recording.
fn is_snapshot(path: &Path) -> bool {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    [".pickle", ".pkl", ".pickle.xz", ".pkl.xz"].iter().any(|ending| name.ends_with(ending))
}
