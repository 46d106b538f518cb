//! Which optimizer, how its step is carried out, and its hyper-parameters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use vramlab_device::UpdatePasses;

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
    /// 8-bit AdamW of bitsandbytes with the moments of large parameters in unified memory.
    #[serde(rename = "paged_adamw_8bit")]
    PagedAdamW8bit,
    /// AdamW of bitsandbytes with two moments in f32, those of large parameters in unified memory.
    #[serde(rename = "paged_adamw_32bit")]
    PagedAdamW,
    /// Lion of bitsandbytes: one moment in f32 per parameter.
    #[serde(rename = "lion_32bit")]
    Lion,
    /// Lion of bitsandbytes with its moment in 8 bits.
    #[serde(rename = "lion_8bit")]
    Lion8bit,
    /// Lion whose moments of large parameters are in unified memory.
    #[serde(rename = "paged_lion_32bit")]
    PagedLion,
    /// 8-bit Lion with the moments of large parameters in unified memory.
    #[serde(rename = "paged_lion_8bit")]
    PagedLion8bit,
}

impl OptimizerKind {
    /// Whether this is a form of Lion, which has one moment.
    #[must_use]
    pub const fn is_lion(self) -> bool {
        matches!(self, Self::Lion | Self::Lion8bit | Self::PagedLion | Self::PagedLion8bit)
    }

    /// Whether weights decay by default.
    const fn decays(self) -> bool {
        matches!(self, Self::AdamW | Self::Muon | Self::AdamW8bit | Self::PagedAdamW8bit | Self::PagedAdamW)
    }

    /// How bitsandbytes keeps the moments, if this is an optimizer of bitsandbytes.
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
    /// In 8 bits, except for small parameters.
    pub in_bytes: bool,
    /// In unified memory for large parameters.
    pub paged: bool,
}

impl KeptState {
    /// Parameters with fewer elements always have moments in f32.
    pub const LEAST_IN_BYTES: usize = 4096;
    /// Parameters with fewer elements always have moments on the device.
    pub const LEAST_PAGED: usize = 100_000;

    /// Whether the moments of a parameter with this many elements are in 8 bits.
    #[must_use]
    pub const fn has_bytes(self, elements: usize) -> bool {
        self.in_bytes && elements >= Self::LEAST_IN_BYTES
    }

    /// Whether the moments of a parameter with this many elements are in unified memory.
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
    /// How many passes over memory the step makes.
    #[must_use]
    pub const fn passes(self) -> UpdatePasses {
        match self {
            Self::Fused => UpdatePasses::One,
            Self::Foreach | Self::Loop => UpdatePasses::Several,
        }
    }
}

/// How the learning rate changes over the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// It stays constant.
    #[default]
    Constant,
    /// It falls to zero and rises again as a cosine.
    Cosine,
}

/// A range of steps, counted from the gradient scaler's first: `3` are the first three, `1..4` the second to the fourth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skips {
    from: u64,
    until: u64,
}

impl Skips {
    /// The steps from `from` up to, not including, `until`.
    #[must_use]
    pub const fn new(from: u64, until: u64) -> Self {
        Self { from, until }
    }

    /// Whether the range contains step number `step`.
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
    /// Weight decay as each optimizer applies it; `None`: 0.1 for AdamW and Muon, none for the others.
    pub weight_decay: Option<f64>,
    /// The limit for the norm of all gradients together (`clip_grad_norm_`); `None`: gradients are not clipped.
    #[serde(default)]
    pub clip: Option<f64>,
    /// Steps in which [`Schedule::Cosine`] goes from the learning rate to zero.
    pub schedule_steps: u64,
    /// Steps that the gradient scaler always skips, in place of overflows that a device without bytes can't find. With
    /// two models that train each other, the discriminator's gradients overflow.
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
            // All of Lion's updates have the same magnitude: its authors take a tenth of Adam's rate.
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
