//! What the user can switch: one immutable value per step.

mod model;
mod optimizer;
mod precision;
mod saving;

use serde::{Deserialize, Serialize};

pub use model::{AttentionKernel, LossHead};
pub use optimizer::{Hyper, KeptState, OptimizerForm, OptimizerKind, Schedule, Skips};
pub use precision::{Amp, Float8Recipe, Tf32};
pub use saving::{Checkpointing, Offload, Retain, ZeroGrad};

/// What a program does when a step runs out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOom {
    /// The program stops.
    #[default]
    Stop,
    /// The program halves the batch and tries the step again after the `except` block: the exception and its frames are gone.
    Halve,
    /// The program tries again within the `except` block, or keeps the exception: all that the failed step's frames hold lives on.
    HalveHeld,
}

impl OnOom {
    /// The step is tried again with half the batch.
    #[must_use]
    pub const fn halves(self) -> bool {
        matches!(self, Self::Halve | Self::HalveHeld)
    }
}

/// Where batches come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// Four batches made once, resident on the device.
    #[default]
    Resident,
    /// The same four, made again on the device for every micro-batch.
    Fresh,
    /// The same four, made once and kept in host memory; each micro-batch copies its batch when it needs it.
    Host,
    /// A loader thread feeds a fresh batch per micro-batch.
    Streamed,
}

/// Every switch. A step sees one version; [`super::Trainer::configure`] replaces it whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Mixed precision.
    pub amp: Amp,
    /// Which layers are checkpointed.
    pub checkpointing: Checkpointing,
    /// Micro-batches per step; at least 1. Each has `max(1, batch / accumulation)` samples.
    pub accumulation: usize,
    /// Which optimizer.
    pub optimizer: OptimizerKind,
    /// How the optimizer's step is carried out.
    pub form: OptimizerForm,
    /// What zero_grad does.
    pub zero_grad: ZeroGrad,
    /// TensorFloat-32.
    pub tf32: Tf32,
    /// The learning rate over the steps.
    pub schedule: Schedule,
    /// What waits in host memory.
    pub offload: Offload,
    /// Which attention kernel.
    pub attention: AttentionKernel,
    /// The loss of models that are built as transformers builds them.
    #[serde(default)]
    pub loss_head: LossHead,
    /// The program keeps the loss alone: the model's output is dropped before backward begins.
    #[serde(default)]
    pub drop_output: bool,
    /// Models that are built as transformers builds them are called with `use_cache=True`.
    #[serde(default)]
    pub use_cache: bool,
    /// MLPs of such models process the positions tile by tile, in backward too, as DeepSpeed's `TiledMLP`.
    #[serde(default)]
    pub tiled_mlp: bool,
    /// Such models are told which positions are padding (`attention_mask=`).
    #[serde(default)]
    pub attention_mask: bool,
    /// Linear layers of such models, except the head, multiply in 8 bits.
    #[serde(default)]
    pub float8: Float8Recipe,
    /// Fused ops replace chains of PyTorch's ops: they take less memory, and the curve is no longer eager PyTorch's.
    pub fuse: bool,
    /// Fused ops leave out the gates of MLPs: only norms, rotations and losses are fused.
    #[serde(default)]
    pub gates_as_written: bool,
    /// What the program keeps by mistake.
    pub retain: Retain,
    /// What the program does when a step runs out of memory.
    pub on_oom: OnOom,
    /// Batches come from page-locked memory: streamed ones are copied one ahead, during the computation. Offloaded
    /// tensors use page-locked memory too.
    pub pinned: bool,
    /// Samples per step.
    pub batch: usize,
    /// Where batches come from.
    pub data: DataPath,
    /// Hyper-parameters.
    pub hyper: Hyper,
}

impl Config {
    /// The base configuration: everything off, AdamW, `batch` samples.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        Self {
            amp: Amp::Off,
            checkpointing: Checkpointing::Off,
            accumulation: 1,
            optimizer: OptimizerKind::AdamW,
            form: OptimizerForm::Foreach,
            zero_grad: ZeroGrad::SetToNone,
            tf32: Tf32::Off,
            schedule: Schedule::Constant,
            offload: Offload::Off,
            attention: AttentionKernel::Auto,
            loss_head: LossHead::Labels,
            drop_output: false,
            use_cache: false,
            tiled_mlp: false,
            attention_mask: false,
            float8: Float8Recipe::Off,
            fuse: false,
            gates_as_written: false,
            retain: Retain::Off,
            on_oom: OnOom::Stop,
            pinned: false,
            batch,
            data: DataPath::Resident,
            hyper: Hyper::default(),
        }
    }

    /// Samples of one micro-batch.
    #[must_use]
    pub fn micro_batch(&self) -> usize {
        (self.batch / self.accumulation.max(1)).max(1)
    }
}
