//! The training loop: PyTorch's reference loop, with the switches of a [`Config`].
//!
//! What a step does is the workload's [`Task`]: `supervised.rs` and `adversarial.rs` have the two that train.

mod adversarial;
mod supervised;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::allocator::{Settings, SettingsError, Statistics};
use crate::device::{Device, DeviceError, DeviceInfo, HostWork, Kernel, Sensors};
use crate::model::{EventKind, Micros, Phase, StepReport};
use crate::units::Bytes;

use super::config::{Config, DataPath, ZeroGrad};
use super::context::Context;
use super::data::{Feed, HostBatch};
use super::error::{Interrupt, MemoryKind, OpResult, TrainError};
use super::library::Libraries;
use super::memory::{Memory, Moment, micros};
use super::observer::{Observer, SafePoint};
use super::offload::Offloader;
use super::optim::Optimizer;
use super::scaler::Scaler;
use super::tensor::Tensor;
use super::workload::{Batch, Outcome, Task, Workload};

/// What a supervised loop does with the loss beside running backward from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopStyle {
    /// The loss is divided by the number of micro-batches and summed on the device: a loop that can accumulate.
    #[default]
    Accumulating,
    /// Backward runs from the mean loss itself, which is dropped then: the shortest loop that trains. Micro-batches
    /// are not weighted against each other.
    Plain,
}

/// How a trainer is made.
#[derive(Clone, Debug, Default)]
pub struct TrainerOptions {
    /// What the loop does with the loss.
    pub style: LoopStyle,
    /// Which library workspaces the device has.
    pub workspaces: Libraries,
    /// The allocator's settings.
    pub settings: Settings,
    /// The most that may be reserved.
    pub limit: Option<Bytes>,
    /// Refuse kernels and copies that reach beyond live blocks; debug builds always do.
    pub watched: bool,
}

/// Bytes allocated at the boundaries of a step, as `torch.cuda.memory_allocated` tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Before the first step: parameters and resident batches.
    pub before_step: Bytes,
    /// After the last forward pass of the last step.
    pub forward: Bytes,
    /// After its backward.
    pub backward: Bytes,
    /// After its optimizer step.
    pub optimizer: Bytes,
    /// After zero_grad.
    pub zero_grad: Bytes,
}

/// Trains a workload on a device, step by step.
pub struct Trainer {
    // Dropped in this order: what the steps hold goes before the allocator that holds their memory.
    total: Option<Tensor>,
    batches: Vec<Batch>,
    /// Of [`DataPath::Host`].
    hosted: Vec<HostBatch>,
    feed: Option<Feed>,
    optimizers: Vec<Player>,
    scaler: Scaler,
    task: Task,
    cx: Context,
    workload: Box<dyn Workload>,
    style: LoopStyle,
    config: Config,
    marks: Marks,
    outcome: Outcome,
    steps: u64,
    timing: Timing,
    /// There are no batches for the configuration: they could not be made, or whoever makes them ended.
    batchless: bool,
}

/// An optimizer and the parameters that are its own.
struct Player {
    optimizer: Optimizer,
    parameters: Range<usize>,
}

/// The phases of the present step: the device tells their times when the step is over.
#[derive(Default)]
struct Timing {
    phases: Vec<(Phase, Moment, Moment)>,
    open: Option<(Phase, Moment)>,
}

impl Timing {
    fn times(&self, memory: &Memory) -> [Micros; 5] {
        let mut times = [Micros::default(); 5];
        for &(phase, begun, ended) in &self.phases {
            times[phase as usize].0 += memory.between(begun, ended).0;
        }
        times
    }
}

impl Trainer {
    /// Makes parameters and resident batches; then gives cached memory back and resets the peaks, as the reference loop
    /// does, but for [`DataPath::Fresh`].
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
        let watched = options.watched || cfg!(debug_assertions);
        let memory = Memory::with_watch(device, options.settings, observer, watched);
        if options.limit.is_some() {
            memory.set_limit(options.limit);
        }
        let mut cx = Context::new(memory, options.workspaces);
        let task = workload.build(&mut cx)?;
        let mut trainer = Self {
            total: None,
            batches: Vec::new(),
            hosted: Vec::new(),
            feed: None,
            optimizers: players(&task, cx.leaves.len(), &config),
            scaler: Scaler::default(),
            task,
            cx,
            workload,
            style: options.style,
            config,
            marks: Marks::default(),
            outcome: Outcome::default(),
            steps: 0,
            timing: Timing::default(),
            batchless: true,
        };
        trainer.make_batches()?;
        trainer.marks.before_step = trainer.memory().allocated();
        // Programs that make their batches as they go begin with what building has left in the cache.
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

    /// Lets go of everything but the device, which another trainer may have; `None` where somebody still holds its memory.
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

    /// Where readings of the device's sensors arrive, where it has any.
    #[must_use]
    pub fn sensors(&self) -> Option<Sensors> {
        self.memory().with_device(|device| device.sensors())
    }

    /// Whether the device works at all: one that is gone refuses memory too.
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

    /// Steps finished.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Number of trained values.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.cx.leaves.iter().map(|leaf| leaf.data.numel()).sum()
    }

    /// Names and tensors of the parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.cx.leaves.iter().map(|leaf| (&*leaf.name, &leaf.data))
    }

    /// Bytes at the boundaries of the last step.
    #[must_use]
    pub const fn marks(&self) -> Marks {
        self.marks
    }

    /// What the last step came to.
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
    /// A changed optimizer drops the old one's state at once; the new state is born in the next step. A changed batch or
    /// accumulation makes new resident batches.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`] when new batches do not fit, [`TrainError::TooFewSamples`]; the old configuration then
    /// stays in force.
    pub fn configure(&mut self, config: Config) -> Result<(), TrainError> {
        let old = std::mem::replace(&mut self.config, config);
        let from_host = matches!(config.data, DataPath::Streamed | DataPath::Host);
        let new_path = from_host && old.pinned != config.pinned;
        let routine = matches!(self.task, Task::Routine(_));
        let new_batches = old.micro_batch() != config.micro_batch() || old.data != config.data || new_path || routine;
        if new_batches && let Err(error) = self.make_batches() {
            self.config = old;
            self.make_batches()?;
            return Err(error);
        }
        if (old.optimizer, old.form) != (config.optimizer, config.form) {
            self.optimizers = players(&self.task, self.cx.leaves.len(), &config);
        }
        self.cx.retained.keep(config.retain);
        if old.amp.scales() && !config.amp.scales() {
            self.scaler = Scaler::default();
        }
        Ok(())
    }

    fn make_batches(&mut self) -> Result<(), TrainError> {
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
                let layout = self.workload.batch_layout(samples);
                let (memory, pinned) = (self.cx.memory().clone(), self.config.pinned);
                match &mut self.feed {
                    Some(feed) => feed.configure(&memory, layout, pinned)?,
                    None => self.feed = Some(Feed::start(&memory, self.workload.batch_source()?, layout, pinned)?),
                }
            }
        }
        Ok(())
    }

    /// Trains one step: every micro-batch forward and backward, then the optimizer.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`], [`TrainError::Stopped`], [`TrainError::Device`], [`TrainError::Data`]. Whatever the
    /// step had made is dropped, gradients included; parameters and optimizer state stay, and the next call goes on.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        self.memory().with_device(|device| device.set_matrix_precision(self.config.tf32.precision()));
        self.memory().emit(EventKind::StepBegin { step: self.steps });
        let begun = self.memory().now();
        self.timing = Timing::default();
        self.cx.tf32 = self.config.tf32;
        let ran = if self.batchless { self.make_batches().map_err(Interrupt::from) } else { Ok(()) };
        let ran = ran.and_then(|()| self.run_step());
        self.cx.fused = false;
        match ran {
            Ok(outcome) => {
                let Outcome { loss, optimizer_ran, .. } = outcome;
                self.outcome = outcome;
                // A device without bytes has computed none.
                let loss = loss.filter(|_| self.memory().holds_bytes());
                // Only the compute stream is waited for (by reading the loss): the next batch may still be on its way.
                let waited = self.memory().with_device(|device| device.take_copy_time());
                let copy = Micros(micros(waited).0 + self.feed.as_mut().map_or(0, |feed| feed.take_copy_time().0));
                let samples = self.micro_batch_size() * self.accumulation();
                let report = StepReport {
                    step: self.steps,
                    loss,
                    total: Micros(self.memory().now().0.saturating_sub(begun.0)),
                    phases: self.timing.times(self.memory()),
                    copy,
                    items: (samples * self.workload.items_per_sample()) as u64,
                    optimizer_ran,
                };
                self.steps += 1;
                self.cx.retained.end_step();
                self.memory().emit(EventKind::StepEnd(report.clone()));
                self.memory().safe_point(SafePoint::Step)?;
                self.write()?;
                Ok(report)
            }
            Err(interrupt) => {
                self.cx.abandon();
                self.total = None;
                if let Task::Routine(routine) = &mut self.task {
                    routine.reset();
                }
                if let Some((phase, _)) = self.timing.open.take() {
                    self.memory().emit(EventKind::PhaseEnd { phase });
                }
                if let Interrupt::Failed(TrainError::Data(_)) = interrupt {
                    // Who makes the batches has ended or lost its way: the next step begins with another.
                    self.feed = None;
                    self.batchless = true;
                }
                let error = TrainError::from(interrupt);
                // The allocator tells of the device's memory; nobody of the host's.
                if matches!(error, TrainError::OutOfMemory { kind: MemoryKind::Host, .. }) {
                    self.memory().emit(EventKind::Note { text: error.to_string().into() });
                }
                Err(error)
            }
        }
    }

    /// Lets the model write, every so many steps. Too little memory for that is no reason to stop training.
    fn write(&mut self) -> Result<(), TrainError> {
        if !self.workload.writes_every().is_some_and(|every| self.steps.is_multiple_of(every.max(1))) {
            return Ok(());
        }
        let Task::Supervised(model) = &self.task else { return Ok(()) };
        let model = Rc::clone(model);
        self.memory().emit(EventKind::Generating);
        let (workload, steps) = (&self.workload, self.steps);
        match self.cx.no_grad(|cx| workload.write(cx, &*model, steps)) {
            Ok(Some(text)) => self.memory().emit(EventKind::Generated { text: text.into() }),
            Ok(None) => {}
            Err(interrupt) => {
                self.cx.abandon();
                match TrainError::from(interrupt) {
                    TrainError::OutOfMemory { .. } => {
                        self.memory().emit(EventKind::Note { text: "too little memory to write a sample".into() });
                    }
                    other => return Err(other),
                }
            }
        }
        Ok(())
    }

    /// Marks in the event stream that a switch is about to change.
    pub fn note_switch(&self, key: char, switch: &str, from: &str, to: &str) {
        let memory = self.memory();
        let (switch, from, to) = (memory.name(switch), memory.name(from), memory.name(to));
        memory.emit(EventKind::SwitchFlipped { key, switch, from, to });
    }

    /// Runs a forward pass: under autocast, its saved tensors where the configuration wants them.
    fn forward_pass<T>(&mut self, run: impl FnOnce(&mut Context) -> OpResult<T>) -> OpResult<T> {
        let offloader = Offloader::new(&self.config);
        self.cx.autocast(self.config.amp.dtype(), |cx| cx.offloading(offloader, run))
    }

    fn begin(&mut self, phase: Phase) {
        self.memory().begin_phase(phase);
        self.timing.open = Some((phase, self.memory().mark()));
    }

    fn end(&mut self, phase: Phase) -> OpResult<()> {
        if let Some((_, begun)) = self.timing.open.take() {
            self.timing.phases.push((phase, begun, self.memory().mark()));
        }
        self.memory().end_phase(phase)
    }

    fn run_step(&mut self) -> OpResult<Outcome> {
        self.total = None;
        self.cx.retained.keep(self.config.retain);
        self.cx.choose_attention(self.config.attention);
        self.cx.fused = self.config.fuse && matches!(self.task, Task::Supervised(_) | Task::Adversarial(_));
        let asks_again = self.config.accumulation > 1 || self.config.checkpointing;
        let keeps = self.cx.fused && asks_again && matches!(self.task, Task::Supervised(_));
        self.cx.weight_copies = keeps.then(BTreeMap::new);
        match &mut self.task {
            Task::Supervised(model) => {
                let model = Rc::clone(model);
                self.supervised_step(&model)
            }
            Task::Adversarial(adversaries) => {
                let players = [Rc::clone(&adversaries.generator), Rc::clone(&adversaries.discriminator)];
                self.adversarial_step(&players)
            }
            Task::Routine(_) => self.routine_step(),
        }
    }

    /// A step that is no training counts as forward.
    fn routine_step(&mut self) -> OpResult<Outcome> {
        self.begin(Phase::Forward);
        let Task::Routine(routine) = &mut self.task else { return Ok(Outcome::default()) };
        let outcome = routine.step(&mut self.cx, &self.config, self.steps)?;
        let now = self.memory().allocated();
        let Marks { before_step, .. } = self.marks;
        let forward = outcome.allocated.unwrap_or(now);
        self.marks = Marks { before_step, forward, backward: now, optimizer: now, zero_grad: now };
        self.end(Phase::Forward)?;
        Ok(outcome)
    }

    fn next_batch(&mut self, micro: usize) -> OpResult<Batch> {
        if let Some(feed) = &mut self.feed {
            return feed.next(self.cx.memory());
        }
        let samples = self.micro_batch_size();
        if self.config.data == DataPath::Fresh {
            // Recorded histories made each step's batch anew, and the same for all its micro-batches.
            let number = (self.steps % 4) as u32;
            let batch = self.workload.fresh_batch(&mut self.cx, number, samples, self.steps)?;
            // The variables of such a loop hold a batch until the next one is there.
            self.batches = vec![batch.clone()];
            return Ok(batch);
        }
        let position = self.steps * self.config.accumulation.max(1) as u64 + micro as u64;
        let nth = |count: usize| usize::try_from(position % count.max(1) as u64).unwrap_or(0);
        let none = || Interrupt::Failed(TrainError::Data("the workload has no batches".into()));
        if self.config.data == DataPath::Host {
            // The loop's variables let go of the last batch on the device when they are given the next one's place.
            self.batches.clear();
            let batch = self.hosted.get(nth(self.hosted.len())).ok_or_else(none)?.give(self.cx.memory())?;
            self.batches = vec![batch.clone()];
            return Ok(batch);
        }
        self.batches.get(nth(self.batches.len())).cloned().ok_or_else(none)
    }

    /// One player's optimizer; an overflow keeps it from running.
    fn optimize(&mut self, player: usize) -> OpResult<(bool, Option<Tensor>)> {
        self.cx.memory().with_device(|device| device.spend_host(HostWork::OptimizerStep));
        let Some(Player { optimizer, parameters }) = self.optimizers.get_mut(player) else { return Ok((false, None)) };
        let (cx, config, steps) = (&mut self.cx, &self.config, self.steps);
        if !config.amp.scales() {
            optimizer.step(cx, config, parameters.clone(), steps, None)?;
            return Ok((true, None));
        }
        if optimizer.scales_itself() {
            let Some(checked) = self.scaler.check(cx, parameters.clone())? else { return Ok((false, None)) };
            optimizer.step(cx, config, parameters.clone(), steps, Some(checked.scaling()))?;
            // The kernel has not waited for this, and PyTorch would not: it is for the report only.
            let memory = cx.memory();
            let overflowed = memory.holds_bytes() && memory.read_f32(&checked.found_inf)? != 0.0;
            if overflowed {
                optimizer.take_back();
            }
            return Ok((!overflowed, Some(checked.found_inf)));
        }
        let Some(found_inf) = self.scaler.unscale(cx, parameters.clone())? else { return Ok((false, None)) };
        let overflowed = cx.memory().read_f32(&found_inf)? != 0.0;
        if !overflowed {
            optimizer.step(cx, config, parameters.clone(), steps, None)?;
        }
        Ok((!overflowed, Some(found_inf)))
    }

    /// What one player's optimizer does with the gradients of its parameters.
    fn zero_grad(&mut self, player: usize) -> OpResult<()> {
        let Some(Player { parameters, .. }) = self.optimizers.get(player) else { return Ok(()) };
        let parameters = parameters.clone();
        match self.config.zero_grad {
            ZeroGrad::SetToNone => {
                for leaf in &mut self.cx.leaves[parameters] {
                    leaf.gradient = None;
                }
                Ok(())
            }
            ZeroGrad::Zeroed => self.cx.op("zero_grad", |cx| {
                for gradient in cx.leaves[parameters].iter().filter_map(|leaf| leaf.gradient.as_ref()) {
                    cx.launch(&Kernel::Fill { dst: gradient.operand(), value: 0.0 })?;
                }
                Ok(())
            }),
        }
    }

    /// Micro-batches of a step: two models that are trained against each other take their batch whole.
    fn accumulation(&self) -> usize {
        if matches!(self.task, Task::Adversarial(_)) { 1 } else { self.config.accumulation.max(1) }
    }

    /// Samples of one micro-batch.
    fn micro_batch_size(&self) -> usize {
        (self.config.batch / self.accumulation()).max(1)
    }
}

/// The optimizers of a task, without state.
fn players(task: &Task, parameters: usize, config: &Config) -> Vec<Player> {
    let player = |parameters| Player { optimizer: Optimizer::new(config.optimizer, config.form), parameters };
    match task {
        Task::Supervised(_) => vec![player(0..parameters)],
        Task::Adversarial(adversaries) => {
            vec![player(0..adversaries.generator_parameters), player(adversaries.generator_parameters..parameters)]
        }
        Task::Routine(_) => Vec::new(),
    }
}
