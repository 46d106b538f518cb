//! One step from its first event to its report, for every task and every outcome.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::config::{Config, Float8Recipe, OnOom};
use crate::error::{Interrupt, MemoryKind, OpResult, TrainError};
use crate::memory::micros;
use crate::observer::SafePoint;
use crate::workload::{Outcome, Task};
use vramlab_model::{EventKind, Micros, Phase, StepReport};

use super::state::{LoopStyle, Trainer};
use super::timing::Timing;

impl Trainer {
    /// Trains one step: every micro-batch forward and backward, then the optimizer. If it runs out of memory and the
    /// configuration says so ([`Config::on_oom`](crate::Config::on_oom)), the batch is halved and the step tried again.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`], [`TrainError::Stopped`], [`TrainError::Device`], [`TrainError::Data`]. Everything
    /// that the step had made is dropped, gradients included; parameters and optimizer state stay, and the next call
    /// goes on.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let result = self.step_until_it_fits();
        self.cx.drop_frames();
        result
    }

    fn step_until_it_fits(&mut self) -> Result<StepReport, TrainError> {
        loop {
            let error = match self.attempt_step() {
                Ok(report) => return Ok(report),
                Err(error) => error,
            };
            let out_of_memory = matches!(error, TrainError::OutOfMemory { kind: MemoryKind::Device, .. });
            if !(out_of_memory && self.config.on_oom.halves() && self.halve_batch()?) {
                return Err(error);
            }
        }
    }

    /// `except torch.cuda.OutOfMemoryError: batch //= 2`; false if there is nothing to halve.
    fn halve_batch(&mut self) -> Result<bool, TrainError> {
        let first = self.config.batch;
        let mut batch = first;
        while batch > 1 {
            batch /= 2;
            match self.configure(Config { batch, ..self.config }) {
                Ok(()) => {
                    self.note_switch("batch", &first.to_string(), &batch.to_string());
                    return Ok(true);
                }
                // Even the batches don't fit.
                Err(TrainError::OutOfMemory { .. }) => {}
                // Batch norm has no variance of one sample: the step's own error is reported.
                Err(TrainError::TooFewSamples { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn attempt_step(&mut self) -> Result<StepReport, TrainError> {
        self.memory().with_device(|device| device.set_matrix_precision(self.config.tf32.precision()));
        self.memory().emit(EventKind::StepBegin { step: self.steps });
        let begun = self.memory().now();
        self.timing = Timing::default();
        // Exchange times of a failed step are not reported.
        self.memory().take_exchange_time();
        self.memory().begin_frames(self.config.on_oom == OnOom::HalveHeld);
        self.cx.tf32 = self.config.tf32;
        let ran = if self.batchless { self.make_batches().map_err(Interrupt::from) } else { Ok(()) };
        let ran = ran.and_then(|()| self.run_step());
        self.cx.fused = false;
        match ran {
            Ok(outcome) => {
                let Outcome { loss, skipped, .. } = outcome;
                self.outcome = outcome;
                // Stages before the last read no loss: their step is over when the device is done.
                if self.stage.is_some() && loss.is_none() {
                    self.memory().synchronize();
                }
                // A device without bytes computes no loss.
                let loss = loss.filter(|_| self.memory().holds_bytes());
                // Only the compute stream is waited for (by reading the loss): the next batch may still be under way.
                let waited = self.memory().with_device(|device| device.take_copy_time());
                let copy = Micros(micros(waited).0 + self.feed.as_mut().map_or(0, |feed| feed.take_copy_time().0));
                let samples = self.micro_batch_size() * self.accumulation();
                let report = StepReport {
                    step: self.steps,
                    loss,
                    total: Micros(self.memory().now().0.saturating_sub(begun.0)),
                    phases: self.timing.times(self.memory()),
                    copy,
                    exchange: self.memory().take_exchange_time(),
                    items: (samples * self.workload.items_per_sample()) as u64,
                    optimizer_ran: !skipped,
                };
                self.steps += 1;
                self.collect_garbage();
                self.cx.tell_outputs(true);
                self.memory().emit(EventKind::StepEnd(report.clone()));
                self.memory().safe_point(SafePoint::Step)?;
                self.write()?;
                Ok(report)
            }
            Err(interrupt) => {
                if self.memory().watches_frames() {
                    self.cx.catch_frames();
                }
                self.cx.abandon();
                self.total = None;
                if let Task::Routine(routine) = &mut self.task {
                    routine.reset();
                }
                if let Some((phase, _)) = self.timing.open.take() {
                    self.memory().emit(EventKind::PhaseEnd { phase });
                }
                if let Interrupt::Failed(TrainError::Data(_)) = interrupt {
                    // The loader has ended or failed: the next step starts another.
                    self.feed = None;
                    self.batchless = true;
                }
                let error = TrainError::from(interrupt);
                // The allocator's event says how much memory the device has; no event says it of the host.
                if matches!(error, TrainError::OutOfMemory { kind: MemoryKind::Host, .. }) {
                    self.memory().emit(EventKind::Note { text: error.to_string().into() });
                }
                Err(error)
            }
        }
    }

    /// Lets the model write a text after every so many steps. Too little memory for that does not stop training.
    fn write(&mut self) -> Result<(), TrainError> {
        if !self.workload.writes_every().is_some_and(|every| self.steps.is_multiple_of(every.max(1))) {
            return Ok(());
        }
        let Task::Supervised(model) = &self.task else { return Ok(()) };
        let model = Rc::clone(model);
        self.memory().emit(EventKind::Generating);
        let (workload, steps) = (&self.workload, self.steps);
        match self.cx.no_grad(|cx| cx.evaluating(|cx| workload.write(cx, &*model, steps))) {
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

    /// Puts the step's references that the program keeps by mistake on the list; Python's garbage collector may run.
    fn collect_garbage(&mut self) {
        let before = self.memory().allocated();
        if self.cx.retained.end_step() {
            let freed = before.saturating_sub(self.memory().allocated());
            let text = format!("Python's garbage collector came: {freed} of tensors in reference cycles are free");
            self.memory().emit(EventKind::Note { text: text.into() });
        }
    }

    fn run_step(&mut self) -> OpResult<Outcome> {
        // A program that logs keeps the last loss until the next one.
        if self.style != LoopStyle::Logging || self.config.accumulation > 1 {
            self.total = None;
        }
        self.cx.retained.keep(self.config.retain);
        self.cx.choose_attention(self.config.attention);
        self.cx.choose_causal(self.config.loss_head, self.config.use_cache);
        self.cx.tile_mlps(self.config.tiled_mlp);
        self.cx.reenters = self.config.checkpointing.is_reentrant();
        let float8 = if self.workload.takes_float8() { self.config.float8 } else { Float8Recipe::Off };
        self.cx.choose_float8(float8);
        self.cx.fused = self.config.fuse && matches!(self.task, Task::Supervised(_) | Task::Adversarial(_));
        self.cx.gates_as_written = self.config.gates_as_written;
        let asks_again = self.config.accumulation > 1 || self.config.checkpointing.is_on();
        let keeps = self.cx.fused && asks_again && matches!(self.task, Task::Supervised(_));
        self.cx.weight_copies = keeps.then(BTreeMap::new);
        match &mut self.task {
            Task::Supervised(model) => {
                let model = Rc::clone(model);
                match self.stage.take() {
                    Some(stage) => self.pipeline_step(stage, &model),
                    None => self.supervised_step(&model),
                }
            }
            Task::Adversarial(adversaries) => {
                let players = [Rc::clone(&adversaries.generator), Rc::clone(&adversaries.discriminator)];
                self.adversarial_step(&players)
            }
            Task::Routine(_) => self.routine_step(),
        }
    }

    /// A step that does not train counts as forward.
    fn routine_step(&mut self) -> OpResult<Outcome> {
        self.begin(Phase::Forward);
        let Task::Routine(routine) = &mut self.task else { return Ok(Outcome::default()) };
        let outcome = routine.step(&mut self.cx, &self.config, self.steps)?;
        self.end(Phase::Forward)?;
        Ok(outcome)
    }
}
