//! Which tensors of a step are kept, where, and for how long.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which layers keep only their input in forward and run again in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checkpointing {
    /// None.
    #[default]
    Off,
    /// The first of every so many consecutive layers (transformer blocks, hidden layers): with 1 all of them.
    Every(NonZeroUsize),
    /// The same layers, each an autograd function of its own that runs backward within backward (`use_reentrant=True`).
    Reentrant(NonZeroUsize),
}

impl Checkpointing {
    /// All layers.
    pub const ALL: Self = Self::Every(NonZeroUsize::MIN);

    /// Whether any layer is checkpointed.
    #[must_use]
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Whether checkpoints run backward within backward.
    #[must_use]
    pub const fn is_reentrant(self) -> bool {
        matches!(self, Self::Reentrant(_))
    }

    /// Whether layer `layer`, counted from 0, is checkpointed.
    #[must_use]
    pub const fn of(self, layer: usize) -> bool {
        match self {
            Self::Off => false,
            Self::Every(step) | Self::Reentrant(step) => layer.is_multiple_of(step.get()),
        }
    }
}

impl FromStr for Checkpointing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let step = |prefix: &str| text.strip_prefix(prefix)?.parse().ok();
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::ALL),
            "reentrant" => Ok(Self::Reentrant(NonZeroUsize::MIN)),
            _ => step("every:").map(Self::Every).or_else(|| step("reentrant:").map(Self::Reentrant)).ok_or_else(|| {
                format!(
                    "'{text}' is none of off, on, reentrant, every:K and reentrant:K, such as every:2 for every second block"
                )
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
            Self::Reentrant(NonZeroUsize::MIN) => f.write_str("reentrant"),
            Self::Reentrant(step) => write!(f, "reentrant:{step}"),
        }
    }
}

/// Which tensors wait in host memory while the device does not need them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing.
    #[default]
    Off,
    /// Saved tensors, with one blocking copy each, as `save_on_cpu`.
    Activations,
    /// Saved tensors, from page-locked memory on a copy stream, fetched ahead.
    Overlapped,
    /// Optimizer state.
    Optimizer,
    /// Parameters, except those of the layer that runs, and optimizer state.
    Parameters,
    /// Parameters, optimizer state and saved tensors, with one blocking copy each.
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

/// References that a program keeps by mistake.
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
