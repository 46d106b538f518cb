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
    /// The layers that get peft's adapters by default.
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
        adapted: &[Target::Query, Target::Value],
    };
    /// Llama's, beside a vision tower.
    pub const BESIDE_TOWER: Self = Self { model: "model.language_model", ..Self::LLAMA };
    /// Arcee's.
    pub const ARCEE: Self = Self { mlp: [Target::Up, Target::Down], ..Self::LLAMA };
    /// GPT-NeoX's.
    pub const NEOX: Self = Self {
        model: "gpt_neox",
        embedding: "embed_in",
        attention: "attention",
        norm: "final_layer_norm",
        projections: Target::WholeQueryKeyValue,
        output: Target::Dense,
        mlp: [Target::Widening, Target::Narrowing],
        adapted: &[Target::WholeQueryKeyValue],
        ..Self::LLAMA
    };
    /// GPT-2's.
    pub const GPT2: Self = Self {
        model: "transformer",
        embedding: "wte",
        positions: "wpe",
        layers: "h",
        norms: ["ln_1", "ln_2"],
        attention: "attn",
        norm: "ln_f",
        projections: Target::WholeAttention,
        output: Target::Second,
        adapted: &[Target::WholeAttention],
        ..Self::LLAMA
    };
    /// DeepSeek's; peft has no layers of its own for it.
    pub const DEEPSEEK: Self = Self { adapted: &[], ..Self::LLAMA };
    /// BLOOM's.
    pub const BLOOM: Self = Self { norms: ["input_layernorm", "post_attention_layernorm"], ..Self::FALCON };
    /// Falcon's.
    pub const FALCON: Self = Self {
        model: "transformer",
        embedding: "word_embeddings",
        layers: "h",
        norms: ["ln_attn", "ln_mlp"],
        attention: "self_attention",
        norm: "ln_f",
        ..Self::NEOX
    };
    /// OPT's, whose MLP is no module of its own.
    pub const OPT: Self = Self {
        model: "model.decoder",
        norms: ["self_attn_layer_norm", "final_layer_norm"],
        mlp_of_layer: "",
        norm: "final_layer_norm",
        output: Target::OutputOfTower,
        mlp: [Target::Wider, Target::Narrower],
        ..Self::LLAMA
    };
    /// Phi's.
    pub const PHI: Self = Self {
        head_norms: ["q_layernorm", "k_layernorm"],
        norm: "final_layernorm",
        output: Target::Dense,
        mlp: [Target::Wider, Target::Narrower],
        adapted: &[Target::Query, Target::Value, Target::Wider, Target::Narrower],
        ..Self::LLAMA
    };

    /// gpt-oss's.
    pub const GPT_OSS: Self = Self { router: "router", ..Self::LLAMA };
    /// GraniteMoE's.
    pub const GRANITE_MOE: Self = Self { mlp_of_layer: "block_sparse_moe", ..Self::GPT_OSS };
    /// Granite 4's.
    pub const GRANITE4: Self = Self { mlp_of_layer: "shared_mlp", ..Self::LLAMA };
    /// Hunyuan's.
    pub const HUNYUAN: Self = Self { head_norms: ["query_layernorm", "key_layernorm"], ..Self::LLAMA };

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
        Self::LLAMA
    }
}
