//! Ranks on the processor or on one GPU each, with a thread per rank; they compute, and wait for each other.

use color_eyre::eyre::{Report, Result, eyre};

use super::row::RankRow;
use super::table::RankTable;
use super::{alike, refused};
use crate::cli::followers::Followers;
use crate::cli::row::Steps;
use crate::device::cuda;
use crate::model::EventKind;
use crate::session::{self, DeviceChoice, GroupError, Headless, LabSpec, Listener, Parallel, RankStream};
use crate::source::Recorder;
use crate::train::{Seat, TrainError};

/// Trains on all ranks; returns why they ended before the last step, if they did.
pub(super) fn train(
    spec: &LabSpec,
    parallel: Parallel,
    count: u64,
    recorder: Option<Recorder>,
) -> Result<(RankTable, Option<Report>)> {
    session::check_ranks(parallel, spec).map_err(refused)?;
    prepare(spec)?;
    let mut specs = Vec::with_capacity(parallel.ranks);
    for (rank, seat) in Seat::for_all(parallel.ranks).into_iter().enumerate() {
        let index = u16::try_from(rank).unwrap_or(u16::MAX);
        specs.push(LabSpec { seat: Some(seat), ..session::of_rank(parallel, spec, rank, index).map_err(refused)? });
    }
    let meeting = specs.first().and_then(|spec| spec.seat.clone());
    let (stream, listeners) = RankStream::of(parallel.ranks);
    let followers = recorder.map(|recorder| Followers::new(Some(recorder), None));
    let follows = followers.is_some();
    let trained: Vec<_> = std::thread::scope(|scope| {
        let ranks = specs.into_iter().zip(listeners).enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, (spec, listener))| {
                scope.spawn(move || {
                    let listener = follows.then(listener);
                    train_rank(spec, parallel, rank, count, listener)
                })
            })
            .collect();
        if let Some(followers) = &followers {
            stream.pass_on(followers.listener());
        }
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let (mut rows, mut ended) = (Vec::new(), Vec::new());
    for (rank, trained) in trained.into_iter().enumerate() {
        let (row, error) = match trained {
            Ok(trained) => trained.map_err(refused)?,
            Err(panicked) => std::panic::resume_unwind(panicked),
        };
        let step = row.finished;
        ended.extend(error.map(|error| (rank, step, error)));
        rows.push(row);
    }
    followers.map_or(Ok(()), Followers::finish)?;
    // A rank that only waited for an ended rank is not the cause.
    let first = meeting.and_then(|seat| seat.failed());
    let cause = ended.iter().position(|(rank, _, _)| Some(*rank) == first).unwrap_or_default();
    let ended = (cause < ended.len()).then(|| {
        let (rank, step, error) = ended.swap_remove(cause);
        Report::new(error).wrap_err(format!("training ended in step {step} of rank {rank}"))
    });
    let of_rank = (0..rows.len()).collect();
    Ok((RankTable { rows, of_rank }, ended))
}

/// Loads what the ranks need besides a device, before they start.
pub(super) fn prepare(spec: &LabSpec) -> Result<()> {
    if !matches!(spec.device, DeviceChoice::Cuda(_)) {
        return Ok(());
    }
    cuda::prepare_ranks().map_err(|why| eyre!("ranks can't train on GPUs: {why}"))
}

/// Trains one rank, which meets the others at its seat; returns the error if it ended before the last step.
pub(super) fn train_rank(
    spec: LabSpec,
    parallel: Parallel,
    rank: usize,
    count: u64,
    listener: Option<Listener>,
) -> Result<(RankRow, Option<TrainError>), GroupError> {
    let on_gpu = matches!(spec.device, DeviceChoice::Cuda(_));
    let seat = spec.seat.clone();
    let failed = || seat.as_ref().and_then(|seat| seat.failed());
    let fail = || seat.iter().for_each(|seat| seat.fail());
    let mut run = Headless::start_before(spec, listener).map_err(|error| {
        fail();
        GroupError::of(rank, error)
    })?;
    run.announce(EventKind::AlikeRanks(alike(parallel, vec![rank]).into()));
    let (mut steps, mut ended) = (Steps::new(count, true), None);
    for _ in 0..count {
        match (run.step(), failed()) {
            // Results that a GPU computed while its exchanges were being ended are invalid.
            (Ok(_), Some(other)) if on_gpu => ended = Some(TrainError::RankEnded(other)),
            (Ok(report), _) => steps.push(&report),
            (Err(error), _) => {
                fail();
                ended = Some(error);
            }
        }
        if ended.is_some() {
            break;
        }
    }
    run.finish();
    let row = RankRow::of(&mut run, &steps, alike(parallel, vec![rank]));
    if ended.is_none() {
        // Another rank may still be reading data from this rank's device.
        run.trainer().memory().synchronize();
        seat.iter().for_each(|seat| seat.meet());
    }
    Ok((row, ended))
}
