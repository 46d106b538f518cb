//! Choices between ways of computing the same result.

use serde::{Deserialize, Serialize};

/// Which attention kernel. A step ends with an error if the chosen one does not take the inputs, as in PyTorch.
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
    /// Op for op, as transformers' models do with `attn_implementation="eager"`.
    Eager,
}

/// How a language model gets from its last hidden states to a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossHead {
    /// transformers' own, from labels: logits in f32, labels shifted by one.
    #[default]
    Labels,
    /// As transformers did up to version 4.48: logits in f32, then one more copy of all but the last position of each sequence.
    #[serde(rename = "labels-copied")]
    LabelsCopied,
    /// Written by hand: logits in f32, and a copy of all but the last position of each sequence.
    Shifted,
    /// In eight chunks of the positions, as torchtune: only one eighth of the logits is in f32 at a time, besides what is saved.
    Chunked,
    /// Fused with the head, as Liger: no logits are kept, their gradients are computed in forward.
    Fused,
    /// As Liger up to version 0.4: each chunk of logits is cast to f32 beside its copies in 16 bits.
    #[serde(rename = "fused-f32")]
    FusedF32,
}

impl LossHead {
    /// The model is given labels and computes the loss itself.
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
