//! The files that a report is about: a run, or the ranks of one job.

use std::path::{Path, PathBuf};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};

use super::Usage;
use super::export::read_quietly;
use super::progress::ProgressLine;
use super::subject::oldest;
use crate::allocator::TorchVersion;
use crate::snapshot::PrintedSize;
use crate::source::{AskedError, RunHints, Whole, asked, facts};
use crate::units::{Bytes, DeviceIndex};
use crate::whatif::{Facts, RecordedRun};

/// Which files, and what a person knows of them.
#[derive(Debug, Args)]
pub(super) struct SubjectsArgs {
    /// Recordings, or PyTorch memory snapshots, such as those of the ranks of one job; `-` reads standard input.
    #[arg(value_name = "FILE|-")]
    pub files: Vec<PathBuf>,
    /// Number of the device [default: all with allocations].
    #[arg(long, value_name = "N")]
    pub rank: Option<u16>,
    /// The PyTorch version of a snapshot, from 2.1 to 2.15 [default: the one that its keys show].
    #[arg(long, value_name = "VERSION")]
    pub torch: Option<TorchVersion>,
    /// Memory that the recorded process could use on the device [default: as the file says].
    #[arg(long, value_name = "BYTES")]
    pub device_bytes: Option<Bytes>,
}

/// One file, with the run on every requested device.
pub(super) struct Subject<R = RecordedRun> {
    pub name: String,
    pub whole: Whole,
    pub runs: Vec<R>,
    /// The oldest PyTorch that may have made the file.
    pub oldest: TorchVersion,
}

impl SubjectsArgs {
    /// All files, ready to be replayed; `limit` is the limit of their processes, if it is known.
    pub fn all(&self, limit: Option<PrintedSize>) -> Result<Vec<Subject>> {
        self.files.iter().map(|path| self.one(path, limit, |whole, known, hear| asked(whole, known, hear))).collect()
    }

    /// The facts of all files, without a replay.
    pub fn facts(&self) -> Result<Vec<Subject<Facts>>> {
        self.files.iter().map(|path| self.one(path, None, |whole, known, hear| facts(whole, known, hear))).collect()
    }

    fn one<R: AsRef<Facts>>(
        &self,
        path: &Path,
        limit: Option<PrintedSize>,
        read: impl Fn(&Whole, RunHints, &mut dyn FnMut(u64, u64)) -> Result<Vec<R>, AskedError>,
    ) -> Result<Subject<R>> {
        let name = if path == Path::new("-") { "the standard input".to_owned() } else { path.display().to_string() };
        let whole = read_quietly(path, self.torch)?;
        let mut progress = ProgressLine::new("reading", 100);
        let known = RunHints { device_bytes: self.device_bytes, limit };
        let runs = read(&whole, known, &mut |done, total| progress.of(done, total));
        drop(progress);
        let mut runs = runs.wrap_err_with(|| format!("{name} can't be looked at"))?;
        if let Some(rank) = self.rank {
            runs.retain(|run| run.as_ref().device == DeviceIndex(rank));
        }
        let Some(first) = runs.first() else {
            return Err(Usage(format!("{name}: device {} has no allocations", self.rank.unwrap_or(0))).into());
        };
        let oldest = oldest(&whole, first.as_ref());
        Ok(Subject { name, oldest, whole, runs })
    }
}
