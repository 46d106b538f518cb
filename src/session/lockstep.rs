//! Trains ranks in lockstep: all begin a step together, under the same switches. Simulated ranks compute their steps
//! one after the other, because none waits for memory of another; the events are then reported by time, and the gate
//! can pause all ranks at once. Ranks on real devices have a thread or a process each, and their events are reported
//! while they compute.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::absence::{self, SilentRanks};
use super::broken::{RunFailure, back};
use super::gate::{Chore, Gate, WEIGHED};
use super::hand::Hand;
use super::interleaved::{EventInterleaver, SafePointEvent};
use super::order::{RankRequest, Reply};
use super::process_group::{GroupError, alike, check_ranks, of_rank};
use super::rank_processes::RankProcesses;
use super::rank_threads::RankThreads;
use super::rank_worker::RankFacts;
use super::remedies::of_all_ranks;
use super::{BuildError, DeviceChoice, LabSpec, PANICKED, Parallel, Setup, Shortage, switches};
use vramlab_device::{DeviceError, cuda};
use vramlab_model::{AlikeRanks, EventKind, Ranks, RunState};
use vramlab_train::{Answer, Config, Observer, SafePoint, TrainError};

/// The most runs for which flips are weighed: each takes a thread.
const MOST_WEIGHED: usize = 4;

/// One run for all ranks that do the same work.
struct LockstepRun {
    spec: LabSpec,
    hand: Hand,
    made: RankFacts,
    /// The lowest of these ranks.
    first: usize,
    /// The number of steps that it has finished.
    steps: u64,
    alike: Arc<AlikeRanks>,
}

struct Lockstep {
    runs: Vec<LockstepRun>,
    /// The events of simulated ranks.
    told: Rc<RefCell<EventInterleaver>>,
    /// The ranks that have a thread or a process each.
    threads: Option<RankThreads>,
    /// Those of them that are silent.
    silent: SilentRanks,
    gate: Rc<RefCell<Gate>>,
    /// Tasks that were requested in the middle of a step.
    chores: Vec<Chore>,
}

/// The trainer's observer of a run. Events are kept until all ranks have reached the step's end.
struct RunObserver {
    run: usize,
    told: Rc<RefCell<EventInterleaver>>,
    gate: Rc<RefCell<Gate>>,
}

impl Observer for RunObserver {
    fn event(&mut self, event: vramlab_model::Event) {
        self.told.borrow_mut().push(self.run, event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        self.told.borrow_mut().mark(self.run, point);
        if self.gate.borrow_mut().leaves() { Answer::Stop } else { Answer::Continue }
    }
}

/// Trains as `spec` says on all ranks, from building their models to the last step. If ranks that wait for each other
/// can't go on, the run begins again.
pub(super) fn run(
    spec: &LabSpec,
    parallel: Parallel,
    processes: Option<&mut RankProcesses>,
    gate: &Rc<RefCell<Gate>>,
) -> Result<(), RunFailure> {
    let mut lockstep = match Lockstep::start(spec, parallel, processes, gate) {
        Ok(lockstep) => lockstep,
        Err(_) if gate.borrow().ended() => return Ok(()),
        Err(error) => return Err(absence::broken(&error, gate)),
    };
    gate.borrow_mut().in_force(spec.setup());
    gate.borrow_mut().announce(RunState::Running);
    gate.borrow_mut().wait_if_asked();
    // After this many steps flips are weighed: what would they save compared with the current switches?
    let (mut due, mut proven) = (WEIGHED, None);
    while !gate.borrow().ended() {
        let (present, wanted) = (gate.borrow().present().clone(), gate.borrow().wanted().clone());
        if wanted != present {
            let setup = lockstep.flip(&present, &wanted).map_err(|error| absence::broken(&error, gate))?;
            gate.borrow_mut().in_force(setup);
            lockstep.describe();
            due = lockstep.finished() + WEIGHED;
        }
        if spec.steps.is_some_and(|steps| lockstep.finished() >= steps) {
            lockstep.rest(&[RunState::Finished]);
            continue;
        }
        let Some(outcomes) = lockstep.step() else { break };
        let Some((failed, error)) = lockstep.cause(&outcomes) else {
            proven = Some(gate.borrow().present().clone());
            if lockstep.finished() == due {
                lockstep.weigh();
            }
            continue;
        };
        if let TrainError::Device(lost @ DeviceError::Lost { .. }) = error {
            let why = format!("{}: {lost}", lockstep.runs[failed].alike.words());
            absence::tell_gone(failed, gate);
            return Err(RunFailure { why: why.into(), lost: true, kept: Vec::new() });
        }
        let setup = gate.borrow().present().clone();
        let before = proven.clone().map(|proven| back(error, &setup, proven)).filter(|before| *before != setup);
        if let Some(before) = before.filter(|_| *gate.borrow().wanted() == setup) {
            let changed = switches::differences(&setup, &before);
            let changed: Vec<_> =
                changed.map(|changed| format!("{} back to {}", changed.switch.label(), changed.to)).collect();
            let text = format!("the step did not go through; from the next one on {}", changed.join(", "));
            gate.borrow_mut().tell(EventKind::Note { text: text.into() });
            gate.borrow_mut().ask_for(before);
        }
        let states = lockstep.after_failure(parallel, failed, &outcomes);
        lockstep.rest(&states);
        if lockstep.threads.is_some() && !gate.borrow().ended() {
            let wanted = gate.borrow().wanted().clone();
            gate.borrow_mut().begin_next(spec.clone().under(&wanted), "started again, because a rank had failed");
        }
    }
    if gate.borrow().quits() {
        lockstep.threads.iter().for_each(RankThreads::leave);
    }
    Ok(())
}

impl Lockstep {
    /// Builds the models of all ranks that differ, and reports which ranks each stands for.
    fn start(
        spec: &LabSpec,
        parallel: Parallel,
        processes: Option<&mut RankProcesses>,
        gate: &Rc<RefCell<Gate>>,
    ) -> Result<Self, GroupError> {
        let mut lockstep = Self {
            runs: Vec::new(),
            told: Rc::default(),
            threads: None,
            silent: SilentRanks::default(),
            gate: Rc::clone(gate),
            chores: Vec::new(),
        };
        let firsts = match spec.device {
            DeviceChoice::Sim(_) => lockstep.make_here(spec, parallel)?,
            DeviceChoice::Cpu | DeviceChoice::Cuda(_) => lockstep.make_on_threads(spec, parallel, processes)?,
        };
        for run in &mut lockstep.runs {
            run.alike = Arc::new(alike(parallel, &firsts, run.first));
        }
        lockstep.play();
        for run in &lockstep.runs {
            let alike = EventKind::AlikeRanks(Arc::clone(&run.alike));
            gate.borrow_mut().tell_of(run.spec.index, alike);
        }
        let sensors = lockstep.runs[0].made.sensors.clone();
        gate.borrow_mut().watch(sensors);
        lockstep.ask_all(|_| RankRequest::NoteFirstValues);
        lockstep.describe();
        lockstep.told.borrow_mut().align();
        Ok(lockstep)
    }

    /// Builds the ranks of a simulated card, one of each kind. Returns for every rank the lowest one that does the same work.
    fn make_here(&mut self, spec: &LabSpec, parallel: Parallel) -> Result<Vec<usize>, GroupError> {
        let spec = &LabSpec { timetable: Some(Arc::default()), ..spec.clone() };
        self.add_here(spec, parallel, 0)?;
        let firsts = self.runs[0].made.firsts.clone();
        for rank in 1..parallel.ranks {
            if firsts.get(rank) == Some(&rank) {
                self.add_here(spec, parallel, rank)?;
            }
        }
        for run in &self.runs[1..] {
            self.gate.borrow_mut().begin_beside(&run.spec);
        }
        Ok(firsts)
    }

    fn add_here(&mut self, spec: &LabSpec, parallel: Parallel, rank: usize) -> Result<(), GroupError> {
        let run = self.told.borrow_mut().add();
        let index = u16::try_from(run).ok().filter(|_| run < Ranks::MOST).ok_or(GroupError::TooDifferent)?;
        let spec = of_rank(parallel, spec, rank, index)?;
        let observer = RunObserver { run, told: Rc::clone(&self.told), gate: Rc::clone(&self.gate) };
        let trainer = spec.build(Box::new(observer)).map_err(|error| GroupError::of(rank, error))?;
        let (made, hand) = (RankFacts::of(&trainer), Hand::Here(Box::new(trainer)));
        self.runs.push(LockstepRun { spec, hand, made, first: rank, steps: 0, alike: Arc::default() });
        Ok(())
    }

    /// Builds ranks on their own threads or in their processes; each is a run.
    fn make_on_threads(
        &mut self,
        spec: &LabSpec,
        parallel: Parallel,
        processes: Option<&mut RankProcesses>,
    ) -> Result<Vec<usize>, GroupError> {
        check_ranks(parallel, spec)?;
        if let DeviceChoice::Cuda(_) = spec.device {
            cuda::prepare_ranks().map_err(|why| GroupError::Refused(format!("ranks can't train on GPUs: {why}")))?;
        }
        let mut specs = Vec::with_capacity(parallel.ranks);
        for (rank, index) in (0..parallel.ranks).zip(0..) {
            specs.push(of_rank(parallel, spec, rank, index)?);
        }
        for spec in &specs[1..] {
            self.gate.borrow_mut().begin_beside(spec);
        }
        let threads = self.threads.insert(RankThreads::new());
        let hands = match processes {
            Some(processes) => threads.add_with(processes, &specs[0], parallel, &spec.setup())?,
            None => threads.add_all(&specs).map_err(|error| {
                GroupError::Refused(format!("the system gives no thread for another rank: {error}; take fewer"))
            })?,
        };
        self.play();
        let mut errors = Vec::new();
        for (rank, (spec, hand)) in specs.into_iter().zip(hands).enumerate() {
            match self.threads.as_mut().map(|threads| threads.take_made(rank)) {
                Some(Ok(made)) => {
                    self.runs.push(LockstepRun { spec, hand, made, first: rank, steps: 0, alike: Arc::default() });
                }
                Some(Err(error)) => errors.push((rank, error)),
                None => {}
            }
        }
        // A rank that only waited for another that has ended is not the cause.
        let first = self.threads.as_ref().and_then(RankThreads::failed);
        if let Some(rank) = first.filter(|first| errors.iter().all(|(rank, _)| rank != first))
            && let Some(threads) = &mut self.threads
        {
            errors.push((rank, BuildError::Train(threads.why_ended(rank))));
        }
        let cause = errors.iter().position(|(rank, _)| Some(*rank) == first).unwrap_or_default();
        match errors.into_iter().nth(cause) {
            Some((rank, error)) => Err(GroupError::of(rank, error)),
            None => Ok((0..parallel.ranks).collect()),
        }
    }

    /// Gives every rank an order, and reports events meanwhile. Returns each rank's reply, or `None` if it has ended.
    fn ask_all(&mut self, mut order: impl FnMut(&LockstepRun) -> RankRequest) -> Vec<Option<Reply>> {
        if let Some(threads) = &mut self.threads {
            threads.all_are_asked();
        }
        let at_once: Vec<Option<Reply>> = self
            .runs
            .iter_mut()
            .map(|run| {
                let order = order(run);
                run.hand.ask(order, &run.spec)
            })
            .collect();
        self.play();
        let threads = &mut self.threads;
        let mut later = |rank| threads.as_mut().and_then(|threads| threads.take_reply(rank));
        at_once.into_iter().enumerate().map(|(rank, reply)| reply.or_else(|| later(rank))).collect()
    }

    /// Why a rank has not answered.
    fn why_gone(&self, rank: usize) -> TrainError {
        let gone = || TrainError::Workload(PANICKED.to_owned());
        self.threads.as_ref().map_or_else(gone, |threads| threads.why_gone(rank))
    }

    /// Reports for every run what it trains, and on which device.
    fn describe(&mut self) {
        let abouts = self.ask_all(|_| RankRequest::Describe);
        for (run, about) in self.runs.iter().zip(abouts) {
            if let Some(Reply::About(about)) = about {
                self.gate.borrow_mut().tell_of(run.spec.index, EventKind::About(Arc::from(about)));
            }
        }
    }

    /// Puts the wanted values in force on all ranks, or on none. Returns what is then in force.
    fn flip(&mut self, present: &Setup, wanted: &Setup) -> Result<Setup, GroupError> {
        let had = self.flip_each(&vec![present.clone(); self.runs.len()], wanted)?;
        let mut agreed = wanted.clone();
        if had.iter().any(|had| had.config != wanted.config) {
            agreed.config = present.config;
        }
        if had.iter().any(|had| had.alloc_conf != wanted.alloc_conf) {
            agreed.alloc_conf = Arc::clone(&present.alloc_conf);
        }
        if had.iter().any(|had| *had != agreed) {
            self.flip_each(&had, &agreed)?;
        }
        // A rank's description changes with the batch of all.
        for run in &mut self.runs {
            let samples = run.spec.member.map_or(Ok(agreed.config.batch), |member| member.samples(agreed.config.batch));
            run.spec.config.batch = samples.unwrap_or(run.spec.config.batch);
        }
        Ok(agreed)
    }

    /// Makes every rank put the wanted values in force, unless they already are. Returns what each then has.
    fn flip_each(&mut self, present: &[Setup], wanted: &Setup) -> Result<Vec<Setup>, GroupError> {
        let had = self.ask_all(|run| {
            let place = usize::from(run.spec.index.0);
            RankRequest::Flip {
                present: Box::new(present.get(place).unwrap_or(wanted).clone()),
                wanted: Box::new(wanted.clone()),
            }
        });
        let each = self.runs.iter().zip(had).enumerate().map(|(rank, (run, had))| {
            let error = match had {
                Some(Reply::InForce(Ok(setup))) => return Ok(setup),
                Some(Reply::InForce(Err(fault))) => fault.into(),
                _ => self.why_gone(rank),
            };
            Err(GroupError::of(run.first, BuildError::Train(error)))
        });
        each.collect()
    }

    /// The number of steps that all ranks have finished.
    fn finished(&self) -> u64 {
        self.runs.iter().map(|run| run.steps).min().unwrap_or_default()
    }

    /// Trains one step on every rank and reports the events. Returns for each run the error of its step, if it failed.
    /// A simulated rank whose step succeeded while another failed also waits for that one. `None` if the lab ends.
    fn step(&mut self) -> Option<Vec<Option<TrainError>>> {
        let finished = self.finished();
        if let Some(threads) = &mut self.threads {
            threads.begin_step();
        }
        let stepped = self.ask_all(|run| if run.steps > finished { RankRequest::Rest } else { RankRequest::Step });
        if self.gate.borrow().ended() {
            return None;
        }
        let mut outcomes = Vec::with_capacity(self.runs.len());
        for (rank, stepped) in stepped.into_iter().enumerate() {
            outcomes.push(match stepped {
                Some(Reply::Stepped(Ok(()))) => {
                    self.runs[rank].steps = finished + 1;
                    None
                }
                Some(Reply::Stepped(Err(fault))) => Some(fault.into()),
                _ => Some(self.why_gone(rank)),
            });
        }
        // A rank that has ended its step may already be gone before the others have: they only waited for it.
        let first = self.threads.as_ref().and_then(RankThreads::failed);
        if let Some((rank, threads)) = first.filter(|rank| outcomes[*rank].is_none()).zip(self.threads.as_mut()) {
            outcomes[rank] = Some(threads.why_ended(rank));
        }
        for chore in std::mem::take(&mut self.chores) {
            self.do_chore(chore);
        }
        self.told.borrow_mut().align();
        Some(outcomes)
    }

    /// The run whose failure caused all others, and its error.
    fn cause<'a>(&self, outcomes: &'a [Option<TrainError>]) -> Option<(usize, &'a TrainError)> {
        let first = self.threads.as_ref().and_then(RankThreads::failed);
        let of = |run: usize| Some((run, outcomes.get(run)?.as_ref()?));
        first.and_then(of).or_else(|| (0..outcomes.len()).find_map(of))
    }

    /// Reports the events at the pace of the lab's clock, and pauses on request, until all ranks have done what they were asked.
    fn play(&mut self) {
        if self.threads.is_some() {
            self.listen();
            return;
        }
        loop {
            let Some(happened) = self.told.borrow_mut().next() else { return };
            if !self.tell(happened) {
                return;
            }
        }
    }

    /// Reports events of ranks on threads until all have answered.
    fn listen(&mut self) {
        while self.threads.as_ref().is_some_and(RankThreads::busy) {
            let heard = self.threads.as_mut().is_some_and(RankThreads::hear);
            if !heard {
                self.gate.borrow_mut().flush();
            }
            while let Some((rank, silence)) = self.threads.as_mut().and_then(RankThreads::take_silent) {
                self.silent.tell(rank, silence, &mut self.gate.borrow_mut());
            }
            while let Some(happened) = self.threads.as_mut().and_then(RankThreads::next) {
                if !self.tell(happened) {
                    break;
                }
                self.note_pause();
            }
            if self.gate.borrow_mut().leaves() {
                self.threads.iter_mut().for_each(RankThreads::stop);
                return;
            }
        }
    }

    /// Tells ranks on threads how long a person has paused them.
    fn note_pause(&mut self) {
        let held = self.gate.borrow_mut().take_held();
        self.threads.iter_mut().for_each(|threads| threads.held(held));
    }

    /// Reports one event, and obeys at the safe point after it. Returns false if the lab ends.
    fn tell(&mut self, happened: SafePointEvent) -> bool {
        let mut gate = self.gate.borrow_mut();
        gate.event(happened.event);
        let Some(point) = happened.point else { return true };
        loop {
            let chore = match gate.safe_point(point) {
                Answer::Continue => return true,
                Answer::Stop => return false,
                Answer::EmptyCache => Chore::EmptyCache,
                Answer::ResetPeaks => Chore::ResetPeaks,
            };
            if !self.chores.contains(&chore) {
                self.chores.push(chore);
                gate.tell(EventKind::Notice { text: "all ranks do that when they have ended the step".into() });
                gate.flush();
            }
        }
    }

    fn do_chore(&mut self, chore: Chore) {
        self.ask_all(|_| match chore {
            Chore::EmptyCache => RankRequest::EmptyCache,
            Chore::ResetPeaks => RankRequest::ResetPeaks,
        });
    }

    /// Tries, on other threads, what flips would do to the peak of each rank, unless there are many.
    fn weigh(&self) {
        let mut gate = self.gate.borrow_mut();
        let setup = gate.present().clone();
        for run in self.runs.iter().filter(|_| self.runs.len() <= MOST_WEIGHED) {
            gate.weigh(shortage(run, &setup), run.spec.index);
        }
    }

    /// Waits between steps, with the state of each run. The last run's state also applies to all further ones.
    fn rest(&mut self, states: &[RunState]) {
        loop {
            self.gate.borrow_mut().wait_each(states);
            self.note_pause();
            let Some(chore) = self.gate.borrow_mut().take_chore() else { return };
            self.do_chore(chore);
        }
    }

    /// The state of each rank now that one has failed. Remedies for it are being tried.
    fn after_failure(&self, parallel: Parallel, failed: usize, outcomes: &[Option<TrainError>]) -> Vec<RunState> {
        let ranks = self.runs[failed].alike.words();
        let what = match &outcomes[failed] {
            Some(TrainError::OutOfMemory { .. }) => "ran out of memory".to_owned(),
            Some(error) => format!("failed ({error})"),
            None => String::new(),
        };
        let mut gate = self.gate.borrow_mut();
        let setup = gate.present().clone();
        let each = self.runs.iter().zip(outcomes).map(|(run, outcome)| match outcome {
            Some(TrainError::OutOfMemory { .. }) => {
                gate.try_remedies(shortage(run, &setup), run.spec.index, move |tried| of_all_ranks(tried, parallel));
                RunState::OutOfMemory
            }
            Some(TrainError::RankEnded(_)) => {
                let text = format!("{ranks} {what}; this rank can't end the step without it and has stopped").into();
                gate.tell_of(run.spec.index, EventKind::Notice { text });
                RunState::Paused
            }
            Some(error) => RunState::StepFailed(error.to_string().into()),
            None => {
                let text = format!("{ranks} {what}; this rank has ended the step and waits").into();
                gate.tell_of(run.spec.index, EventKind::Notice { text });
                RunState::Paused
            }
        });
        let states = each.collect();
        if self.threads.is_some() {
            let text =
                "ranks that wait for each other can't go on from here: the run begins again from the same weights";
            gate.tell(EventKind::Note { text: text.into() });
        }
        states
    }
}

/// A rank's current run, for trials of other switches.
fn shortage(run: &LockstepRun, setup: &Setup) -> Shortage {
    let config = Config { batch: run.spec.config.batch, ..setup.config };
    let (memory, libraries) = (run.made.memory, run.made.libraries);
    Shortage { spec: run.spec.clone(), setup: Setup { config, ..setup.clone() }, memory, libraries, steps: run.steps }
}
