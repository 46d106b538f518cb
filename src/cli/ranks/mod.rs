//! `--parallel`: several ranks, and without a screen their figures side by side.

mod fit;
mod lab;
mod launcher;
mod process;
mod row;
mod table;
mod threads;

use std::io::Write;

use color_eyre::eyre::{Report, Result};

pub(super) use self::fit::{RankSearch, Ways, ways};
pub(super) use self::lab::{ProcessDuty, gather, left_behind};
pub(super) use self::launcher::launched;
pub(super) use self::process::{RankOutput, run as run_launched};
use self::row::RankRow;
use self::table::RankTable;
use super::followers::Followers;
use super::row::Steps;
use super::{Status, Usage};
use crate::model::AlikeRanks;
use crate::session::{self, DeviceChoice, GroupError, LabSpec, Parallel, ProcessGroup};
use crate::source::Recorder;
use crate::train::Parallelism;
use crate::workload::Data;

const WITHOUT_LOAD: &str = "a checkpoint is loaded on one device; leave --load out with --parallel";

/// Splits `sim:h200x4`, `cpux4`, `cudax4` or `cuda:0,1,2,3` into the device and the number of devices; returns any
/// other device unchanged. A list holds consecutive GPUs, so that the first one and their number are enough.
pub(super) fn split_count(device: Option<String>) -> (Option<String>, Option<usize>) {
    let split = device.as_deref().and_then(|device| {
        if let Some(list) = device.strip_prefix("cuda:") {
            return consecutive(list).map(|(first, count)| (format!("cuda:{first}"), count));
        }
        let (one, count) = device.rsplit_once('x')?;
        let is_device = matches!(one, "cpu" | "cuda") || one.starts_with("sim:");
        is_device.then(|| Some((one.to_owned(), count.parse().ok()?)))?
    });
    match split {
        Some((card, count)) => (Some(card), Some(count)),
        None => (device, None),
    }
}

/// The first number and the count of a list like `0,1,2`, if its numbers are consecutive.
fn consecutive(list: &str) -> Option<(u32, usize)> {
    let numbers: Vec<u32> = list.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let (first, count) = (*numbers.first()?, numbers.len());
    (count > 1 && numbers.iter().copied().eq((first..).take(count))).then_some((first, count))
}

/// The ranks that train together, if there are several.
///
/// # Errors
/// [`Usage`] for a way with a single device, or for several devices without a way.
pub(super) fn parallel(way: Option<Parallelism>, ranks: Option<usize>) -> Result<Option<Parallel>> {
    match (way, ranks) {
        (None, None) => Ok(None),
        (Some(parallelism), Some(ranks)) => Ok(Some(Parallel { parallelism, ranks })),
        (Some(way), None) => Err(Usage(format!(
            "{way} shares the work of a step among ranks; give --device sim:h200x2 or more, cuda:0,1 or cpux2"
        ))
        .into()),
        (None, Some(ranks)) => {
            let ways: Vec<&str> = Parallelism::ALL.iter().map(|way| way.word()).collect();
            Err(Usage(format!("{ranks} ranks need a way to share the work; give --parallel {}", ways.join(", ")))
                .into())
        }
    }
}

/// Keeps on the devices the batches that a workload would stream, as the reference measurements did.
pub(super) fn keep_batches(spec: &mut LabSpec) {
    if matches!(spec.data, Data::Streamed) {
        spec.data = Data::Reference;
        spec.config.data = spec.data.path();
    }
}

/// Checks what can be checked before a screen opens.
///
/// # Errors
/// [`Usage`].
pub(super) fn check_live(spec: &LabSpec, parallel: Parallel) -> Result<()> {
    if spec.load.is_some() {
        return Err(Usage(WITHOUT_LOAD.to_owned()).into());
    }
    session::check_ranks(parallel, spec).map_err(refused)
}

/// Trains on all ranks and prints a table of them, or one JSON object.
pub(super) fn run(
    out: &mut dyn Write,
    spec: &LabSpec,
    parallel: Parallel,
    count: u64,
    as_json: bool,
    recorder: Option<Recorder>,
) -> Result<Status> {
    if spec.load.is_some() {
        return Err(Usage(WITHOUT_LOAD.to_owned()).into());
    }
    let (table, ended) = match spec.device {
        DeviceChoice::Cpu | DeviceChoice::Cuda(_) => threads::train(spec, parallel, count, recorder)?,
        DeviceChoice::Sim(_) => simulated(spec, parallel, count, recorder)?,
    };
    print(out, &table, (spec, parallel), as_json, ended)
}

/// Prints the ranks' results, and returns their status.
fn print(
    out: &mut dyn Write,
    table: &RankTable,
    (spec, parallel): (&LabSpec, Parallel),
    as_json: bool,
    ended: Option<Report>,
) -> Result<Status> {
    if as_json {
        writeln!(out, "{}", table.json(spec, parallel))?;
    } else {
        if let Some(autopsy) = ended.as_ref().and(table.autopsy()) {
            autopsy.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        table.write(out, spec, parallel)?;
    }
    ended.map_or(Ok(Status::DONE), Err)
}

/// Trains ranks on simulated cards; returns why they ended before the last step, if they did.
fn simulated(
    spec: &LabSpec,
    parallel: Parallel,
    count: u64,
    recorder: Option<Recorder>,
) -> Result<(RankTable, Option<Report>)> {
    let followers = Followers::new(recorder, None);
    let mut group = ProcessGroup::start(spec, parallel, Some(followers.listener())).map_err(refused)?;
    let mut steps: Vec<Steps> = group.runs().iter().map(|_| Steps::new(count, true)).collect();
    let mut ended = None;
    for number in 0..count {
        match group.step() {
            Ok(reports) => steps.iter_mut().zip(&reports).for_each(|(steps, report)| steps.push(report)),
            Err(failed) => {
                ended = Some(Report::new(failed).wrap_err(format!("training ended in step {number}")));
                break;
            }
        }
    }
    group.finish();
    let of_rank = group.of_rank().to_vec();
    let ranks_of = |run| (0..of_rank.len()).filter(|rank| of_rank[*rank] == run).collect();
    let rows = group.runs().iter_mut().zip(&steps).enumerate();
    let rows =
        rows.map(|(run, (headless, steps))| RankRow::of(headless, steps, alike(parallel, ranks_of(run)))).collect();
    followers.finish()?;
    Ok((RankTable { rows, of_rank }, ended))
}

/// The ranks that share one simulation.
fn alike(parallel: Parallel, ranks: Vec<usize>) -> AlikeRanks {
    let ranks = ranks.into_iter().filter_map(|rank| u16::try_from(rank).ok()).collect();
    AlikeRanks {
        parallelism: Some(parallel.parallelism),
        world: u32::try_from(parallel.ranks).unwrap_or(u32::MAX),
        ranks,
    }
}

/// Turns a mistake in the request into a usage error.
fn refused(error: GroupError) -> Report {
    match error {
        error @ GroupError::Build { .. } => Report::new(error),
        error => Usage(error.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_cards_is_behind_the_last_x() {
        let split = |device: &str| split_count(Some(device.to_owned()));
        assert_eq!(split("sim:h200x2"), (Some("sim:h200".to_owned()), Some(2)));
        assert_eq!(split("sim:rtx-3090"), (Some("sim:rtx-3090".to_owned()), None));
        assert_eq!(split("cpu"), (Some("cpu".to_owned()), None));
        assert_eq!(split("cpux4"), (Some("cpu".to_owned()), Some(4)));
        assert_eq!(split("cuda:0x2"), (Some("cuda:0x2".to_owned()), None));
        assert_eq!(split("cudax2"), (Some("cuda".to_owned()), Some(2)));
        assert_eq!(split("cuda:1,2,3"), (Some("cuda:1".to_owned()), Some(3)));
        assert_eq!(split("cuda:1"), (Some("cuda:1".to_owned()), None));
        assert_eq!(split("cuda:0,2"), (Some("cuda:0,2".to_owned()), None));
    }
}
