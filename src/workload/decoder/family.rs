//! What the families of decoders differ in, by the `model_type` of a `config.json`, and their values where a key is missing.

use super::super::llama::NormKind;
use super::sizes::{Biases, HeadNorms, NormPlaces, Style};

/// One family.
pub(super) struct Family {
    /// Its `model_type`.
    pub name: &'static str,
    pub style: Style,
    /// Tokens that it knows, where a file may leave that out.
    pub vocab: Option<usize>,
    /// Heads of queries, where a file may.
    pub heads: Option<usize>,
    /// Heads of keys; as many as of queries where there is no number.
    pub kv_heads: Option<usize>,
    /// Elements of a head; the width over the heads where there is no number.
    pub head_size: Option<usize>,
    pub tied: bool,
    pub eps: f64,
    pub theta: f64,
    /// That of layers with a window, where these have frequencies of their own.
    pub local_theta: Option<f64>,
    pub padding: Option<i64>,
    /// What gates go through.
    pub activation: &'static str,
    /// Which layers have a window.
    pub windows: Windows,
    pub experts: Option<OwnExperts>,
    /// Keys that it reads and most others do not.
    pub own_keys: &'static [&'static str],
}

/// How a family has experts.
#[derive(Clone, Copy)]
pub(super) struct OwnExperts {
    /// How many.
    pub count: usize,
    /// How many of them a position goes to.
    pub chosen: usize,
    /// Hidden values of one; those of an MLP where there is no number.
    pub hidden: Option<usize>,
    /// Shares add up to 1, whatever the config says.
    pub normalises: bool,
    /// Shares are cast back to the type of the logits.
    pub narrows: bool,
    /// The router is made first.
    pub router_first: bool,
}

/// How a family tells which layers have a sliding window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Windows {
    /// It knows none.
    Never,
    /// All of them, where a window is given.
    All,
    /// All of them, `layer_types` aside, in a window of 4,096 positions unless another is given.
    AllOrListed,
    /// All of them, in a window of 4,096 positions unless another is given, where `use_sliding_window` says so.
    AllWhereAsked,
    /// All but every so many, `layer_types` aside, in a window of 4,096 positions unless another is given.
    AllButEvery(usize),
    /// Those behind `max_window_layers`, `layer_types` aside, where `use_sliding_window` says so.
    Late,
    /// Those that are not rotated, `layer_types` aside, where `use_sliding_window` says so.
    Unrotated,
}

const LLAMA: Family = Family {
    name: "llama",
    style: Style {
        norm: NormKind::Plain,
        places: NormPlaces::Before,
        heads: HeadNorms::None,
        biases: Biases::None,
        mlp_biases: false,
        packed: false,
        gemma: false,
        exact_gelu: false,
    },
    vocab: None,
    heads: None,
    kv_heads: None,
    head_size: None,
    tied: false,
    eps: 1e-6,
    theta: 10_000.0,
    local_theta: None,
    padding: None,
    activation: "silu",
    windows: Windows::Never,
    experts: None,
    own_keys: &["mlp_bias"],
};

const GEMMA: Style = Style { norm: NormKind::Centred, places: NormPlaces::Around, gemma: true, ..LLAMA.style };

/// All, in the order of their names.
pub(super) const FAMILIES: [Family; 16] = [
    Family {
        name: "gemma",
        style: Style { places: NormPlaces::Before, ..GEMMA },
        kv_heads: Some(16),
        head_size: Some(256),
        tied: true,
        padding: Some(0),
        activation: "gelu_pytorch_tanh",
        own_keys: &["gelu"],
        ..LLAMA
    },
    Family {
        name: "gemma2",
        style: GEMMA,
        kv_heads: Some(4),
        head_size: Some(256),
        tied: true,
        padding: Some(0),
        activation: "gelu_pytorch_tanh",
        windows: Windows::AllButEvery(2),
        own_keys: &["attn_logit_softcapping", "final_logit_softcapping", "hidden_activation", "query_pre_attn_scalar"],
        ..LLAMA
    },
    Family {
        name: "gemma3_text",
        style: Style { heads: HeadNorms::Each, ..GEMMA },
        vocab: Some(262_208),
        heads: Some(8),
        kv_heads: Some(4),
        head_size: Some(256),
        tied: true,
        theta: 1e6,
        local_theta: Some(10_000.0),
        padding: Some(0),
        activation: "gelu_pytorch_tanh",
        windows: Windows::AllButEvery(6),
        own_keys: &[
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "hidden_activation",
            "query_pre_attn_scalar",
            "rope_local_base_freq",
            "sliding_window_pattern",
        ],
        ..LLAMA
    },
    Family {
        name: "granite",
        own_keys: &[
            "attention_multiplier",
            "embedding_multiplier",
            "logits_scaling",
            "mlp_bias",
            "residual_multiplier",
        ],
        ..LLAMA
    },
    LLAMA,
    Family { name: "ministral", kv_heads: Some(8), windows: Windows::AllOrListed, own_keys: &[], ..LLAMA },
    Family {
        name: "ministral3",
        kv_heads: Some(8),
        head_size: Some(128),
        eps: 1e-5,
        padding: Some(11),
        windows: Windows::All,
        own_keys: &["llama_4_scaling_beta"],
        ..LLAMA
    },
    Family { name: "mistral", kv_heads: Some(8), windows: Windows::All, own_keys: &[], ..LLAMA },
    Family {
        name: "mixtral",
        kv_heads: Some(8),
        eps: 1e-5,
        windows: Windows::All,
        experts: Some(OwnExperts {
            count: 8,
            chosen: 2,
            hidden: None,
            normalises: true,
            narrows: false,
            router_first: true,
        }),
        own_keys: &["num_experts", "num_experts_per_tok", "num_local_experts"],
        ..LLAMA
    },
    Family {
        name: "olmo2",
        style: Style { norm: NormKind::Late, places: NormPlaces::Behind, heads: HeadNorms::Together, ..LLAMA.style },
        eps: 1e-5,
        padding: Some(1),
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "olmo3",
        style: Style { norm: NormKind::Late, places: NormPlaces::Behind, heads: HeadNorms::Together, ..LLAMA.style },
        eps: 1e-5,
        theta: 500_000.0,
        local_theta: Some(500_000.0),
        padding: Some(1),
        windows: Windows::AllButEvery(4),
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "phi3",
        style: Style { packed: true, ..LLAMA.style },
        eps: 1e-5,
        padding: Some(32_000),
        windows: Windows::All,
        own_keys: &["long_factor", "partial_rotary_factor", "short_factor"],
        ..LLAMA
    },
    Family {
        name: "qwen2",
        style: Style { biases: Biases::Inputs, ..LLAMA.style },
        kv_heads: Some(32),
        windows: Windows::Late,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "qwen3",
        style: Style { heads: HeadNorms::Each, ..LLAMA.style },
        kv_heads: Some(32),
        head_size: Some(128),
        windows: Windows::Late,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "qwen3_moe",
        style: Style { heads: HeadNorms::Each, ..LLAMA.style },
        kv_heads: Some(4),
        windows: Windows::AllWhereAsked,
        experts: Some(OwnExperts {
            count: 128,
            chosen: 8,
            hidden: Some(768),
            normalises: false,
            narrows: true,
            router_first: false,
        }),
        own_keys: &[
            "decoder_sparse_step",
            "mlp_only_layers",
            "moe_intermediate_size",
            "norm_topk_prob",
            "num_experts",
            "num_experts_per_tok",
            "num_local_experts",
        ],
        ..LLAMA
    },
    Family {
        name: "smollm3",
        kv_heads: Some(4),
        tied: true,
        theta: 2e6,
        padding: Some(128_004),
        windows: Windows::Unrotated,
        own_keys: &["mlp_bias", "no_rope_layer_interval", "no_rope_layers"],
        ..LLAMA
    },
];
