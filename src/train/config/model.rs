//! Which of the ways a model has to compute the same.

use serde::{Deserialize, Serialize};

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
