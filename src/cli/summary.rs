//! `vramlab summary`: `torch.cuda.memory_summary()` of a recording or snapshot.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;

use super::export::{position, read};
use super::output::stdout;
use super::progress::ProgressLine;
use super::{Status, Usage};
use crate::allocator::TorchVersion;
use crate::export::{self, ExportMoment};

/// Arguments of `vramlab summary`.
#[derive(Debug, Args)]
pub(super) struct SummaryArgs {
    /// A recording or a PyTorch memory snapshot; `-` reads standard input.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// The PyTorch version of a snapshot, from 2.1 to 2.15 [default: the one that its keys show].
    #[arg(long, value_name = "VERSION")]
    torch: Option<TorchVersion>,
    /// The moment: now (the end), peak (of allocated), oom (the last request that failed), step:N (where the step begins),
    /// event:N (after N events).
    #[arg(long, value_name = "MOMENT", default_value = "now")]
    at: ExportMoment,
    /// Number of the device [default: the first one with events].
    #[arg(long, value_name = "N")]
    rank: Option<u16>,
    /// Leave out the rows of each pool.
    #[arg(long, conflicts_with = "json")]
    abbreviated: bool,
    /// Print torch.cuda.memory_stats() and the settings instead: what `vramlab replay --stats` reads.
    #[arg(long)]
    json: bool,
}

/// Prints the table.
pub(super) fn run(args: &SummaryArgs) -> Result<Status> {
    let whole = read(&args.file, args.torch)?;
    let end = position(args.at, &whole)?;
    let mut progress = ProgressLine::new("counting", 100);
    let stats = export::stats(&whole, end, args.rank, &mut |done, total| progress.of(done, total))?;
    drop(progress);
    let Some(stats) = stats else {
        let which = args.rank.map_or_else(String::new, |rank| format!(" on device {rank}"));
        return Err(Usage(format!("nothing happened{which} up to then; give another --at or --rank")).into());
    };
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&stats)?)?;
    } else {
        write!(out, "{}", stats.stats.summary(usize::from(stats.device), args.abbreviated))?;
    }
    Ok(Status::DONE)
}
