//! The keys of GPT-2's `config.json`, which has its own names for sizes.

use serde::Deserialize;

use super::super::bounds::{Extent, Repeats};

/// Keys of GPT-2 alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Gpt2Keys {
    /// `hidden_size`.
    pub n_embd: Option<Extent>,
    /// The same, as BLOOM's first files call it.
    pub n_embed: Option<Extent>,
    /// `num_hidden_layers`.
    pub n_layer: Option<Repeats>,
    /// `num_attention_heads`.
    pub n_head: Option<Extent>,
    /// Positions that have embeddings.
    pub n_positions: Option<Extent>,
    /// `intermediate_size`: four times the width where it is left out.
    pub n_inner: Option<Extent>,
    /// `hidden_act`; other families have this key too but don't read it.
    pub activation_function: Option<String>,
    /// `layer_norm_eps`; the same holds.
    pub layer_norm_epsilon: Option<f64>,
    scale_attn_weights: Option<bool>,
    add_cross_attention: Option<bool>,
}

impl Gpt2Keys {
    /// The keys that GPT-2 reads.
    pub const OWN: &[&str] =
        &["attn_pdrop", "embd_pdrop", "n_embd", "n_head", "n_inner", "n_layer", "n_positions", "resid_pdrop"];
    /// The keys that are given and that other families don't read.
    pub fn asked(&self) -> [(&'static str, bool); 6] {
        [
            ("n_embd", self.n_embd.is_some()),
            ("n_embed", self.n_embed.is_some()),
            ("n_head", self.n_head.is_some()),
            ("n_inner", self.n_inner.is_some()),
            ("n_layer", self.n_layer.is_some()),
            ("n_positions", self.n_positions.is_some()),
        ]
    }

    /// The key that asks GPT-2 for something unsupported.
    pub fn missing(&self) -> Option<&'static str> {
        let cross = (self.add_cross_attention == Some(true)).then_some("add_cross_attention");
        cross.or((self.scale_attn_weights == Some(false)).then_some("scale_attn_weights"))
    }
}
