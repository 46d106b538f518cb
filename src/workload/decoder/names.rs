//! The names of a decoder's modules in each family.

use super::super::lora::Target;

/// Module names in transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Everything but the head.
    pub model: &'static str,
    /// The table of tokens.
    pub embedding: &'static str,
    /// The table of positions, where they are learned.
    pub positions: &'static str,
    /// Its layers.
    pub layers: &'static str,
    /// The norms of a layer that has two.
    pub norms: [&'static str; 2],
    /// Attention, in a layer.
    pub attention: &'static str,
    /// The norms of heads of queries and of keys, in attention.
    pub head_norms: [&'static str; 2],
    /// The part of a layer after attention; empty if the layer itself has the parts of the MLP.
    pub mlp_of_layer: &'static str,
    /// The last norm.
    pub norm: &'static str,
    /// One projection to queries, keys and values.
    pub projections: Target,
    /// The projection of attention's output.
    pub output: Target,
    /// Both layers of an MLP without a gate.
    pub mlp: [Target; 2],
    /// The router of experts.
    pub router: &'static str,
    /// The layers that get adapters by default in peft 0.21 beside transformers 5.17; none if it asks for names.
    pub adapted: &'static [Target],
}

impl Names {
    /// Llama's.
    pub const LLAMA: Self = Self {
        model: "model",
        embedding: "embed_tokens",
        positions: "embed_positions",
        layers: "layers",
        norms: ["input_layernorm", "post_attention_layernorm"],
        attention: "self_attn",
        head_norms: ["q_norm", "k_norm"],
        mlp_of_layer: "mlp",
        norm: "norm",
        projections: Target::QueryKeyValue,
        output: Target::Output,
        mlp: [Target::First, Target::Second],
        router: "gate",
        adapted: &[],
    };
    /// Llama's, where peft's default is queries and values.
    pub const ADAPTED: Self = Self { adapted: &[Target::Query, Target::Value], ..Self::LLAMA };
    /// Llama's, beside a vision tower.
    pub const BESIDE_TOWER: Self = Self { model: "model.language_model", ..Self::LLAMA };

    /// The name of the MLP's module in `layer`, which may be the layer itself.
    pub(super) fn mlp_of(self, layer: &str) -> String {
        match self.mlp_of_layer {
            "" => layer.to_owned(),
            mlp => format!("{layer}.{mlp}"),
        }
    }

    /// The name of a layer.
    pub(super) fn layer(self, number: usize) -> String {
        format!("{}.{}.{number}", self.model, self.layers)
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::ADAPTED
    }
}
