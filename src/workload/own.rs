//! A user's own model: the `input` and `layers` of a workload's file.

use serde::Deserialize;

use super::bounds::Extent;
use super::parameters::Spread;
use super::sequential::{Description, Flow, Layer, LayerKind};

/// One sample of a user's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Input {
    /// A sequence of tokens; the model learns to predict each next one.
    Tokens {
        /// Tokens of a sample.
        seq: Extent,
        /// Size of the vocabulary.
        vocab: Extent,
    },
    /// A square image; the model learns its class.
    Image {
        /// Rows and columns.
        side: Extent,
        /// Values of a pixel.
        #[serde(default = "colours")]
        channels: Extent,
    },
    /// Numbers; the model learns their class.
    Vector {
        /// How many.
        values: Extent,
    },
}

const fn colours() -> Extent {
    Extent::nearest(3)
}

impl Input {
    const fn flow(self) -> Flow {
        match self {
            Self::Tokens { seq, vocab } => Flow::Tokens { rows: seq.get(), vocab: vocab.get() },
            Self::Image { side, channels } => Flow::Image { channels: channels.get(), side: side.get() },
            Self::Vector { values } => Flow::Vector { width: values.get() },
        }
    }
}

/// The description of a user's model. By default, first weights spread as a transformer's if it has such layers.
pub(super) fn describe(input: Input, layers: &[Layer], weights: Option<Spread>) -> Description {
    let transformer = |layer: &Layer| {
        matches!(layer.kind, LayerKind::Transformer { .. } | LayerKind::Embedding { .. } | LayerKind::Patches { .. })
    };
    let usual = if layers.iter().any(transformer) { Spread::Transformer } else { Spread::FanIn };
    Description { input: input.flow(), layers: layers.to_vec(), spread: weights.unwrap_or(usual) }
}
