//! The file that a command examines, read so that its program can be replayed.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;

use super::Usage;
use super::export::read;
use super::output::warn;
use super::progress::ProgressLine;
use crate::allocator::TorchVersion;
use crate::source::{DeviceExamination, RunHints, Whole, asked, examined};
use crate::units::{Bytes, DeviceIndex};
use crate::whatif::{Facts, RecordedRun};

/// Which file, and what a person knows of it.
#[derive(Debug, Args)]
pub(super) struct SubjectArgs {
    /// A recording or a PyTorch memory snapshot; `-` reads standard input.
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Number of the device [default: the first one with allocations].
    #[arg(long, value_name = "N")]
    pub rank: Option<u16>,
    /// The PyTorch version of a snapshot, from 2.1 to 2.15 [default: the one that its keys show].
    #[arg(long, value_name = "VERSION")]
    pub torch: Option<TorchVersion>,
    /// Memory that the recorded process could use on the device [default: as the file says].
    #[arg(long, value_name = "BYTES")]
    pub device_bytes: Option<Bytes>,
}

impl SubjectArgs {
    /// The file, and the run on every requested device.
    pub fn all(&self) -> Result<(Whole, Vec<RecordedRun>)> {
        let whole = read(&self.file, self.torch)?;
        let mut progress = ProgressLine::new("reading", 100);
        let known = RunHints { device_bytes: self.device_bytes, limit: None };
        let mut runs = asked(&whole, known, |done, total| progress.of(done, total))?;
        drop(progress);
        if let Some(rank) = self.rank {
            runs.retain(|run| run.facts.device == DeviceIndex(rank));
            if runs.is_empty() {
                return Err(Usage(format!("device {rank} has no allocations; give another --rank")).into());
            }
        }
        for run in &runs {
            run.facts.remarks.iter().for_each(|remark| warn(format_args!("device {}: {remark}", run.facts.device.0)));
        }
        Ok((whole, runs))
    }

    /// The run on the requested device, or on the first.
    pub fn one(&self) -> Result<(RecordedRun, TorchVersion)> {
        let (whole, mut runs) = self.all()?;
        if runs.len() > 1 {
            warn(format_args!(
                "{} devices have allocations; this is device {}, --rank selects another",
                runs.len(),
                runs[0].facts.device.0
            ));
        }
        let run = runs.swap_remove(0);
        let oldest = oldest(&whole, &run.facts);
        Ok((run, oldest))
    }

    /// The file's name.
    pub fn name(&self) -> String {
        self.file.display().to_string()
    }
}

/// The oldest PyTorch that may have made a run: lines to paste must work there.
pub(super) fn oldest(whole: &Whole, run: &Facts) -> TorchVersion {
    let torch = run.conditions.settings.torch();
    match run.begins {
        None => torch,
        Some(_) if whole.is_snapshot() => whole.oldest_torch(),
        // For a watched program, the keys say no more than those of a snapshot.
        Some(_) if torch == TorchVersion::V2_11 => TorchVersion::V2_1,
        Some(_) => torch,
    }
}

/// Examines every device of a file in full.
pub(super) fn examine(whole: &Whole) -> Result<Vec<DeviceExamination>> {
    let mut progress = ProgressLine::new("examining", 100);
    Ok(examined(whole, |done, total| progress.of(done, total))?)
}
