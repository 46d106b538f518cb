//! A trainer: its construction, configuration and properties.

use std::rc::Rc;
use std::sync::Arc;

use crate::communicator::Communicator;
use crate::config::{Config, DataPath, OptimizerKind};
use crate::context::Context;
use crate::data::{Feed, FeedKind, HostBatch, Turns};
use crate::error::{OpResult, TrainError};
use crate::exchange::Seat;
use crate::library::Libraries;
use crate::member::Member;
use crate::memory::Memory;
use crate::observer::Observer;
use crate::optim;
use crate::parallel::{self, PipelineStage, Shares};
use crate::scaler::Scaler;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::timetable::Timetable;
use crate::workload::{Batch, Layouts, Outcome, Task, Workload};
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_allocator::{Settings, SettingsError, Statistics};
use vramlab_device::{DType, Device, DeviceError, DeviceInfo, Sensors};
use vramlab_model::{Category, EventKind, Parallelism};

use super::learner::{Learner, learners};
use super::timing::Timing;

/// What a supervised loop does with the loss besides running backward from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopStyle {
    /// The loss is divided by the number of micro-batches and summed on the device: a loop that can accumulate.
    #[default]
    Accumulating,
    /// Backward runs from the mean loss itself, which is then dropped: the shortest loop that trains. Micro-batches
    /// are not weighted against each other.
    Plain,
    /// The shortest loop of a program that logs: output and loss are dropped after backward, and the loss's value stays on the
    /// device until the next one is computed. Several micro-batches are weighted and summed as in [`LoopStyle::Accumulating`].
    Logging,
}

/// How a trainer is made.
#[derive(Clone, Debug, Default)]
pub struct TrainerOptions {
    /// Which of several devices it trains on: its rank, which all of its events carry.
    pub rank: DeviceIndex,
    /// Its place among several ranks, and how they share the work.
    pub member: Option<Member>,
    /// Where it meets the other ranks, on a device that holds bytes.
    pub seat: Option<Arc<Seat>>,
    /// When the stages of a simulated pipeline run, shared by all its ranks.
    pub timetable: Option<Arc<Timetable>>,
    /// What the loop does with the loss.
    pub style: LoopStyle,
    /// Which library workspaces the device has.
    pub workspaces: Libraries,
    /// The allocator's settings.
    pub settings: Settings,
    /// The most that may be reserved.
    pub limit: Option<Bytes>,
    /// Bytes of a block that is allocated before anything else and freed at once: its segment stays, and later blocks
    /// are cut from it.
    pub preallocate: Option<Bytes>,
    /// Refuse kernels and copies that reach beyond live blocks; debug builds always do.
    pub watched: bool,
}

/// Trains a workload on a device, step by step.
pub struct Trainer {
    // Fields are dropped in this order: tensors of the steps before the allocator that holds their memory.
    pub(super) total: Option<Tensor>,
    pub(super) stage: Option<PipelineStage>,
    pub(super) batches: Vec<Batch>,
    /// Batches of [`DataPath::Host`].
    pub(super) hosted: Vec<HostBatch>,
    pub(super) feed: Option<Feed>,
    pub(super) optimizers: Vec<Learner>,
    pub(super) scaler: Scaler,
    pub(super) task: Task,
    pub(super) cx: Context,
    pub(super) workload: Box<dyn Workload>,
    pub(super) style: LoopStyle,
    libraries: Libraries,
    pub(super) member: Option<Member>,
    pub(super) config: Config,
    pub(super) outcome: Outcome,
    pub(super) steps: u64,
    pub(super) timing: Timing,
    /// There are no batches for the configuration: they could not be made, or the loader thread has ended.
    pub(super) batchless: bool,
}

impl Trainer {
    /// Makes parameters and resident batches; then releases cached memory and resets the peaks, as the reference loop
    /// does, except for [`DataPath::Fresh`].
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] when the model does not fit, [`TrainError::TooFewSamples`], [`TrainError::Device`].
    pub fn new(
        device: Box<dyn Device>,
        workload: Box<dyn Workload>,
        config: Config,
        options: TrainerOptions,
        observer: Box<dyn Observer>,
    ) -> Result<Self, TrainError> {
        let shared = options.member.and_then(|member| parallel::refusal(member, &config));
        let parallelism = options.member.map(|member| member.parallelism);
        if let Some(refused) = shared.map(TrainError::Workload).or_else(|| optim::refusal(&config, parallelism)) {
            return Err(refused);
        }
        let watched = options.watched || cfg!(debug_assertions);
        let memory = Memory::of_rank(options.rank, device, options.settings, observer, watched);
        if options.limit.is_some() {
            memory.set_limit(options.limit);
        }
        if let Some(bytes) = options.preallocate {
            take_and_give_back(&memory, bytes)?;
        }
        let mut cx = Context::new(memory, options.workspaces);
        cx.seat = options.seat;
        cx.timetable = options.timetable;
        cx.member = options.member;
        if let Some(Member { parallelism: Parallelism::Tensor, world }) = options.member {
            cx.tensor_ranks = Some(Communicator::new(cx.memory(), world, cx.seat.as_ref())?);
        }
        let task = workload.build(&mut cx)?;
        if let Some(refused) = parallel::refusal_in_parts(&cx, &config) {
            return Err(TrainError::Workload(refused));
        }
        let config = Config { form: parallel::form(&cx, config.form), ..config };
        let mut trainer = Self {
            libraries: options.workspaces,
            total: None,
            stage: None,
            batches: Vec::new(),
            hosted: Vec::new(),
            feed: None,
            optimizers: Vec::new(),
            member: options.member,
            scaler: Scaler::default(),
            task,
            cx,
            workload,
            style: options.style,
            config,
            outcome: Outcome::default(),
            steps: 0,
            timing: Timing::default(),
            batchless: true,
        };
        trainer.make_batches()?;
        if let Some(member) = trainer.member {
            let Task::Supervised(model) = &trainer.task else {
                let text =
                    format!("{} shares the training of one model; leave --parallel out here", member.parallelism);
                return Err(TrainError::Workload(text));
            };
            let model = Rc::clone(model);
            trainer.stage = parallel::wrap(&mut trainer.cx, member, &trainer.config, &*model)?;
        }
        trainer.cx.place_parameters(&trainer.config)?;
        trainer.make_optimizers();
        // Programs that make their batches as they go start with the cache that building the model has left.
        if config.data != DataPath::Fresh {
            trainer.memory().release_cached();
            trainer.memory().reset_peaks();
        }
        Ok(trainer)
    }

    /// Allocator, device and observer.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        self.cx.memory()
    }

    /// Drops everything but the device, which another trainer may use; `None` if its memory is still in use.
    #[must_use]
    pub fn into_device(self) -> Option<Box<dyn Device>> {
        let memory = self.memory().clone();
        drop(self);
        memory.into_device()
    }

    /// The device.
    #[must_use]
    pub fn device_info(&self) -> DeviceInfo {
        self.memory().device_info()
    }

    /// What PyTorch's libraries see of the device.
    #[must_use]
    pub const fn libraries(&self) -> Libraries {
        self.libraries
    }

    /// Where readings of the device's sensors arrive, if it has any.
    #[must_use]
    pub fn sensors(&self) -> Option<Sensors> {
        self.memory().with_device(|device| device.sensors())
    }

    /// Checks that the device works at all: a lost device refuses memory too.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn check_device(&self) -> Result<(), DeviceError> {
        self.memory().with_device(|device| device.check())
    }

    /// The workload.
    #[must_use]
    pub fn workload(&self) -> &dyn Workload {
        &*self.workload
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The gradient scaler's current factor on losses, if there is one.
    #[must_use]
    pub fn loss_scale(&self) -> Option<f64> {
        self.scaler.current_scale()
    }

    /// The attention kernel that the last pass ran with, as a value of the switch; `None` without attention.
    #[must_use]
    pub const fn attention_ran(&self) -> Option<&'static str> {
        self.cx.attention_ran()
    }

    /// Its place among several ranks, if it is one of them.
    #[must_use]
    pub const fn member(&self) -> Option<Member> {
        self.member
    }

    /// For every rank of its world, the lowest rank whose allocator gets the same requests.
    #[must_use]
    pub fn alike_ranks(&self) -> Vec<usize> {
        // If ranks take different batches, batches of several lengths differ between them.
        let (all, own) = (self.workload.batch_layouts(1), Turns::of_member(self.member).are_shared());
        if let (Some(member), true, Layouts::Each(_)) = (self.member, own, all) {
            return (0..member.world.size()).collect();
        }
        match (self.member, &self.task) {
            (Some(member), Task::Supervised(model)) => {
                let kinds = [OptimizerKind::AdamW, OptimizerKind::Muon].map(|kind| optim::sets(kind, &self.cx.leaves));
                parallel::alike(&self.cx, member, &**model, &kinds)
            }
            _ => vec![0],
        }
    }

    /// Steps finished.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Number of values of all parameters.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.cx.leaves.iter().map(|leaf| leaf.data.numel()).sum()
    }

    /// Of these, how many are trained.
    #[must_use]
    pub fn trained_count(&self) -> usize {
        self.cx.leaves.iter().filter(|leaf| !leaf.frozen).map(|leaf| leaf.data.numel()).sum()
    }

    /// Names and tensors of the parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.cx.leaves.iter().map(|leaf| (&*leaf.name, &leaf.data))
    }

    /// The outcome of the last step.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The allocator's statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.memory().statistics()
    }

    /// Gives free segments back to the driver.
    pub fn empty_cache(&self) {
        self.memory().empty_cache();
    }

    /// `torch.cuda.reset_peak_memory_stats()`.
    pub fn reset_peak_memory_stats(&self) {
        self.memory().reset_peak_memory_stats();
    }

    /// Lets at most `limit` bytes be reserved; `None`: all that the device has.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        self.memory().set_limit(limit);
    }

    /// Applies an allocator configuration string.
    ///
    /// # Errors
    /// What PyTorch would refuse.
    pub fn apply_alloc_conf(&self, text: &str) -> Result<(), SettingsError> {
        self.memory().apply_settings(text)
    }

    /// Replaces the configuration before the next step.
    ///
    /// A changed optimizer drops the old state at once; the new state is created in the next step. A changed batch or
    /// accumulation makes new resident batches.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] when new batches do not fit, [`TrainError::TooFewSamples`]; the old configuration then
    /// stays in force.
    pub fn configure(&mut self, config: Config) -> Result<(), TrainError> {
        let shared = self.member.and_then(|member| {
            let refused = parallel::refusal(member, &config);
            let refused = refused.or_else(|| parallel::refusal_in_parts(&self.cx, &config));
            refused.or_else(|| parallel::fixed(member, &self.config, &config))
        });
        let parallelism = self.member.map(|member| member.parallelism);
        if let Some(refused) = shared.map(TrainError::Workload).or_else(|| optim::refusal(&config, parallelism)) {
            return Err(refused);
        }
        let config = Config { form: parallel::form(&self.cx, config.form), ..config };
        let old = std::mem::replace(&mut self.config, config);
        let from_host = matches!(config.data, DataPath::Streamed | DataPath::Host);
        let new_path = from_host && old.pinned != config.pinned;
        let routine = matches!(self.task, Task::Routine(_));
        let new_mask = old.attention_mask != config.attention_mask && self.workload.takes_attention_mask();
        let new_path = new_path || new_mask || old.data != config.data;
        let new_batches = old.micro_batch() != config.micro_batch() || new_path || routine;
        if new_batches && let Err(error) = self.make_batches() {
            self.config = old;
            self.make_batches()?;
            return Err(error);
        }
        if let Err(interrupt) = self.cx.place_parameters(&config) {
            self.config = old;
            self.cx.place_parameters(&old)?;
            if new_batches {
                self.make_batches()?;
            }
            return Err(interrupt.into());
        }
        if (old.optimizer, old.form) != (config.optimizer, config.form) {
            self.make_optimizers();
        }
        self.cx.retained.keep(config.retain);
        if old.amp.scales() && !config.amp.scales() {
            self.scaler = Scaler::default();
        }
        Ok(())
    }

    /// Optimizers without state.
    fn make_optimizers(&mut self) {
        self.optimizers = learners(&self.task, self.cx.leaves.len(), &self.config);
        if let (Some(member), [only]) = (self.member, &mut self.optimizers[..]) {
            let sizes: Vec<usize> = self.cx.leaves.iter().map(|leaf| leaf.data.numel()).collect();
            let Shares { own, owners } =
                Shares::of(member, &sizes, &optim::sets(self.config.optimizer, &self.cx.leaves));
            if let Some(own) = self.stage.as_ref().map(|stage| stage.parameters().to_vec()).or(own) {
                only.updated = own;
            }
            if let (Some(hooks), Some(owners)) = (&mut self.cx.hooks, owners) {
                hooks.updated_by(owners);
            }
        }
    }

    pub(super) fn make_batches(&mut self) -> Result<(), TrainError> {
        self.batchless = true;
        self.take_batches()?;
        self.batchless = false;
        Ok(())
    }

    fn take_batches(&mut self) -> Result<(), TrainError> {
        if let Task::Routine(routine) = &mut self.task {
            routine.reset();
            return Ok(routine.prepare(&mut self.cx, &self.config)?);
        }
        let samples = self.micro_batch_size();
        let needed = self.workload.least_micro_batch();
        if samples < needed {
            return Err(TrainError::TooFewSamples { given: samples, needed });
        }
        self.hosted.clear();
        let masked = self.config.attention_mask && self.workload.takes_attention_mask();
        self.cx.pass_attention_mask(masked);
        match self.config.data {
            DataPath::Host => {
                self.feed = None;
                self.batches.clear();
                let batches = self.workload.resident_batches(&mut self.cx, samples)?;
                let (memory, pinned) = (self.cx.memory(), self.config.pinned);
                self.hosted =
                    batches.iter().map(|batch| HostBatch::take(memory, batch, pinned)).collect::<OpResult<_>>()?;
            }
            DataPath::Resident => {
                self.feed = None;
                self.batches.clear();
                self.batches = self.workload.resident_batches(&mut self.cx, samples)?;
            }
            DataPath::Fresh => {
                self.feed = None;
                self.batches.clear();
            }
            DataPath::Streamed => {
                self.batches.clear();
                let layouts = self.workload.batch_layouts(samples);
                let (memory, kind) = (self.cx.memory().clone(), FeedKind { pinned: self.config.pinned, masked });
                match &mut self.feed {
                    Some(feed) => feed.configure(&memory, layouts, kind)?,
                    None => {
                        let turns = Turns::of_member(self.member);
                        self.feed = Some(Feed::start(&memory, self.workload.batch_source()?, layouts, (kind, turns))?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Micro-batches of a step: two models that are trained against each other take the whole batch, and a pipeline cuts the
    /// batch itself.
    pub(super) fn accumulation(&self) -> usize {
        let pipeline = self.member.is_some_and(|member| matches!(member.parallelism, Parallelism::Pipeline(_)));
        if pipeline || matches!(self.task, Task::Adversarial(_)) { 1 } else { self.config.accumulation.max(1) }
    }

    /// Samples of one micro-batch.
    pub(super) fn micro_batch_size(&self) -> usize {
        (self.config.batch / self.accumulation()).max(1)
    }

    /// Marks in the event stream that a switch is about to change.
    pub fn note_switch(&self, switch: &str, from: &str, to: &str) {
        let memory = self.memory();
        let (switch, from, to) = (memory.name(switch), memory.name(from), memory.name(to));
        memory.emit(EventKind::SwitchFlipped { switch, from, to });
    }
}

/// Allocates one block of `bytes` and frees it: the allocator keeps its segment for all smaller requests.
fn take_and_give_back(memory: &Memory, bytes: Bytes) -> OpResult<()> {
    let shape = Shape::new(&[usize::try_from(bytes.get()).unwrap_or(usize::MAX)]);
    memory.tensor(shape, DType::U8, Category::Other, "preallocated pool").map(drop)
}
