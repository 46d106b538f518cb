//! The parts of steps of all kinds: batches, forward passes, phases, the optimizer.

use crate::communicator::GradientGroup;
use crate::config::{DataPath, ZeroGrad};
use crate::context::Context;
use crate::data::Turns;
use crate::error::{Interrupt, OpResult, TrainError};
use crate::memory::BlockHandle;
use crate::offload::Offloader;
use crate::optim::clip_gradients;
use crate::parallel::{self, PipelineStage};
use crate::tensor::Tensor;
use crate::workload::Batch;
use vramlab_allocator::units::StreamId;
use vramlab_device::{HostWork, kernels};
use vramlab_model::Phase;

use super::learner::Learner;
use super::state::{LoopStyle, Trainer};

impl Trainer {
    /// Runs a forward pass under autocast; its saved tensors wait where the configuration says.
    pub(super) fn forward_pass<T>(&mut self, run: impl FnOnce(&mut Context) -> OpResult<T>) -> OpResult<T> {
        let offloader = Offloader::new(&self.config);
        // Shards are gathered in the type of FSDP's mixed-precision policy, without autocast.
        let sharded = self.member.is_some_and(|member| member.parallelism.shards_parameters());
        let dtype = self.config.amp.dtype().filter(|_| !sharded);
        self.cx.autocast(dtype, |cx| cx.offloading(offloader, run))
    }

    pub(super) fn begin(&mut self, phase: Phase) {
        self.memory().begin_phase(phase);
        self.cx.outputs.listening = phase == Phase::Forward;
        // The compute stream always exists.
        self.timing.open = self.memory().mark(StreamId::DEFAULT).ok().map(|begun| (phase, begun));
    }

    pub(super) fn end(&mut self, phase: Phase) -> OpResult<()> {
        if let (Some((_, begun)), Ok(ended)) = (self.timing.open.take(), self.memory().mark(StreamId::DEFAULT)) {
            self.timing.phases.push((phase, begun, ended));
        }
        self.memory().end_phase(phase)
    }

    /// The batch of a micro-batch, which the loop's variables hold from here on.
    pub(super) fn next_batch(&mut self, micro: usize) -> OpResult<Batch> {
        let batch = self.find_batch(micro)?;
        if self.memory().watches_frames() {
            for tensor in batch.tensors() {
                self.memory().in_frame(&(tensor.hold() as BlockHandle));
            }
        }
        Ok(batch)
    }

    fn find_batch(&mut self, micro: usize) -> OpResult<Batch> {
        if let Some(feed) = &mut self.feed {
            // A program that logs holds its batch until the loop assigns the next one.
            self.batches.clear();
            let batch = feed.next(self.cx.memory())?;
            if self.style == LoopStyle::Logging {
                self.batches = vec![batch.clone()];
            }
            return Ok(batch);
        }
        let samples = self.micro_batch_size();
        if self.config.data == DataPath::Fresh {
            // The recorded histories made a new batch for each step, and used it for all its micro-batches.
            let number = (self.steps % 4) as u32;
            let batch = self.workload.fresh_batch(&mut self.cx, number, samples, self.steps)?;
            // The variables of such a loop hold a batch until the next one is made.
            self.batches = vec![batch.clone()];
            return Ok(batch);
        }
        let position = self.steps * self.accumulation() as u64 + micro as u64;
        let turns = Turns::of_member(self.member);
        let nth = |count: usize| {
            let count = count.max(1) as u64;
            usize::try_from(turns.of(position % count) % count).unwrap_or(0)
        };
        let none = || Interrupt::Failed(TrainError::Data("the workload has no batches".into()));
        if self.config.data == DataPath::Host {
            // The loop's variables drop the last batch on the device when the next one is assigned.
            self.batches.clear();
            let batch = self.hosted.get(nth(self.hosted.len())).ok_or_else(none)?.give(self.cx.memory())?;
            self.batches = vec![batch.clone()];
            return Ok(batch);
        }
        self.batches.get(nth(self.batches.len())).cloned().ok_or_else(none)
    }

    /// Runs one player's optimizer; an overflow keeps it from running.
    pub(super) fn optimize(&mut self, player: usize) -> OpResult<(bool, Option<Tensor>)> {
        self.cx.memory().with_device(|device| device.spend_host(HostWork::OptimizerStep));
        let last = player + 1 == self.optimizers.len();
        let Some(Learner { optimizer, parameters, updated }) = self.optimizers.get_mut(player) else {
            return Ok((false, None));
        };
        if !self.member.is_none_or(parallel::updates) {
            return Ok((true, None));
        }
        let (cx, config, steps) = (&mut self.cx, &self.config, self.steps);
        let stage = self.stage.as_ref();
        let clip = |cx: &mut Context| {
            let Some(most) = config.hyper.clip else { return Ok(()) };
            with_shared(cx, stage, |cx, shared| {
                clip_gradients(cx, &parameters.clone().collect::<Vec<_>>(), most, shared)
            })
        };
        if !config.amp.scales() {
            clip(cx)?;
            optimizer.step(cx, config, updated, steps, None)?;
            return Ok((true, None));
        }
        // With two players, the discriminator's, which steps first.
        let skip = last && self.scaler.skips(config.hyper.scaler_skips);
        let scaler = &self.scaler;
        // Clipping unscales first, and so does a program whose scaler reduces the flag when it unscales. A
        // `ZeroRedundancyOptimizer` does not pass on that its optimizer's kernel unscales.
        let unscales_first = config.hyper.clip.is_some()
            || self.member.is_some_and(|member| parallel::unscales_first(member.parallelism));
        if optimizer.scales_itself() && !unscales_first {
            let checked = with_shared(cx, stage, |cx, shared| scaler.check(cx, parameters.clone(), skip, shared))?;
            let Some(checked) = checked else { return Ok((false, None)) };
            optimizer.step(cx, config, updated, steps, Some(checked.scaling()))?;
            // The kernel has not waited for the flag, and PyTorch would not: the report alone needs it.
            let memory = cx.memory();
            let overflowed = skip || memory.holds_bytes() && memory.read_f32(&checked.found_inf)? != 0.0;
            if overflowed {
                optimizer.take_back();
            }
            return Ok((!overflowed, Some(checked.found_inf)));
        }
        let unscaled = with_shared(cx, stage, |cx, shared| scaler.unscale(cx, parameters.clone(), skip, shared))?;
        let Some(found_inf) = unscaled else { return Ok((false, None)) };
        // The host always waits for the flag.
        let overflowed = (cx.memory().read_f32(&found_inf)? != 0.0) | skip;
        if !overflowed {
            clip(cx)?;
            optimizer.step(cx, config, updated, steps, None)?;
        }
        Ok((!overflowed, Some(found_inf)))
    }

    /// Drops or zeroes the gradients of one player's parameters.
    pub(super) fn zero_grad(&mut self, player: usize) -> OpResult<()> {
        let Some(Learner { parameters, .. }) = self.optimizers.get(player) else { return Ok(()) };
        let parameters = parameters.clone();
        match self.config.zero_grad {
            ZeroGrad::SetToNone => {
                for leaf in &mut self.cx.leaves[parameters] {
                    leaf.drop_gradient();
                }
                Ok(())
            }
            ZeroGrad::Zeroed => self.cx.op("zero_grad", |cx| {
                for gradient in cx.leaves[parameters].iter().filter_map(|leaf| leaf.trained().1) {
                    cx.launch(kernels::Elementwise::Fill { dst: gradient.operand(), value: 0.0 })?;
                }
                Ok(())
            }),
        }
    }
}

/// Runs `work` with the group over which ranks reduce gradients, if each has parts of all gradients, some of them, or parts of some.
fn with_shared<T>(
    cx: &mut Context,
    stage: Option<&PipelineStage>,
    work: impl FnOnce(&mut Context, Option<GradientGroup<'_>>) -> T,
) -> T {
    let (hooks, splits) = (cx.hooks.take(), cx.tensor_ranks.take());
    let in_parts = hooks.as_ref().and_then(|hooks| hooks.gradients_in_parts());
    let apart = stage.map(PipelineStage::communicator).or(splits.as_ref());
    let shared = in_parts
        .map(|communicator| GradientGroup { communicator, in_parts: true })
        .or_else(|| apart.map(|communicator| GradientGroup { communicator, in_parts: false }));
    let result = work(cx, shared);
    (cx.hooks, cx.tensor_ranks) = (hooks, splits);
    result
}
