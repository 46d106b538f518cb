//! What a layer's attention gets besides the hidden states.

use std::cell::{Cell, RefCell};

use vramlab_train::{RotaryTables, SdpaMask, Tensor};

/// A mask in the form that attention takes.
#[derive(Clone)]
pub(super) enum Mask {
    /// Added to the scores of eager attention.
    Added(Tensor),
    /// Given to SDPA.
    Sdpa(SdpaMask),
}

/// The weights of attention that a layer returned beside its output (Falcon, BLOOM): a variable of the model's forward holds both until
/// the next layer has returned. A checkpoint's second run returns to nobody.
#[derive(Default)]
pub(super) struct ReturnedWeights {
    weights: RefCell<Option<Tensor>>,
    is_over: Cell<bool>,
}

impl ReturnedWeights {
    /// Replaces those of the layer before.
    pub fn replace(&self, weights: Option<Tensor>) {
        if !self.is_over.get() {
            self.weights.replace(weights);
        }
    }

    /// The forward pass returns, and frees its variables.
    pub fn end(&self) {
        self.is_over.set(true);
        self.weights.take();
    }
}

/// Inputs of a layer's attention besides the hidden states.
pub(super) struct AttentionInputs {
    /// `None` if positions are learned.
    pub tables: Option<RotaryTables>,
    /// Queries and keys are rotated.
    pub rotates: bool,
    pub mask: Option<Mask>,
    /// The bias of positions, if scores have one.
    pub bias: Option<Tensor>,
    /// Keys and values go into a cache.
    pub caches: bool,
    /// The layer has a sliding window.
    pub windowed: bool,
}
