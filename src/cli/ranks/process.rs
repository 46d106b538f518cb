//! One rank of several that a launcher started, each in its own process.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use color_eyre::eyre::{Report, Result, WrapErr, eyre};

use super::launcher::LaunchedRank;
use super::row::RankRow;
use super::table::RankTable;
use super::threads::{prepare, train_rank};
use super::{print, refused};
use crate::cli::followers::Followers;
use crate::cli::{Status, Usage, record};
use crate::device::cuda;
use crate::session::{self, DeviceChoice, LabSpec, PATIENCE, Parallel};
use crate::train::{Parallelism, Seat};

/// How a rank's figures are printed.
pub(in crate::cli) struct RankOutput<'a> {
    pub steps: u64,
    pub as_json: bool,
    /// The path for recordings; each rank writes to its own name.
    pub record: Option<&'a Path>,
    /// Whether the user named this process's device.
    pub device_is_named: bool,
}

/// Trains this process's rank. Rank 0 prints the results of all ranks.
pub(in crate::cli) fn run(
    out: &mut dyn Write,
    spec: &LabSpec,
    parallelism: Parallelism,
    launched: &LaunchedRank,
    told: &RankOutput<'_>,
) -> Result<Status> {
    let world = launched.rendezvous.world;
    let (rank, parallel) = (world.rank(), Parallel { parallelism, ranks: world.size() });
    let of_this = |error: Report| if rank == 0 { error } else { error.wrap_err(format!("rank {rank}")) };
    let mut own = session::of_rank(parallel, spec, rank, 0).map_err(refused).map_err(of_this)?;
    if matches!(spec.device, DeviceChoice::Sim(_)) {
        let text =
            "simulated ranks need no launcher; run once, such as `vramlab run gpt2 --parallel ddp --device sim:h200x2`";
        return Err(Usage(text.to_owned()).into());
    }
    own.device = own_device(spec, launched, told.device_is_named)?;
    prepare(&own)?;
    if told.record == Some(Path::new("-")) {
        return Err(Usage("each rank records to a file of its own; give --record a name".to_owned()).into());
    }
    let recorder = told.record.map(|path| record::create(&of_rank(path, rank))).transpose()?;
    let seat = launched.rendezvous.meet(PATIENCE).map_err(Report::new).map_err(of_this)?;
    agree(&seat, given(spec, parallel, told.steps)).map_err(of_this)?;
    own.seat = Some(seat.clone());
    let followers = recorder.map(|recorder| Followers::new(Some(recorder), None));
    let listener = followers.as_ref().map(Followers::listener);
    let trained = train_rank(own, parallel, rank, told.steps, listener);
    followers.map_or(Ok(()), Followers::finish)?;
    let (row, ended) = trained.map_err(refused).map_err(of_this)?;
    if let Some(error) = ended {
        for line in row.autopsy.iter().flatten() {
            writeln!(out, "{line}")?;
        }
        return Err(Report::new(error).wrap_err(format!("training ended in step {} of rank {rank}", row.finished)));
    }
    let rows = seat.gather(serde_json::to_vec(&row)?).wrap_err("the figures of all ranks can't be collected")?;
    if rank > 0 {
        return Ok(Status::DONE);
    }
    let rows: Vec<RankRow> = rows.iter().map(|row| serde_json::from_slice(row)).collect::<Result<_, _>>()?;
    let of_rank = (0..rows.len()).collect();
    print(out, &RankTable { rows, of_rank }, (spec, parallel), told.as_json, None)
}

/// The device of this process.
pub(super) fn own_device(spec: &LabSpec, launched: &LaunchedRank, is_named: bool) -> Result<DeviceChoice> {
    match &spec.device {
        DeviceChoice::Cuda(_) if !is_named => Ok(DeviceChoice::Cuda(gpu(launched.local)?)),
        device => Ok(device.clone()),
    }
}

/// The GPU of the rank with this number on its host.
fn gpu(local: u32) -> Result<u32> {
    match cuda::visible().len() {
        // A launcher may show each rank only its own GPU.
        1 => Ok(0),
        count if (local as usize) < count => Ok(local),
        count => Err(Usage(format!(
            "rank {local} of this host has no GPU: {count} are visible; start fewer ranks on it, or give --device cpu"
        ))
        .into()),
    }
}

/// The arguments that must be equal on all ranks.
pub(super) fn given(spec: &LabSpec, parallel: Parallel, steps: u64) -> String {
    let kind = match &spec.device {
        DeviceChoice::Cpu => "cpu",
        DeviceChoice::Cuda(_) => "cuda",
        DeviceChoice::Sim(_) => "sim",
    };
    let LabSpec { workload, sizes, data, seed, config, .. } = spec;
    format!("{} {sizes:?} {data:?} {seed} {config:?} {parallel:?} {steps} {kind}", workload.name)
}

/// Checks that all ranks have the same arguments.
fn agree(seat: &Seat, given: String) -> Result<()> {
    let all = seat.gather(given.into_bytes())?;
    let Some(other) = all.iter().position(|asked| *asked != all[0]) else { return Ok(()) };
    seat.fail();
    Err(eyre!("ranks 0 and {other} were given different arguments; start all ranks with the same"))
}

/// `run.rank3.vram` for `run.vram`.
fn of_rank(path: &Path, rank: usize) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(format!(".rank{rank}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_records_to_a_name_of_its_own() {
        let named = |path: &str| of_rank(Path::new(path), 3).display().to_string();
        assert_eq!(named("runs/gpt2.vram"), "runs/gpt2.rank3.vram");
        assert_eq!(named("gpt2"), "gpt2.rank3");
    }
}
