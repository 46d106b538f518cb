//! Trains simulated ranks in lockstep: all begin a step together, under the same switches. Each rank's step is computed by itself,
//! for none waits for what another holds; what happened is then told by time, and there the gate holds all of them at once.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::broken::{Broken, back};
use super::force::{self, note_first_values};
use super::gate::{Chore, Gate, WEIGHED};
use super::interleaved::Interleaved;
use super::process_group::{GroupError, alike, of_rank};
use super::{LabSpec, Parallel, Setup, Shortage, switches};
use crate::device::DeviceError;
use crate::model::{AlikeRanks, EventKind, Ranks, Remedied, Remedy, RunState};
use crate::train::{Answer, Config, Observer, SafePoint, TrainError, Trainer};

/// Flips are weighed for so many runs at most: each takes a thread.
const MOST_WEIGHED: usize = 4;

/// One run for all ranks that do the same.
struct Run {
    spec: LabSpec,
    trainer: Trainer,
    /// The lowest of them.
    first: usize,
    /// Steps that it has finished.
    steps: u64,
    alike: Arc<AlikeRanks>,
}

struct Lockstep {
    runs: Vec<Run>,
    told: Rc<RefCell<Interleaved>>,
    gate: Rc<RefCell<Gate>>,
    /// What was asked for in the midst of a step.
    chores: Vec<Chore>,
}

/// The trainer's end of a run: what happens is kept until all ranks have come to the step's end.
struct OfRun {
    run: usize,
    told: Rc<RefCell<Interleaved>>,
    gate: Rc<RefCell<Gate>>,
}

impl Observer for OfRun {
    fn event(&mut self, event: crate::model::Event) {
        self.told.borrow_mut().push(self.run, event);
    }

    fn safe_point(&mut self, point: SafePoint) -> Answer {
        self.told.borrow_mut().mark(self.run, point);
        if self.gate.borrow_mut().leaves() { Answer::Stop } else { Answer::Continue }
    }
}

/// Trains as `spec` says on all ranks, from making their models to the last step.
pub(super) fn run(spec: &LabSpec, parallel: Parallel, gate: &Rc<RefCell<Gate>>) -> Result<(), Broken> {
    let broken = |why: String| Broken { why: why.into(), lost: false, kept: Vec::new() };
    let mut lockstep = Lockstep::start(spec, parallel, gate).map_err(|error| broken(error.to_string()))?;
    gate.borrow_mut().in_force(spec.setup());
    gate.borrow_mut().announce(RunState::Running);
    gate.borrow_mut().wait_if_asked();
    // Steps after which flips are weighed: what they would save beside what is in force now.
    let (mut due, mut proven) = (WEIGHED, None);
    while !gate.borrow().ended() {
        let (present, wanted) = (gate.borrow().present().clone(), gate.borrow().wanted().clone());
        if wanted != present {
            let setup = lockstep.flip(&present, &wanted).map_err(|error| broken(error.to_string()))?;
            lockstep.play();
            gate.borrow_mut().in_force(setup);
            lockstep.describe();
            due = lockstep.finished() + WEIGHED;
        }
        if spec.steps.is_some_and(|steps| lockstep.finished() >= steps) {
            lockstep.rest(&[RunState::Finished]);
            continue;
        }
        let Some(outcomes) = lockstep.step() else { break };
        let Some((failed, error)) =
            outcomes.iter().enumerate().find_map(|(run, outcome)| Some((run, outcome.as_ref()?)))
        else {
            proven = Some(gate.borrow().present().clone());
            if lockstep.finished() == due {
                lockstep.weigh();
            }
            continue;
        };
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
    }
    Ok(())
}

impl Lockstep {
    /// Makes the models of all ranks that differ; says what each stands for.
    fn start(spec: &LabSpec, parallel: Parallel, gate: &Rc<RefCell<Gate>>) -> Result<Self, GroupError> {
        let told = Rc::default();
        let mut lockstep = Self { runs: Vec::new(), told, gate: Rc::clone(gate), chores: Vec::new() };
        lockstep.add(spec, parallel, 0)?;
        let firsts = lockstep.runs[0].trainer.alike_ranks();
        for rank in 1..parallel.ranks {
            if firsts.get(rank) == Some(&rank) {
                lockstep.add(spec, parallel, rank)?;
            }
        }
        for run in &mut lockstep.runs {
            run.alike = Arc::new(alike(parallel, &firsts, run.first));
        }
        {
            let mut gate = gate.borrow_mut();
            for run in &lockstep.runs[1..] {
                gate.begin_beside(run.spec.index, run.spec.about(None));
            }
        }
        lockstep.play();
        for run in &lockstep.runs {
            let alike = EventKind::AlikeRanks(Arc::clone(&run.alike));
            gate.borrow_mut().tell_of(run.spec.index, alike);
            note_first_values(&run.trainer, &run.spec);
        }
        lockstep.describe();
        lockstep.play();
        lockstep.told.borrow_mut().align();
        Ok(lockstep)
    }

    fn add(&mut self, spec: &LabSpec, parallel: Parallel, rank: usize) -> Result<(), GroupError> {
        let run = self.told.borrow_mut().add();
        let index = u16::try_from(run).ok().filter(|_| run < Ranks::MOST).ok_or(GroupError::TooDifferent)?;
        let spec = of_rank(parallel, spec, rank, index)?;
        let observer = OfRun { run, told: Rc::clone(&self.told), gate: Rc::clone(&self.gate) };
        let trainer = spec.build(Box::new(observer)).map_err(|error| GroupError::of(rank, error))?;
        self.runs.push(Run { spec, trainer, first: rank, steps: 0, alike: Arc::default() });
        Ok(())
    }

    /// Says of every run what it trains, and where.
    fn describe(&self) {
        for run in &self.runs {
            let about = EventKind::About(Arc::new(run.spec.about(Some(&run.trainer))));
            self.gate.borrow_mut().tell_of(run.spec.index, about);
        }
    }

    /// Puts what is wanted in force on all ranks, or on none; returns what then is.
    fn flip(&mut self, present: &Setup, wanted: &Setup) -> Result<Setup, DeviceError> {
        let mut had = Vec::with_capacity(self.runs.len());
        for run in &mut self.runs {
            had.push(force::flip_with(&mut run.trainer, present, wanted, configure_rank)?);
        }
        let mut agreed = wanted.clone();
        if had.iter().any(|had| had.config != wanted.config) {
            agreed.config = present.config;
        }
        if had.iter().any(|had| had.alloc_conf != wanted.alloc_conf) {
            agreed.alloc_conf = Arc::clone(&present.alloc_conf);
        }
        for (run, had) in self.runs.iter_mut().zip(&had).filter(|(_, had)| **had != agreed) {
            force::flip_with(&mut run.trainer, had, &agreed, configure_rank)?;
        }
        // What a rank is made of changes with the batch of all.
        for run in &mut self.runs {
            let samples = run.spec.member.map_or(Ok(agreed.config.batch), |member| member.samples(agreed.config.batch));
            run.spec.config.batch = samples.unwrap_or(run.spec.config.batch);
        }
        Ok(agreed)
    }

    /// Steps that all ranks have finished.
    fn finished(&self) -> u64 {
        self.runs.iter().map(|run| run.steps).min().unwrap_or_default()
    }

    /// Trains one step on every rank and tells what happened; by run, what it ended with where it failed. A rank that went
    /// through a step in which another failed waits until that one has, too. `None`: the lab ends.
    fn step(&mut self) -> Option<Vec<Option<TrainError>>> {
        let finished = self.finished();
        let mut outcomes = Vec::with_capacity(self.runs.len());
        for run in &mut self.runs {
            if run.steps > finished {
                outcomes.push(None);
                continue;
            }
            match run.trainer.step() {
                Ok(_) => {
                    run.steps += 1;
                    outcomes.push(None);
                }
                Err(TrainError::Stopped) => return None,
                Err(error) => outcomes.push(Some(error)),
            }
        }
        self.play();
        for chore in std::mem::take(&mut self.chores) {
            self.do_chore(chore);
        }
        self.told.borrow_mut().align();
        Some(outcomes)
    }

    /// Tells what happened, as fast as the lab's clock goes, and stops where somebody asks to.
    fn play(&mut self) {
        loop {
            let Some(happened) = self.told.borrow_mut().next() else { return };
            let mut gate = self.gate.borrow_mut();
            gate.event(happened.event);
            let Some(point) = happened.point else { continue };
            loop {
                let chore = match gate.safe_point(point) {
                    Answer::Continue => break,
                    Answer::Stop => return,
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
    }

    fn do_chore(&mut self, chore: Chore) {
        for run in &self.runs {
            match chore {
                Chore::EmptyCache => run.trainer.empty_cache(),
                Chore::ResetPeaks => run.trainer.reset_peak_memory_stats(),
            }
        }
        self.play();
    }

    /// Has somebody try what flips would do to the peak of each rank, unless there are many.
    fn weigh(&self) {
        let mut gate = self.gate.borrow_mut();
        let setup = gate.present().clone();
        for run in self.runs.iter().filter(|_| self.runs.len() <= MOST_WEIGHED) {
            gate.weigh(shortage(run, &setup), run.spec.index);
        }
    }

    /// Waits between steps, with the state of each run; the last one's is that of those behind it.
    fn rest(&mut self, states: &[RunState]) {
        loop {
            self.gate.borrow_mut().wait_each(states);
            let Some(chore) = self.gate.borrow_mut().take_chore() else { return };
            self.do_chore(chore);
        }
    }

    /// What each rank does now that one has failed; what would have helped it is being tried.
    fn after_failure(&self, parallel: Parallel, failed: usize, outcomes: &[Option<TrainError>]) -> Vec<RunState> {
        let ranks = &self.runs[failed].alike;
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
            Some(error) => RunState::StepFailed(error.to_string().into()),
            None => {
                let text = format!("{} {what}; this rank has ended the step and waits", ranks.words()).into();
                gate.tell_of(run.spec.index, EventKind::Notice { text });
                RunState::Paused
            }
        });
        each.collect()
    }
}

/// A rank's run as it is, for whoever tries other switches on it.
fn shortage(run: &Run, setup: &Setup) -> Shortage {
    let (trainer, steps) = (&run.trainer, run.steps);
    let config = Config { batch: run.spec.config.batch, ..setup.config };
    let (memory, libraries) = (trainer.device_info().memory, trainer.libraries());
    Shortage { spec: run.spec.clone(), setup: Setup { config, ..setup.clone() }, memory, libraries, steps }
}

/// Configures a rank: the batch is that of all ranks.
fn configure_rank(trainer: &mut Trainer, config: Config) -> Result<(), TrainError> {
    let Some(member) = trainer.member() else { return trainer.configure(config) };
    let batch = member.samples(config.batch).map_err(|uneven| TrainError::Workload(uneven.to_string()))?;
    trainer.configure(Config { batch, ..config })
}

/// Remedies that were tried on one rank, for all of them.
fn of_all_ranks(tried: Vec<Remedied>, parallel: Parallel) -> Vec<Remedied> {
    let ranks = if parallel.parallelism.splits_batch() { parallel.ranks } else { 1 };
    let of_all = |tried: Remedied| match tried.remedy {
        Remedy::SmallerBatch { batch } => {
            Remedied { remedy: Remedy::SmallerBatch { batch: batch * ranks as u64 }, ..tried }
        }
        _ => tried,
    };
    tried.into_iter().map(of_all).collect()
}
