//! Several ranks without a screen. Ranks that do the same work are one run.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use thiserror::Error;

use super::interleaved::EventInterleaver;
use super::{BuildError, DeviceChoice, Follow, Headless, LabSpec, Listener, Parallel};
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::sim::Card;
use vramlab_model::{AlikeRanks, Event, EventKind, Lab, Ranks, StepReport};
use vramlab_train::{Member, TrainError, UnevenSplit, World};

/// What rank number `rank` of a run of `spec` trains, as device number `index`.
///
/// # Errors
/// [`GroupError::Size`], [`GroupError::Uneven`].
pub fn of_rank(parallel: Parallel, spec: &LabSpec, rank: usize, index: u16) -> Result<LabSpec, GroupError> {
    if !(2..=ProcessGroup::MOST).contains(&parallel.ranks) {
        return Err(GroupError::Size(parallel.ranks));
    }
    let world = World::new(parallel.ranks, rank).ok_or(GroupError::Size(parallel.ranks))?;
    let member = Member { parallelism: parallel.parallelism, world };
    let mut of_rank = LabSpec { parallel: None, member: Some(member), index: DeviceIndex(index), ..spec.clone() };
    of_rank.config.batch = member.samples(spec.config.batch)?;
    match &mut of_rank.device {
        DeviceChoice::Cuda(ordinal) => *ordinal += u32::try_from(rank).unwrap_or(u32::MAX),
        DeviceChoice::Sim(card) => **card = Card::clone(card).of_rank(),
        DeviceChoice::Cpu => {}
    }
    Ok(of_rank)
}

/// Checks a run of `spec` as far as is possible before anything is built.
///
/// # Errors
/// [`GroupError::Size`], [`GroupError::Threads`], [`GroupError::Uneven`].
pub fn check_ranks(parallel: Parallel, spec: &LabSpec) -> Result<(), GroupError> {
    let threads = !matches!(spec.device, DeviceChoice::Sim(_)) && !spec.apart;
    if spec.apart && parallel.ranks > Ranks::MOST {
        return Err(GroupError::TooDifferent);
    }
    if threads && !(2..=Parallel::MOST_THREADS).contains(&parallel.ranks) {
        return Err(GroupError::Threads(parallel.ranks));
    }
    of_rank(parallel, spec, 0, 0).map(drop)
}

/// The ranks that do the same work as `first`. `firsts` has the lowest such rank for each rank.
pub(super) fn alike(parallel: Parallel, firsts: &[usize], first: usize) -> AlikeRanks {
    let ranks = (0..).zip(firsts).filter(|(_, of)| **of == first).map(|(rank, _)| rank).collect();
    let world = u32::try_from(parallel.ranks).unwrap_or(u32::MAX);
    AlikeRanks { parallelism: Some(parallel.parallelism), world, ranks }
}

/// Ranks of simulated devices that train together. None waits for another, because a rank's requests to its allocator
/// follow from its own program alone.
pub struct ProcessGroup {
    /// One run for all ranks that do the same work.
    runs: Vec<Headless>,
    /// For each rank, the index of the run that stands for it.
    of_rank: Vec<usize>,
    merged: Rc<RefCell<GroupStream>>,
}

/// Why ranks can't train together.
#[derive(Debug, Error)]
pub enum GroupError {
    /// There are too few ranks, or too many.
    #[error("{0} ranks can't train together; give from 2 to {most}", most = ProcessGroup::MOST)]
    Size(usize),
    /// There are too few ranks for one process, or too many.
    #[error("{0} ranks can't train in one process; give from 2 to {most}", most = Parallel::MOST_THREADS)]
    Threads(usize),
    /// More ranks do work of their own than are followed.
    #[error("more than {most} ranks do different things; choose fewer ranks or another way of parallelism", most = Ranks::MOST)]
    TooDifferent,
    /// The work can't be divided equally.
    #[error(transparent)]
    Uneven(#[from] UnevenSplit),
    /// The model, or a switch, does not allow this way of sharing.
    #[error("{0}")]
    Refused(String),
    /// A rank could not be built.
    #[error("rank {rank}: {error}")]
    Build {
        /// The rank.
        rank: usize,
        /// The reason.
        error: BuildError,
    },
}

impl GroupError {
    /// True if its device is gone.
    pub(super) const fn lost(&self) -> bool {
        matches!(self, Self::Build { error, .. } if error.lost())
    }

    /// Why a rank could not be made.
    #[must_use]
    pub fn of(rank: usize, error: BuildError) -> Self {
        match error {
            BuildError::Train(TrainError::Workload(why)) => Self::Refused(why),
            error => Self::Build { rank, error },
        }
    }
}

/// A rank's step failed. The others have stopped after the step before, or after this one.
#[derive(Debug, Error)]
#[error("rank {rank}: {error}")]
pub struct RankFailed {
    /// The rank, the lowest of those that do the same work.
    pub rank: usize,
    /// The reason.
    pub error: TrainError,
}

/// The events of all runs, and their listener.
#[derive(Default)]
struct GroupStream {
    interleaved: EventInterleaver,
    listener: Option<Listener>,
}

impl GroupStream {
    /// Passes on the events. The runs begin the next step together.
    fn pass_on(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        while let Some(happened) = self.interleaved.next() {
            listener.event(&happened.event, None);
        }
        listener.caught_up();
        self.interleaved.align();
    }
}

/// Follows one of the runs.
struct RunFollower {
    merged: Rc<RefCell<GroupStream>>,
    run: usize,
}

impl Follow for RunFollower {
    fn event(&mut self, event: &Event, _: Option<&Lab>) {
        self.merged.borrow_mut().interleaved.push(self.run, event.clone());
    }
}

impl ProcessGroup {
    /// The most ranks.
    pub const MOST: usize = 1024;

    /// Builds the ranks; no step has run yet. The listener gets their events by time, each run's as a device of its own.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn start(spec: &LabSpec, parallel: Parallel, listener: Option<Listener>) -> Result<Self, GroupError> {
        let merged = Rc::new(RefCell::new(GroupStream { listener, ..GroupStream::default() }));
        let mut group = Self { runs: Vec::new(), of_rank: Vec::new(), merged };
        let spec = &LabSpec { timetable: Some(Arc::default()), ..spec.clone() };
        group.add(spec, parallel, 0)?;
        let firsts = group.runs[0].trainer().alike_ranks();
        let mut places = vec![None; firsts.len()];
        for &first in &firsts {
            let run = match places[first] {
                Some(run) => run,
                None if first == 0 => 0,
                None => group.add(spec, parallel, first)?,
            };
            places[first] = Some(run);
            group.of_rank.push(run);
        }
        for run in 0..group.runs.len() {
            let alike = alike(parallel, &firsts, group.first_of(run));
            group.runs[run].announce(EventKind::AlikeRanks(Arc::new(alike)));
        }
        group.merged.borrow_mut().pass_on();
        Ok(group)
    }

    /// Builds rank number `rank`. Returns the number of its run.
    fn add(&mut self, spec: &LabSpec, parallel: Parallel, rank: usize) -> Result<usize, GroupError> {
        let run = self.runs.len();
        let index = u16::try_from(run).ok().filter(|_| run < Ranks::MOST).ok_or(GroupError::TooDifferent)?;
        let of_rank = of_rank(parallel, spec, rank, index)?;
        let follows = {
            let mut merged = self.merged.borrow_mut();
            merged.interleaved.add();
            merged.listener.is_some()
        };
        let listener = RunFollower { merged: Rc::clone(&self.merged), run };
        let listener = follows.then(|| Box::new(listener) as Listener);
        let made = Headless::start_before(of_rank, listener).map_err(|error| GroupError::of(rank, error))?;
        self.runs.push(made);
        Ok(run)
    }

    /// Trains one step on every rank. Returns the reports of the runs.
    ///
    /// # Errors
    /// [`RankFailed`] for the first rank that failed. Later ranks have not begun the step.
    pub fn step(&mut self) -> Result<Vec<StepReport>, RankFailed> {
        let mut reports = Vec::with_capacity(self.runs.len());
        for run in 0..self.runs.len() {
            match self.runs[run].step() {
                Ok(report) => reports.push(report),
                Err(error) => {
                    self.merged.borrow_mut().pass_on();
                    return Err(RankFailed { rank: self.first_of(run), error });
                }
            }
        }
        self.merged.borrow_mut().pass_on();
        Ok(reports)
    }

    /// Ends the runs.
    pub fn finish(&mut self) {
        self.runs.iter_mut().for_each(Headless::finish);
        self.merged.borrow_mut().pass_on();
    }

    /// The runs. Each stands for the ranks that do the same work.
    pub fn runs(&mut self) -> &mut [Headless] {
        &mut self.runs
    }

    /// For each rank, the index of the run that stands for it.
    #[must_use]
    pub fn of_rank(&self) -> &[usize] {
        &self.of_rank
    }

    /// The lowest rank that a run stands for.
    fn first_of(&self, run: usize) -> usize {
        self.of_rank.iter().position(|of| *of == run).unwrap_or(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocator::units::Bytes;
    use vramlab_model::Micros;
    use vramlab_train::Parallelism;

    fn runs(parallelism: Parallelism, ranks: usize) -> Vec<usize> {
        let mut spec = LabSpec::on_h200("gpt-mini");
        spec.config.batch = 2 * ranks;
        ProcessGroup::start(&spec, Parallel { parallelism, ranks }, None).unwrap().of_rank().to_vec()
    }

    #[test]
    fn ranks_that_are_alike_are_one() {
        assert_eq!(runs(Parallelism::Ddp, 64), [0; 64]);
        assert_eq!(runs(Parallelism::Tensor, 4), [0; 4]);
        // 257 rows of the table: the second of two ranks has one row less.
        assert_eq!(runs(Parallelism::Fsdp, 2), [0, 1]);
        assert_eq!(runs(Parallelism::Zero1, 2), [0, 1]);
    }

    #[test]
    fn events_come_by_time_and_name_their_device() {
        let seen: Rc<RefCell<Vec<(Micros, u16)>>> = Rc::default();
        let hears = Rc::clone(&seen);
        let listener: Listener = Box::new(move |event: &Event| hears.borrow_mut().push((event.time, event.device.0)));
        let parallel = Parallel { parallelism: Parallelism::Fsdp, ranks: 2 };
        let mut group = ProcessGroup::start(&LabSpec::on_h200("gpt-mini"), parallel, Some(listener)).unwrap();
        group.step().unwrap();
        group.step().unwrap();
        group.finish();
        let seen = seen.borrow();
        assert!(seen.is_sorted_by_key(|(time, _)| *time));
        assert!([0, 1].iter().all(|device| seen.iter().filter(|(_, of)| of == device).count() > 1000));
    }

    #[test]
    fn what_can_not_be_shared_is_a_sentence() {
        let refused = |parallelism, ranks, batch| {
            let mut spec = LabSpec::on_h200("gpt-mini");
            spec.config.batch = batch;
            ProcessGroup::start(&spec, Parallel { parallelism, ranks }, None).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(
            refused(Parallelism::Ddp, 3, 4),
            "4 samples can't be split over 3 ranks; give --batch 6 or another multiple"
        );
        assert!(refused(Parallelism::Tensor, 3, 4).contains("4 attention heads can't be split over 3 ranks"));
        let pipeline = Parallelism::Pipeline(vramlab_train::PipelineSchedule::GPipe);
        assert!(refused(pipeline, 3, 4).contains("2 blocks can't be split over 3 ranks"));
        assert!(refused(pipeline, 2, 6).contains("a batch of 6 can't be cut into 4 micro-batches"));
        assert!(refused(Parallelism::Ddp, 1, 4).contains("from 2 to 1024"));
    }

    #[test]
    fn what_nccl_takes_is_missing_to_a_ranks_segments() {
        let parallel = Parallel { parallelism: Parallelism::Ddp, ranks: 2 };
        let spec = LabSpec { parallel: Some(parallel), ..LabSpec::on_h200("gpt-mini") };
        let alone = LabSpec::on_h200("gpt-mini").memory().unwrap();
        assert_eq!(spec.memory(), of_rank(parallel, &spec, 1, 1).unwrap().memory());
        let rank = spec.memory().unwrap();
        assert_eq!((rank.total, alone.free - rank.free), (alone.total, Bytes::mib(991)));
    }
}
