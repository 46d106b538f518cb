//! What families call the modules of a decoder.

use super::super::lora::Target;

/// Modules by their names in transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// All but the head.
    pub model: &'static str,
    /// The table of tokens.
    pub embedding: &'static str,
    /// Attention, in a layer.
    pub attention: &'static str,
    /// The last norm.
    pub norm: &'static str,
    /// One projection to queries, keys and values.
    pub projections: Target,
    /// The projection of what attention puts out.
    pub output: Target,
    /// Both layers of an MLP without a gate.
    pub mlp: [Target; 2],
}

impl Names {
    /// Llama's.
    pub const LLAMA: Self = Self {
        model: "model",
        embedding: "embed_tokens",
        attention: "self_attn",
        norm: "norm",
        projections: Target::QueryKeyValue,
        output: Target::Output,
        mlp: [Target::First, Target::Second],
    };
    /// GPT-NeoX's.
    pub const NEOX: Self = Self {
        model: "gpt_neox",
        embedding: "embed_in",
        attention: "attention",
        norm: "final_layer_norm",
        projections: Target::WholeQueryKeyValue,
        output: Target::Dense,
        mlp: [Target::Widening, Target::Narrowing],
    };

    /// A layer.
    pub(super) fn layer(self, number: usize) -> String {
        format!("{}.layers.{number}", self.model)
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::LLAMA
    }
}
