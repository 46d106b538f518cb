//! Layers as a model's description names them.

use serde::Deserialize;

use super::super::bounds::{Extent, Padding, Repeats};

/// A layer, and the name that its parameters begin with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Layer {
    /// The prefix of its parameters; by default its place, such as `layers.3`.
    pub name: Option<String>,
    /// What it does.
    #[serde(flatten)]
    pub kind: LayerKind,
}

impl Layer {
    /// A layer whose parameters begin with `name`.
    pub fn named(name: &str, kind: LayerKind) -> Self {
        Self { name: Some(name.into()), kind }
    }
}

/// What a layer does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerKind {
    /// The rows of a table for the tokens.
    Embedding {
        /// Values of a row.
        width: Extent,
        /// Adds the rows of a second table with this many positions.
        positions: Option<Extent>,
    },
    /// A matrix product.
    Linear {
        /// Values that it makes.
        outputs: Extent,
        /// Adds a bias.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// The logits of a matrix product with the table of the embedding.
    TiedLinear,
    /// `max(x, 0)`.
    Relu {
        /// Also saves its input, which backward does not need.
        #[serde(default)]
        saves_input: bool,
    },
    /// The hyperbolic tangent.
    Tanh,
    /// GELU.
    Gelu {
        /// By its tanh form.
        #[serde(default)]
        tanh: bool,
    },
    /// Normalises the last dimension.
    LayerNorm,
    /// Divides the last dimension by the root of its mean square.
    RmsNorm,
    /// An MLP whose hidden values are multiplied by SiLU of as many others (SwiGLU), without biases.
    GatedMlp {
        /// Hidden values.
        hidden: Extent,
    },
    /// Attention and an MLP of four times the width, each with a residual connection and a norm.
    Transformer {
        /// Attention heads.
        heads: Extent,
        /// A position attends only to itself and those before.
        #[serde(default)]
        causal: bool,
        /// Normalises the sums instead of the inputs of attention and MLP.
        #[serde(default)]
        post_norm: bool,
        /// GELU by its tanh form.
        #[serde(default)]
        tanh: bool,
        /// Number of such blocks in a row.
        #[serde(default)]
        repeat: Repeats,
    },
    /// Cuts an image into squares and computes a vector for each, to which a learned vector for its place is added.
    Patches {
        /// Side of a square, in pixels.
        side: Extent,
        /// Values of a vector.
        width: Extent,
    },
    /// A square convolution.
    Conv {
        /// Channels that it makes.
        outputs: Extent,
        /// Side of its kernel.
        kernel: Extent,
        /// Pixels between two positions of the kernel.
        #[serde(default)]
        stride: Extent,
        /// Pixels of zeros around the image.
        #[serde(default)]
        padding: Padding,
        /// Adds a bias.
        #[serde(default = "yes")]
        bias: bool,
    },
    /// Normalises each channel over the samples and the area of their images.
    BatchNorm,
    /// The largest value of each window.
    MaxPool {
        /// Side of a window.
        kernel: Extent,
        /// Pixels from one window to the next.
        stride: Extent,
        /// Pixels around the image, never the largest.
        #[serde(default)]
        padding: Padding,
    },
    /// The mean of all rows, or of an image's area.
    Mean,
    /// Layers that are checkpointed as one.
    Block {
        /// The layers.
        layers: Vec<Layer>,
        /// Adds the block's input.
        #[serde(default)]
        residual: bool,
        /// Autocast, if it is on, applies within the block; `false` computes in 32 bits.
        #[serde(default = "yes")]
        autocast: bool,
        /// Number of such blocks in a row.
        #[serde(default)]
        repeat: Repeats,
    },
}

const fn yes() -> bool {
    true
}

impl LayerKind {
    /// How often it is repeated.
    pub(super) const fn repeats(&self) -> Repeats {
        match self {
            Self::Transformer { repeat, .. } | Self::Block { repeat, .. } => *repeat,
            _ => Repeats::nearest(1),
        }
    }

    /// Whether it contains attention.
    #[must_use]
    pub fn has_attention(&self) -> bool {
        match self {
            Self::Transformer { .. } => true,
            Self::Block { layers, .. } => layers.iter().any(|layer| layer.kind.has_attention()),
            _ => false,
        }
    }

    /// Whether it can be checkpointed.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        matches!(self, Self::Transformer { .. } | Self::Block { .. })
    }

    /// As descriptions write it.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Embedding { .. } => "embedding",
            Self::Linear { .. } => "linear",
            Self::TiedLinear => "tied_linear",
            Self::Relu { .. } => "relu",
            Self::Gelu { .. } => "gelu",
            Self::LayerNorm => "layer_norm",
            Self::RmsNorm => "rms_norm",
            Self::GatedMlp { .. } => "gated_mlp",
            Self::Transformer { .. } => "transformer",
            Self::Patches { .. } => "patches",
            Self::Conv { .. } => "conv",
            Self::BatchNorm => "batch_norm",
            Self::MaxPool { .. } => "max_pool",
            Self::Tanh => "tanh",
            Self::Mean => "mean",
            Self::Block { .. } => "block",
        }
    }
}
