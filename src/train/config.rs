//! What a person can switch: one immutable value per step.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use vramlab_device::{DType, MatrixPrecision, UpdatePasses};

/// Automatic mixed precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Amp {
    /// Everything in f32.
    #[default]
    Off,
    /// Autocast to IEEE half precision, with a gradient scaler.
    Fp16,
    /// Autocast to bfloat16.
    Bf16,
}

impl Amp {
    /// The type that autocast casts to.
    #[must_use]
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::Off => None,
            Self::Fp16 => Some(DType::F16),
            Self::Bf16 => Some(DType::Bf16),
        }
    }

    /// Gradients are scaled, and steps with an overflow skipped.
    #[must_use]
    pub const fn scales(self) -> bool {
        matches!(self, Self::Fp16)
    }
}

/// Which layers keep their input alone in forward, and run again in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checkpointing {
    /// None.
    #[default]
    Off,
    /// The first of so many layers in a row (transformer blocks, hidden layers), and so on: with 1 all of them.
    Every(NonZeroUsize),
}

impl Checkpointing {
    /// All layers.
    pub const ALL: Self = Self::Every(NonZeroUsize::MIN);

    /// Some layer is checkpointed.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::Every(_))
    }

    /// Layer `layer`, counted from 0, is checkpointed.
    #[must_use]
    pub const fn of(self, layer: usize) -> bool {
        match self {
            Self::Off => false,
            Self::Every(step) => layer.is_multiple_of(step.get()),
        }
    }
}

impl FromStr for Checkpointing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let step = |text: &str| text.strip_prefix("every:")?.parse().ok();
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::ALL),
            _ => step(text).map(Self::Every).ok_or_else(|| {
                format!("'{text}' is none of off, on and every:K, such as every:2 for every second block")
            }),
        }
    }
}

impl fmt::Display for Checkpointing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Off => f.write_str("off"),
            Self::ALL => f.write_str("on"),
            Self::Every(step) => write!(f, "every:{step}"),
        }
    }
}

/// Which optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Stochastic gradient descent without state.
    Sgd,
    /// SGD with momentum 0.9: one buffer per parameter.
    Momentum,
    /// Adam: two moments per parameter.
    Adam,
    /// AdamW: Adam with decoupled weight decay.
    #[default]
    AdamW,
    /// Muon for the matrices of hidden layers, AdamW for all else: one buffer for the first, two moments for the second.
    Muon,
    /// AdamW of bitsandbytes: two moments in 8 bits per parameter.
    #[serde(rename = "adamw_8bit")]
    AdamW8bit,
    /// The same whose moments of large parameters are in unified memory.
    #[serde(rename = "paged_adamw_8bit")]
    PagedAdamW8bit,
    /// AdamW of bitsandbytes with two moments in f32, those of large parameters in unified memory.
    #[serde(rename = "paged_adamw_32bit")]
    PagedAdamW,
    /// Lion of bitsandbytes: one moment in f32 per parameter.
    #[serde(rename = "lion_32bit")]
    Lion,
    /// The same with its moment in 8 bits.
    #[serde(rename = "lion_8bit")]
    Lion8bit,
    /// Lion whose moments of large parameters are in unified memory.
    #[serde(rename = "paged_lion_32bit")]
    PagedLion,
    /// The same in 8 bits.
    #[serde(rename = "paged_lion_8bit")]
    PagedLion8bit,
}

impl OptimizerKind {
    /// Whether it is Lion, which has one moment.
    #[must_use]
    pub const fn is_lion(self) -> bool {
        matches!(self, Self::Lion | Self::Lion8bit | Self::PagedLion | Self::PagedLion8bit)
    }

    /// Whether its weights decay where nobody says how much.
    const fn decays(self) -> bool {
        matches!(self, Self::AdamW | Self::Muon | Self::AdamW8bit | Self::PagedAdamW8bit | Self::PagedAdamW)
    }

    /// How bitsandbytes keeps its moments, where it is one of those.
    #[must_use]
    pub const fn of_bitsandbytes(self) -> Option<KeptState> {
        match self {
            Self::Lion => Some(KeptState { in_bytes: false, paged: false }),
            Self::AdamW8bit | Self::Lion8bit => Some(KeptState { in_bytes: true, paged: false }),
            Self::PagedAdamW8bit | Self::PagedLion8bit => Some(KeptState { in_bytes: true, paged: true }),
            Self::PagedAdamW | Self::PagedLion => Some(KeptState { in_bytes: false, paged: true }),
            Self::Sgd | Self::Momentum | Self::Adam | Self::AdamW | Self::Muon => None,
        }
    }
}

/// How an optimizer of bitsandbytes keeps moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptState {
    /// In 8 bits, where a parameter is not small.
    pub in_bytes: bool,
    /// In unified memory, where a parameter is large.
    pub paged: bool,
}

impl KeptState {
    /// Parameters of fewer elements have moments in f32, whatever is asked for.
    pub const LEAST_IN_BYTES: usize = 4096;
    /// Parameters of fewer elements have moments on the device, whatever is asked for.
    pub const LEAST_PAGED: usize = 100_000;

    /// Whether the moments of a parameter of so many elements are in 8 bits.
    #[must_use]
    pub const fn has_bytes(self, elements: usize) -> bool {
        self.in_bytes && elements >= Self::LEAST_IN_BYTES
    }

    /// Whether they are in unified memory.
    #[must_use]
    pub const fn is_paged(self, elements: usize) -> bool {
        self.paged && elements >= Self::LEAST_PAGED
    }
}

/// How an optimizer's step is carried out, which decides its temporaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerForm {
    /// All parameters at once, one elementary operation after the other: PyTorch's default on a GPU.
    #[default]
    Foreach,
    /// All parameters in one kernel.
    Fused,
    /// Parameter by parameter.
    Loop,
}

impl OptimizerForm {
    /// How often it goes through memory.
    #[must_use]
    pub const fn passes(self) -> UpdatePasses {
        match self {
            Self::Fused => UpdatePasses::One,
            Self::Foreach | Self::Loop => UpdatePasses::Several,
        }
    }
}

/// Which matrix products may round their f32 inputs to TensorFloat-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tf32 {
    /// None: the reference measurements.
    #[default]
    Off,
    /// Convolutions only: what PyTorch does unless it is told otherwise.
    Convolutions,
    /// Convolutions and matrix products.
    On,
}

impl Tf32 {
    /// What the device is told.
    #[must_use]
    pub const fn precision(self) -> MatrixPrecision {
        MatrixPrecision { products_in_tf32: matches!(self, Self::On), convolutions_in_tf32: !matches!(self, Self::Off) }
    }
}

/// How the learning rate goes on from its first value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// It stays.
    #[default]
    Constant,
    /// It falls to zero and rises again as a cosine.
    Cosine,
}

/// What waits in host memory while the device does not need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing.
    #[default]
    Off,
    /// Saved tensors, one blocking copy each, as `save_on_cpu`.
    Activations,
    /// Saved tensors, from page-locked memory on a copy stream, fetched ahead.
    Overlapped,
    /// Optimizer state.
    Optimizer,
    /// Parameters, but for the layer that runs, and optimizer state.
    Parameters,
    /// Both these and saved tensors, one blocking copy each.
    #[serde(rename = "parameters+activations")]
    ParametersAndActivations,
}

impl Offload {
    /// Optimizer state waits in host memory.
    #[must_use]
    pub const fn parks_state(self) -> bool {
        matches!(self, Self::Optimizer | Self::Parameters | Self::ParametersAndActivations)
    }

    /// Parameters wait in host memory.
    #[must_use]
    pub const fn parks_parameters(self) -> bool {
        matches!(self, Self::Parameters | Self::ParametersAndActivations)
    }
}

/// Which attention kernel; one that is asked for and does not take the inputs ends the step, as in PyTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKernel {
    /// The first of PyTorch's list that takes the inputs.
    #[default]
    Auto,
    /// Matrix products and a softmax of rows × rows.
    Math,
    /// Memory-efficient attention.
    Efficient,
    /// Flash attention.
    Flash,
    /// cuDNN's attention.
    CuDnn,
    /// Op for op, as models of transformers do where they are told so (`attn_implementation="eager"`).
    Eager,
}

/// How a model that predicts tokens comes from its last hidden values to a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossHead {
    /// transformers' own, from labels: logits in f32, labels shifted by one.
    #[default]
    Labels,
    /// The same as it was to version 4.48: logits in f32, and all but the last position of each sequence once more.
    #[serde(rename = "labels-copied")]
    LabelsCopied,
    /// By hand: logits in f32, all but the last position of each sequence, as a copy.
    Shifted,
    /// Eighths of all positions in turn, as torchtune: only an eighth of the logits is in f32 at once, beside what is saved.
    Chunked,
    /// Fused with the head, as Liger: no logits are kept, their gradients are made in forward.
    Fused,
    /// The same as Liger had it to version 0.4: each chunk of logits is cast to f32 beside its copies in 16 bits.
    #[serde(rename = "fused-f32")]
    FusedF32,
}

impl LossHead {
    /// The model is given labels and computes it.
    #[must_use]
    pub const fn is_within_model(self) -> bool {
        matches!(self, Self::Labels | Self::LabelsCopied)
    }

    /// Logits and loss are one op.
    #[must_use]
    pub const fn is_fused(self) -> bool {
        matches!(self, Self::Fused | Self::FusedF32)
    }
}

/// By which recipe of torchao (`convert_to_float8_training`) linear layers multiply in 8-bit floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Float8Recipe {
    /// By none: they keep their type.
    #[default]
    Off,
    /// One scale for each tensor, from its largest magnitude.
    Tensorwise,
    /// One for each row of a product's left factor and for each column of its right one: powers of two.
    Rowwise,
}

/// What a program keeps by mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retain {
    /// Nothing.
    #[default]
    Off,
    /// The loss tensor of every step: 512 bytes each.
    Losses,
    /// The loss with its graph, which holds all saved tensors.
    Graph,
    /// The output and the loss of every step, in objects that refer to each other: until Python's garbage collector runs.
    Cycles,
}

/// What a program does when a step runs out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnOom {
    /// It stops.
    #[default]
    Stop,
    /// It halves the batch and tries the step again, behind the `except` block: the exception and its frames are gone.
    Halve,
    /// The same within the block, or with the exception kept: everything that the failed step had lives on.
    HalveHeld,
}

impl OnOom {
    /// The step is tried again with half the batch.
    #[must_use]
    pub const fn halves(self) -> bool {
        matches!(self, Self::Halve | Self::HalveHeld)
    }
}

/// What `zero_grad` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZeroGrad {
    /// Gradients are dropped; the next backward allocates new ones.
    #[default]
    SetToNone,
    /// Gradients are kept and filled with zeros.
    Zeroed,
}

/// Where batches come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// Four batches made once, resident on the device.
    #[default]
    Resident,
    /// The same four, newly made on the device for every micro-batch.
    Fresh,
    /// The same four, made once and kept in host memory; each micro-batch copies its own, when its turn comes.
    Host,
    /// A loader thread feeds a fresh batch per micro-batch.
    Streamed,
}

/// Steps in a row, counted from the gradient scaler's first: `3` are the first three, `1..4` the second to the fourth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skips {
    from: u64,
    until: u64,
}

impl Skips {
    /// The steps from `from` on, before `until`.
    #[must_use]
    pub const fn new(from: u64, until: u64) -> Self {
        Self { from, until }
    }

    /// Whether step number `step` is one of them.
    #[must_use]
    pub const fn has(self, step: u64) -> bool {
        self.from <= step && step < self.until
    }
}

impl FromStr for Skips {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, until) = text.split_once("..").unwrap_or(("0", text));
        match (from.parse(), until.parse()) {
            (Ok(from), Ok(until)) if from <= until => Ok(Self { from, until }),
            _ => Err("write how many of the first steps are skipped, such as 3, or which: 1..4 are the steps 1 to 3"
                .to_owned()),
        }
    }
}

impl fmt::Display for Skips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == 0 { self.until.fmt(f) } else { write!(f, "{}..{}", self.from, self.until) }
    }
}

/// Hyper-parameters of all optimizers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hyper {
    /// Learning rate of Adam and AdamW.
    pub adam_lr: f64,
    /// Learning rate of SGD.
    pub sgd_lr: f64,
    /// Momentum of SGD with momentum.
    pub momentum: f64,
    /// Decay of Adam's first moment.
    pub beta1: f64,
    /// Decay of Adam's second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay, in the way of each optimizer; `None`: 0.1 for AdamW and Muon, none for the others.
    pub weight_decay: Option<f64>,
    /// The largest norm of all gradients together (`clip_grad_norm_`); `None`: they are left as they are.
    #[serde(default)]
    pub clip: Option<f64>,
    /// Steps in which [`Schedule::Cosine`] goes from the learning rate to zero.
    pub schedule_steps: u64,
    /// Steps that the gradient scaler skips in any case: overflows that a device which computes nothing can't find. Of
    /// two models that train each other it is the discriminator's that overflows.
    pub scaler_skips: Skips,
}

/// The reference values: those of the measured PyTorch runs.
impl Default for Hyper {
    fn default() -> Self {
        Self {
            adam_lr: 1e-3,
            sgd_lr: 0.01,
            momentum: 0.9,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: None,
            clip: None,
            schedule_steps: 1000,
            scaler_skips: Skips::default(),
        }
    }
}

impl Hyper {
    /// The learning rate that an optimizer begins with.
    #[must_use]
    pub const fn learning_rate(&self, optimizer: OptimizerKind) -> f64 {
        match optimizer {
            OptimizerKind::Sgd | OptimizerKind::Momentum => self.sgd_lr,
            OptimizerKind::Adam
            | OptimizerKind::AdamW
            | OptimizerKind::Muon
            | OptimizerKind::AdamW8bit
            | OptimizerKind::PagedAdamW8bit
            | OptimizerKind::PagedAdamW => self.adam_lr,
            // Its steps are all of one length: its authors take a tenth of Adam's rate.
            _ => self.adam_lr / 10.0,
        }
    }

    /// The weight decay of an optimizer.
    #[must_use]
    pub const fn decay(&self, optimizer: OptimizerKind) -> f64 {
        match (self.weight_decay, optimizer) {
            (Some(decay), _) => decay,
            (None, kind) if kind.decays() => 0.1,
            (None, _) => 0.0,
        }
    }
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
    /// How its step is carried out.
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
    /// The program keeps the loss alone: what the model put out is gone before backward begins.
    #[serde(default)]
    pub drop_output: bool,
    /// Models that are built as transformers builds them are called with `use_cache=True`.
    #[serde(default)]
    pub use_cache: bool,
    /// Their MLPs run tile by tile of the positions, in backward too, as DeepSpeed's `TiledMLP`.
    #[serde(default)]
    pub tiled_mlp: bool,
    /// Such models are told which positions are padding (`attention_mask=`).
    #[serde(default)]
    pub attention_mask: bool,
    /// Their linear layers, the head aside, multiply in 8 bits.
    #[serde(default)]
    pub float8: Float8Recipe,
    /// Fused ops replace chains of PyTorch's: less memory, and a curve that is not eager PyTorch's any more.
    pub fuse: bool,
    /// Those of MLPs' gates are left out: kernels of norms, rotations and losses alone.
    #[serde(default)]
    pub gates_as_written: bool,
    /// What is kept by mistake.
    pub retain: Retain,
    /// What follows a step that ran out of memory.
    pub on_oom: OnOom,
    /// Batches come from page-locked memory: streamed ones one ahead, beside the computation. So does what is offloaded.
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
