//! What a layer's attention gets besides the hidden states.

use vramlab_train::{RotaryTables, SdpaMask, Tensor};

/// A mask in the form that attention takes.
#[derive(Clone)]
pub(super) enum Mask {
    /// Added to the scores of eager attention.
    Added(Tensor),
    /// Given to SDPA.
    Sdpa(SdpaMask),
}

/// Inputs of a layer's attention besides the hidden states.
pub(super) struct AttentionInputs {
    /// `None` if positions are learned.
    pub tables: Option<RotaryTables>,
    /// Queries and keys are rotated.
    pub rotates: bool,
    pub mask: Option<Mask>,
    /// Keys and values go into a cache.
    pub caches: bool,
    /// The layer has a sliding window.
    pub windowed: bool,
}
