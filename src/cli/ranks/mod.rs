//! `--parallel`: several ranks, and without a screen their figures side by side.

mod fit;
mod table;

use std::io::Write;

use eyre::{Report, Result};

pub(super) use self::fit::{Search, Ways, ways};
use self::table::{Row, Table};
use super::flags;
use super::followers::Followers;
use super::row::Steps;
use super::{Status, Usage};
use crate::session::{self, DeviceChoice, GroupError, Headless, LabSpec, Parallel, ProcessGroup};
use crate::source::Recorder;
use crate::train::{Parallelism, Seat, TrainError};
use crate::tui;
use crate::workload::Data;

const WITHOUT_LOAD: &str = "a checkpoint is loaded on one device; leave --load out with --parallel";

/// The device of `sim:h200x4` or `cpux4`, and how many there are; another one as it is.
pub(super) fn split_count(device: Option<String>) -> (Option<String>, Option<usize>) {
    let split = device.as_deref().and_then(|device| {
        let (one, count) = device.rsplit_once('x')?;
        let is_device = one == "cpu" || one.starts_with("sim:");
        is_device.then(|| Some((one.to_owned(), count.parse().ok()?)))?
    });
    match split {
        Some((card, count)) => (Some(card), Some(count)),
        None => (device, None),
    }
}

/// Which ranks train together, where any do.
///
/// # Errors
/// [`Usage`] where a way is given and one device, or several devices and no way.
pub(super) fn parallel(way: Option<Parallelism>, ranks: Option<usize>) -> Result<Option<Parallel>> {
    match (way, ranks) {
        (None, None) => Ok(None),
        (Some(parallelism), Some(ranks)) => Ok(Some(Parallel { parallelism, ranks })),
        (Some(way), None) => Err(Usage(format!(
            "{way} shares the work of a step among ranks; give --device sim:h200x2 or more, or cpux2"
        ))
        .into()),
        (None, Some(ranks)) => {
            let ways: Vec<&str> = Parallelism::ALL.iter().map(|way| way.word()).collect();
            Err(Usage(format!("{ranks} ranks need a way to share the work; give --parallel {}", ways.join(", ")))
                .into())
        }
    }
}

/// Batches that a workload streams by itself stay on the devices, as they did on those that were measured.
pub(super) fn keep_batches(spec: &mut LabSpec) {
    if matches!(spec.data, Data::Streamed) {
        spec.data = Data::Reference;
        spec.config.data = spec.data.path();
    }
}

/// Checks what can be told before a screen opens: the lab has ranks of simulated cards.
///
/// # Errors
/// [`Usage`].
pub(super) fn check_live(spec: &LabSpec, parallel: Parallel) -> Result<()> {
    if spec.load.is_some() {
        return Err(Usage(WITHOUT_LOAD.to_owned()).into());
    }
    if !matches!(spec.device, DeviceChoice::Sim(_)) {
        let text = "the lab shows ranks of simulated cards, such as --device sim:h200x2; on the processor they train with \
                    `vramlab run --parallel`";
        return Err(Usage(text.to_owned()).into());
    }
    session::of_rank(parallel, spec, 0, 0).map(|_| ()).map_err(refused)
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
        DeviceChoice::Cpu => on_threads(spec, parallel, count, recorder.is_some())?,
        DeviceChoice::Cuda(_) => {
            let text = "ranks train on simulated cards or on the processor; give --device sim:h200x2 or cpux2";
            return Err(Usage(text.to_owned()).into());
        }
        DeviceChoice::Sim(_) => simulated(spec, parallel, count, recorder)?,
    };
    if as_json {
        writeln!(out, "{}", table.json(spec, parallel))?;
    } else {
        if let Some(failed) = ended.as_ref().and(table.failed()) {
            // What would have made it fit is tried on one device only.
            let lines = tui::autopsy_lines(&failed.view, 100, flags::flag);
            for line in lines.iter().filter(|line| !line.starts_with("fits:")) {
                writeln!(out, "{line}")?;
            }
        }
        table.write(out, spec, parallel)?;
    }
    ended.map_or(Ok(Status::DONE), Err)
}

/// Ranks of simulated cards; why they ended before the last step, where they did.
fn simulated(
    spec: &LabSpec,
    parallel: Parallel,
    count: u64,
    recorder: Option<Recorder>,
) -> Result<(Table, Option<Report>)> {
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
    let rows = group.runs().iter_mut().zip(steps).enumerate();
    let rows = rows.map(|(run, (headless, steps))| Row::of(headless, steps, ranks_of(run))).collect();
    followers.finish()?;
    Ok((Table { rows, of_rank }, ended))
}

/// Ranks on the processor, each on a thread of its own; they compute, and wait for each other.
fn on_threads(spec: &LabSpec, parallel: Parallel, count: u64, records: bool) -> Result<(Table, Option<Report>)> {
    const MOST: usize = 16;
    if !(2..=MOST).contains(&parallel.ranks) {
        let text = format!("{} ranks can't share the processor; give from 2 to {MOST}", parallel.ranks);
        return Err(Usage(text).into());
    }
    if records {
        let text = "ranks on the processor are not recorded; give simulated cards, such as --device sim:h200x2";
        return Err(Usage(text.to_owned()).into());
    }
    let mut specs = Vec::with_capacity(parallel.ranks);
    for (rank, seat) in Seat::for_all(parallel.ranks).into_iter().enumerate() {
        let index = u16::try_from(rank).unwrap_or(u16::MAX);
        specs.push(LabSpec { seat: Some(seat), ..session::of_rank(parallel, spec, rank, index).map_err(refused)? });
    }
    let train = |rank: usize, spec: LabSpec| -> Result<(Row, Option<TrainError>), GroupError> {
        let mut run = Headless::start(spec).map_err(|error| GroupError::of(rank, error))?;
        let (mut steps, mut ended) = (Steps::new(count, true), None);
        for _ in 0..count {
            match run.step() {
                Ok(report) => steps.push(&report),
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            }
        }
        run.finish();
        Ok((Row::of(&mut run, steps, vec![rank]), ended))
    };
    let trained: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            specs.into_iter().enumerate().map(|(rank, spec)| scope.spawn(move || train(rank, spec))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let (mut rows, mut ended) = (Vec::new(), Vec::new());
    for (rank, trained) in trained.into_iter().enumerate() {
        let (row, error) = match trained {
            Ok(trained) => trained.map_err(refused)?,
            Err(panicked) => std::panic::resume_unwind(panicked),
        };
        let step = row.steps.finished;
        ended.extend(error.map(|error| (rank, step, error)));
        rows.push(row);
    }
    // Who only waited for another that has ended is not the reason.
    let cause = ended.iter().position(|(_, _, error)| !matches!(error, TrainError::RankEnded(_))).unwrap_or_default();
    let ended = (cause < ended.len()).then(|| {
        let (rank, step, error) = ended.swap_remove(cause);
        Report::new(error).wrap_err(format!("training ended in step {step} of rank {rank}"))
    });
    let of_rank = (0..rows.len()).collect();
    Ok((Table { rows, of_rank }, ended))
}

/// What is wrong with what was asked for is told as such.
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
    }
}
