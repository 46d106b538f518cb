//! The keys of Falcon's `config.json`.

use serde::Deserialize;

use super::super::bounds::Extent;
use super::style::{LayerFusion, NormPlaces, Style};

/// Keys of Falcon alone.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct FalconKeys {
    /// `hidden_act`; other families have this key too but don't read it.
    pub activation: Option<String>,
    /// `intermediate_size`: four times the width by default.
    pub ffn_hidden_size: Option<Extent>,
    /// Groups of heads with a key each, in the newer layers.
    num_kv_heads: Option<Extent>,
    /// The newer layers (Falcon 40B).
    new_decoder_architecture: Option<bool>,
    /// Norms of a layer's input.
    num_ln_in_parallel_attn: Option<u8>,
    alibi: Option<bool>,
    bias: Option<bool>,
    multi_query: Option<bool>,
    parallel_attn: Option<bool>,
}

impl FalconKeys {
    /// The keys that Falcon reads.
    pub const OWN: &[&str] = &[
        "alibi",
        "bias",
        "ffn_hidden_size",
        "hidden_dropout",
        "multi_query",
        "new_decoder_architecture",
        "num_kv_heads",
        "num_ln_in_parallel_attn",
        "parallel_attn",
    ];

    /// The keys that are given and that other families don't read.
    pub fn asked(&self) -> [(&'static str, bool); 8] {
        [
            ("alibi", self.alibi == Some(true)),
            ("bias", self.bias == Some(true)),
            ("ffn_hidden_size", self.ffn_hidden_size.is_some()),
            ("multi_query", self.multi_query == Some(true)),
            ("new_decoder_architecture", self.new_decoder_architecture == Some(true)),
            ("num_kv_heads", self.num_kv_heads.is_some()),
            ("num_ln_in_parallel_attn", self.num_ln_in_parallel_attn.is_some()),
            ("parallel_attn", self.parallel_attn == Some(true)),
        ]
    }

    /// Whether its layers are the newer ones.
    fn is_new(&self) -> bool {
        self.new_decoder_architecture == Some(true)
    }

    /// The key that asks Falcon for something unsupported: what falcon-rw has, biases that depend on distances among it.
    pub fn missing(&self) -> Option<&'static str> {
        let asks = [
            ("alibi", self.alibi == Some(true)),
            ("bias", self.bias == Some(true)),
            ("multi_query", self.multi_query == Some(false) && !self.is_new()),
            ("parallel_attn", self.parallel_attn == Some(false)),
            ("num_ln_in_parallel_attn", self.norms() > if self.is_new() { 2 } else { 1 }),
        ];
        asks.into_iter().find(|(_, asks)| *asks).map(|(key, _)| key)
    }

    fn norms(&self) -> u8 {
        self.num_ln_in_parallel_attn.unwrap_or(if self.is_new() { 2 } else { 1 })
    }

    /// Heads of keys beside this many of queries: one for all, or one for each group.
    ///
    /// # Errors
    /// A sentence: groups that are not there.
    pub fn kv_heads(&self, heads: usize) -> Result<usize, String> {
        if !self.is_new() {
            return Ok(1);
        }
        let groups = self.num_kv_heads.map_or(heads, Extent::get);
        if groups < 2 || groups >= heads {
            return Err(format!(
                "num_kv_heads is {groups} of {heads} heads; with new_decoder_architecture use a number from 2 on, below the heads"
            ));
        }
        Ok(groups)
    }

    /// The style of its layers.
    pub fn style(&self, style: Style) -> Style {
        let places = if self.norms() == 2 { NormPlaces::BothInPlace } else { NormPlaces::OnceInPlace };
        Style { places, packing: LayerFusion::Groups, ..style }
    }
}
