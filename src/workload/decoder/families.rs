//! The families of decoders: the properties of each, and its defaults for keys that a `config.json` leaves out.

use vramlab_train::{ExpertScores, GroupRule};

use super::super::llama::{NormKind, PackedMlp};
use super::super::plan::{ExpertFiles, TensorPair, TensorPlan};
use super::falcon::FalconKeys;
use super::family::{Family, OwnExperts, WindowRule};
use super::gpt2::Gpt2Keys;
use super::names::Names;
use super::opt::OptKeys;
use super::style::{
    Biases, HeadNorms, LayerFusion, LayerLocals, MlpActivation, NormPlaces, NormsMade, PositionUse, Rotation, Style,
};

impl Family {
    /// The family of a `model_type`.
    ///
    /// # Errors
    /// A sentence: the family is not supported.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| {
            let known = Self::known();
            format!(
                "model_type '{name}' is not there; write its sizes into a config.json of the nearest that is: {known}"
            )
        })
    }

    /// Every supported `model_type`.
    pub fn known() -> String {
        let mut known: Vec<_> = FAMILIES.iter().map(|family| family.name).chain(["gemma3", "mistral3"]).collect();
        known.sort_unstable();
        known.join(", ")
    }
}

/// The usual properties of experts.
const EXPERTS: OwnExperts = OwnExperts {
    count: 8,
    chosen: 2,
    hidden: None,
    normalises: false,
    narrows: true,
    widens: false,
    of_chosen: false,
    router_first: true,
    in_groups: None,
    narrow_correction: false,
    dense: 0,
    shared: None,
    clamped: false,
};

/// Experts that are weighed by sigmoids, in one group.
const IN_ONE_GROUP: GroupRule = GroupRule { scores: ExpertScores::Sigmoid, groups: 1, chosen_groups: 1, factor: 1.0 };

const LLAMA: Family = Family {
    name: "llama",
    style: Style::LLAMA,
    attention_bias: (false, Biases::All),
    vocab: None,
    heads: None,
    kv_heads: None,
    head_size: None,
    tied: false,
    eps: 1e-6,
    theta: 10_000.0,
    local_theta: None,
    rotated: 1.0,
    padding: None,
    dropout: 0.0,
    activation: "silu",
    windows: WindowRule::Never,
    turns_in_windows: false,
    experts: None,
    own_keys: &["mlp_bias"],
};

/// Llama's plan, and the table of tokens.
const WITH_TABLE: TensorPlan = TensorPlan { table: true, ..TensorPlan::LLAMA };

/// Llama's plan with norms of heads.
const WITH_NORMS: TensorPlan = TensorPlan { norms: true, ..TensorPlan::LLAMA };

/// No plan.
const NO_PLAN: TensorPlan = TensorPlan { none: true, ..TensorPlan::LLAMA };

/// The keys of Granite's multipliers.
const MULTIPLIED: [&str; 4] = ["attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"];

/// Granite's multipliers and the keys of its experts.
const GRANITE_EXPERTS: [&str; 6] =
    [MULTIPLIED[0], MULTIPLIED[1], MULTIPLIED[2], MULTIPLIED[3], "num_experts_per_tok", "num_local_experts"];

/// The keys of DeepSeek's experts and latent vectors.
const DEEPSEEK: [&str; 15] = [
    "first_k_dense_replace",
    "kv_lora_rank",
    "moe_intermediate_size",
    "n_group",
    "n_routed_experts",
    "n_shared_experts",
    "norm_topk_prob",
    "num_experts_per_tok",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "rope_interleave",
    "routed_scaling_factor",
    "topk_group",
    "v_head_dim",
];

/// `attention_bias` is not read.
const NO_BIAS: (bool, Biases) = (false, Biases::None);

const GEMMA: Style =
    Style { norm: NormKind::Centred, places: NormPlaces::Around, gemma: true, plan: WITH_TABLE, ..Style::LLAMA };

const COHERE: Family = Family {
    name: "cohere",
    style: Style {
        norm: NormKind::Unbiased,
        places: NormPlaces::Once,
        rotation: Rotation::CastNeighbours,
        plan: WITH_TABLE,
        ..Style::LLAMA
    },
    tied: true,
    eps: 1e-5,
    padding: Some(0),
    own_keys: &["layer_norm_eps", "logit_scale", "use_qk_norm"],
    ..LLAMA
};

const OLMO: Style = Style {
    norm: NormKind::Late,
    places: NormPlaces::Behind,
    heads: HeadNorms::Together,
    rotation: Rotation::Wide,
    plan: TensorPlan { attention: TensorPair::Gathered, ..TensorPlan::LLAMA },
    ..Style::LLAMA
};

const GLM: Family = Family {
    name: "glm4",
    style: Style {
        places: NormPlaces::AroundParts,
        rotation: Rotation::Neighbours,
        packing: LayerFusion::Gates,
        plan: TensorPlan { mlp: TensorPair::Gathered, ..TensorPlan::LLAMA },
        ..Style::LLAMA
    },
    attention_bias: (true, Biases::Inputs),
    kv_heads: Some(2),
    head_size: Some(128),
    eps: 1.5625e-7,
    rotated: 0.5,
    padding: Some(151_329),
    own_keys: &["partial_rotary_factor"],
    ..LLAMA
};

/// All, in the order of their names.
static FAMILIES: [Family; 43] = [
    Family {
        name: "arcee",
        style: Style { ungated: true, names: Names::ARCEE, activation: MlpActivation::SquaredRelu, ..Style::LLAMA },
        eps: 1e-5,
        activation: "relu2",
        ..LLAMA
    },
    Family {
        name: "bloom",
        style: Style {
            norm: NormKind::Layer,
            mlp_biases: true,
            rotation: Rotation::Never,
            packing: LayerFusion::Selected,
            ungated: true,
            alibi: true,
            norms_made: NormsMade::InTurn,
            names: Names::BLOOM,
            plan: NO_PLAN,
            activation: MlpActivation::BloomGelu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(250_880),
        heads: Some(8),
        tied: true,
        eps: 1e-5,
        own_keys: &["hidden_dropout", "n_embed", "n_head", "n_layer"],
        ..LLAMA
    },
    Family { name: "cohere", theta: 500_000.0, ..COHERE },
    Family {
        name: "cohere2",
        windows: WindowRule::AllButEvery(4),
        turns_in_windows: true,
        own_keys: &["layer_norm_eps", "logit_scale", "sliding_window_pattern"],
        ..COHERE
    },
    Family {
        name: "deepseek_v2",
        style: Style { rotation: Rotation::Complex, names: Names::DEEPSEEK, ..Style::LLAMA },
        vocab: Some(102_400),
        heads: Some(32),
        experts: Some(OwnExperts {
            count: 64,
            hidden: Some(1407),
            narrows: false,
            router_first: false,
            in_groups: Some(GroupRule { scores: ExpertScores::Softmax, ..IN_ONE_GROUP }),
            shared: Some(2),
            ..EXPERTS
        }),
        own_keys: &DEEPSEEK,
        ..LLAMA
    },
    Family {
        name: "deepseek_v3",
        style: Style { rotation: Rotation::Pairs, names: Names::DEEPSEEK, ..Style::LLAMA },
        vocab: Some(129_280),
        heads: Some(128),
        experts: Some(OwnExperts {
            count: 256,
            chosen: 8,
            hidden: Some(2048),
            narrows: false,
            router_first: false,
            in_groups: Some(GroupRule { groups: 8, chosen_groups: 4, factor: 2.5, ..IN_ONE_GROUP }),
            narrow_correction: true,
            dense: 3,
            ..EXPERTS
        }),
        own_keys: &DEEPSEEK,
        ..LLAMA
    },
    Family {
        name: "ernie4_5",
        attention_bias: NO_BIAS,
        style: Style { rotation: Rotation::WideNeighbours, plan: WITH_TABLE, ..Style::LLAMA },
        kv_heads: Some(2),
        head_size: Some(128),
        tied: true,
        eps: 1e-5,
        theta: 500_000.0,
        padding: Some(0),
        own_keys: &["use_bias"],
        ..LLAMA
    },
    Family {
        name: "exaone4",
        style: Style { places: NormPlaces::Behind, heads: HeadNorms::Each, plan: WITH_NORMS, ..Style::LLAMA },
        attention_bias: NO_BIAS,
        kv_heads: Some(32),
        eps: 1e-5,
        windows: WindowRule::AllButEveryUnlessNone(4),
        turns_in_windows: true,
        own_keys: &["sliding_window_pattern"],
        ..LLAMA
    },
    Family {
        name: "falcon",
        style: Style {
            norm: NormKind::Layer,
            ungated: true,
            products: true,
            always_masks: true,
            told: PositionUse::Layers,
            names: Names::FALCON,
            plan: NO_PLAN,
            activation: MlpActivation::Gelu,
            ..Style::LLAMA
        },
        attention_bias: NO_BIAS,
        vocab: Some(65_024),
        heads: Some(71),
        tied: true,
        eps: 1e-5,
        activation: "gelu",
        own_keys: FalconKeys::OWN,
        ..LLAMA
    },
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
        windows: WindowRule::AllButEvery(2),
        own_keys: &["attn_logit_softcapping", "final_logit_softcapping", "hidden_activation", "query_pre_attn_scalar"],
        ..LLAMA
    },
    Family {
        name: "gemma3_text",
        style: Style { heads: HeadNorms::Each, plan: TensorPlan { norms: true, ..WITH_TABLE }, ..GEMMA },
        vocab: Some(262_208),
        heads: Some(8),
        kv_heads: Some(4),
        head_size: Some(256),
        tied: true,
        theta: 1e6,
        local_theta: Some(10_000.0),
        padding: Some(0),
        activation: "gelu_pytorch_tanh",
        windows: WindowRule::AllButEvery(6),
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
    Family { name: "glm", style: Style { places: NormPlaces::Before, ..GLM.style }, ..GLM },
    GLM,
    Family {
        name: "glm4_moe",
        style: Style { rotation: Rotation::GivingWay, ..Style::LLAMA },
        attention_bias: (false, Biases::Inputs),
        vocab: Some(151_552),
        heads: Some(96),
        kv_heads: Some(8),
        eps: 1e-5,
        rotated: 0.5,
        experts: Some(OwnExperts {
            count: 128,
            chosen: 8,
            hidden: Some(1408),
            narrows: false,
            router_first: false,
            in_groups: Some(IN_ONE_GROUP),
            dense: 1,
            ..EXPERTS
        }),
        own_keys: &[
            "first_k_dense_replace",
            "moe_intermediate_size",
            "n_group",
            "n_routed_experts",
            "n_shared_experts",
            "norm_topk_prob",
            "num_experts_per_tok",
            "partial_rotary_factor",
            "routed_scaling_factor",
            "topk_group",
            "use_qk_norm",
        ],
        ..LLAMA
    },
    Family {
        name: "gpt2",
        style: Style {
            norm: NormKind::Layer,
            mlp_biases: true,
            packing: LayerFusion::Thirds,
            ungated: true,
            conv1d: true,
            norms_made: NormsMade::InTurn,
            kept: LayerLocals::Outputs,
            names: Names::GPT2,
            plan: NO_PLAN,
            activation: MlpActivation::NewGelu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(50_257),
        heads: Some(12),
        tied: true,
        eps: 1e-5,
        dropout: 0.1,
        activation: "gelu_new",
        own_keys: Gpt2Keys::OWN,
        ..LLAMA
    },
    Family {
        name: "gpt_neox",
        style: Style {
            norm: NormKind::Layer,
            places: NormPlaces::Beside,
            mlp_biases: true,
            packing: LayerFusion::Heads,
            ungated: true,
            norms_made: NormsMade::First,
            names: Names::NEOX,
            plan: TensorPlan { head: "embed_out", ..TensorPlan::LLAMA },
            activation: MlpActivation::Gelu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        eps: 1e-5,
        rotated: 0.25,
        activation: "gelu",
        own_keys: &[
            "hidden_dropout",
            "layer_norm_eps",
            "partial_rotary_factor",
            "rotary_emb_base",
            "rotary_pct",
            "use_parallel_residual",
        ],
        ..LLAMA
    },
    Family {
        name: "gpt_oss",
        style: Style {
            norm: NormKind::Late,
            rotation: Rotation::Halves,
            sinks: true,
            told: PositionUse::Layers,
            names: Names::GPT_OSS,
            plan: NO_PLAN,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(201_088),
        heads: Some(64),
        kv_heads: Some(8),
        head_size: Some(64),
        eps: 1e-5,
        theta: 150_000.0,
        windows: WindowRule::AllButEvery(2),
        experts: Some(OwnExperts { count: 128, chosen: 4, narrows: false, clamped: true, of_chosen: true, ..EXPERTS }),
        own_keys: &["num_experts", "num_experts_per_tok", "num_local_experts"],
        ..LLAMA
    },
    Family {
        name: "granite",
        own_keys: &[MULTIPLIED[0], MULTIPLIED[1], MULTIPLIED[2], MULTIPLIED[3], "mlp_bias"],
        ..LLAMA
    },
    Family {
        name: "granitemoe",
        style: Style { norms_made: NormsMade::Between, names: Names::GRANITE_MOE, plan: NO_PLAN, ..Style::LLAMA },
        experts: Some(OwnExperts { widens: true, of_chosen: true, ..EXPERTS }),
        own_keys: &GRANITE_EXPERTS,
        ..LLAMA
    },
    Family {
        name: "granitemoehybrid",
        style: Style {
            packing: LayerFusion::Gates,
            packed: PackedMlp::GRANITE,
            norms_made: NormsMade::BeforeMlp,
            told: PositionUse::Neither,
            names: Names::GRANITE4,
            plan: NO_PLAN,
            ..Style::LLAMA
        },
        own_keys: &GRANITE_EXPERTS,
        ..LLAMA
    },
    Family {
        name: "hunyuan_v1_dense",
        style: Style {
            heads: HeadNorms::Turned,
            turns_anew: true,
            names: Names::HUNYUAN,
            plan: NO_PLAN,
            ..Style::LLAMA
        },
        eps: 1e-5,
        vocab: Some(290_943),
        padding: Some(0),
        own_keys: &["alpha", "num_experts", "use_qk_norm"],
        ..LLAMA
    },
    LLAMA,
    Family {
        name: "ministral",
        attention_bias: NO_BIAS,
        kv_heads: Some(8),
        windows: WindowRule::AllOrListed,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "ministral3",
        attention_bias: NO_BIAS,
        kv_heads: Some(8),
        head_size: Some(128),
        eps: 1e-5,
        padding: Some(11),
        windows: WindowRule::All,
        own_keys: &["llama_4_scaling_beta"],
        ..LLAMA
    },
    Family {
        name: "mistral",
        attention_bias: NO_BIAS,
        kv_heads: Some(8),
        windows: WindowRule::All,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "mixtral",
        style: Style { plan: TensorPlan { experts: ExpertFiles::Mixtral, ..TensorPlan::LLAMA }, ..Style::LLAMA },
        attention_bias: NO_BIAS,
        kv_heads: Some(8),
        eps: 1e-5,
        windows: WindowRule::All,
        experts: Some(OwnExperts { normalises: true, narrows: false, ..EXPERTS }),
        own_keys: &["num_experts", "num_experts_per_tok", "num_local_experts"],
        ..LLAMA
    },
    Family {
        name: "nemotron",
        style: Style {
            norm: NormKind::CentredLayer,
            rotation: Rotation::BeforeRest,
            ungated: true,
            names: Names::ARCEE,
            plan: NO_PLAN,
            activation: MlpActivation::SquaredRelu,
            ..Style::LLAMA
        },
        eps: 1e-5,
        rotated: 0.5,
        activation: "relu2",
        own_keys: &["mlp_bias", "norm_eps", "partial_rotary_factor"],
        ..LLAMA
    },
    Family {
        name: "olmo",
        style: Style { norm: NormKind::Bare, rotation: Rotation::Wide, ..Style::LLAMA },
        eps: 1e-5,
        padding: Some(1),
        own_keys: &["clip_qkv"],
        ..LLAMA
    },
    Family { name: "olmo2", style: OLMO, eps: 1e-5, padding: Some(1), own_keys: &[], ..LLAMA },
    Family {
        name: "olmo3",
        style: OLMO,
        eps: 1e-5,
        theta: 500_000.0,
        local_theta: Some(500_000.0),
        padding: Some(1),
        windows: WindowRule::AllButEvery(4),
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "olmoe",
        style: Style {
            heads: HeadNorms::Together,
            plan: TensorPlan { experts: ExpertFiles::Own, attention: TensorPair::Gathered, ..TensorPlan::LLAMA },
            ..Style::LLAMA
        },
        eps: 1e-5,
        padding: Some(1),
        experts: Some(OwnExperts { count: 64, chosen: 8, ..EXPERTS }),
        own_keys: &["norm_topk_prob", "num_experts", "num_experts_per_tok", "num_local_experts"],
        ..LLAMA
    },
    Family {
        name: "opt",
        style: Style {
            norm: NormKind::Layer,
            mlp_biases: true,
            ungated: true,
            norms_made: NormsMade::BehindEach,
            counts_mask: true,
            scales_queries: true,
            names: Names::OPT,
            plan: NO_PLAN,
            activation: MlpActivation::Relu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(50_272),
        tied: true,
        eps: 1e-5,
        padding: Some(1),
        activation: "relu",
        own_keys: OptKeys::OWN,
        ..LLAMA
    },
    Family {
        name: "phi",
        style: Style {
            norm: NormKind::Layer,
            places: NormPlaces::OncePaired,
            biases: Biases::All,
            mlp_biases: true,
            ungated: true,
            head_bias: true,
            norms_made: NormsMade::VeryLast,
            kept: LayerLocals::Rotated,
            names: Names::PHI,
            activation: MlpActivation::NewGelu,
            ..Style::LLAMA
        },
        attention_bias: NO_BIAS,
        vocab: Some(51_200),
        eps: 1e-5,
        rotated: 0.5,
        activation: "gelu_new",
        own_keys: &["embd_pdrop", "layer_norm_eps", "partial_rotary_factor", "qk_layernorm", "resid_pdrop"],
        ..LLAMA
    },
    Family {
        name: "phi3",
        attention_bias: NO_BIAS,
        style: Style {
            packing: LayerFusion::All,
            plan: TensorPlan { attention: TensorPair::Gathered, mlp: TensorPair::Gathered, ..TensorPlan::LLAMA },
            ..Style::LLAMA
        },
        eps: 1e-5,
        padding: Some(32_000),
        windows: WindowRule::All,
        own_keys: &["long_factor", "partial_rotary_factor", "short_factor"],
        ..LLAMA
    },
    Family {
        name: "qwen2",
        style: Style { biases: Biases::Inputs, ..Style::LLAMA },
        kv_heads: Some(32),
        windows: WindowRule::Late,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "qwen2_moe",
        style: Style { biases: Biases::Inputs, ..Style::LLAMA },
        kv_heads: Some(16),
        windows: WindowRule::Early,
        experts: Some(OwnExperts { count: 60, chosen: 4, hidden: Some(1408), shared: Some(5632), ..EXPERTS }),
        own_keys: &[
            "decoder_sparse_step",
            "mlp_only_layers",
            "moe_intermediate_size",
            "norm_topk_prob",
            "num_experts",
            "num_experts_per_tok",
            "num_local_experts",
            "qkv_bias",
            "shared_expert_intermediate_size",
        ],
        ..LLAMA
    },
    Family {
        name: "qwen3",
        style: Style { heads: HeadNorms::Each, plan: WITH_NORMS, ..Style::LLAMA },
        kv_heads: Some(32),
        head_size: Some(128),
        windows: WindowRule::Late,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "qwen3_moe",
        style: Style {
            heads: HeadNorms::Each,
            plan: TensorPlan { experts: ExpertFiles::Own, ..WITH_NORMS },
            ..Style::LLAMA
        },
        kv_heads: Some(4),
        windows: WindowRule::AllWhereAsked,
        experts: Some(OwnExperts { count: 128, chosen: 8, hidden: Some(768), router_first: false, ..EXPERTS }),
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
        name: "seed_oss",
        attention_bias: (true, Biases::Inputs),
        kv_heads: Some(8),
        head_size: Some(128),
        padding: Some(1),
        dropout: 0.1,
        own_keys: &["attention_out_bias", "mlp_bias", "residual_dropout"],
        ..LLAMA
    },
    Family {
        name: "smollm3",
        style: Style { plan: WITH_TABLE, ..Style::LLAMA },
        kv_heads: Some(4),
        tied: true,
        theta: 2e6,
        padding: Some(128_004),
        windows: WindowRule::Unrotated,
        own_keys: &["mlp_bias", "no_rope_layer_interval", "no_rope_layers"],
        ..LLAMA
    },
    Family {
        name: "stablelm",
        style: Style { norm: NormKind::Layer, kept: LayerLocals::Attention, plan: NO_PLAN, ..Style::LLAMA },
        attention_bias: NO_BIAS,
        kv_heads: Some(32),
        eps: 1e-5,
        rotated: 0.25,
        own_keys: &[
            "hidden_dropout",
            "layer_norm_eps",
            "partial_rotary_factor",
            "qk_layernorm",
            "use_parallel_residual",
            "use_qkv_bias",
        ],
        ..LLAMA
    },
    Family {
        name: "starcoder2",
        style: Style { norm: NormKind::Layer, ungated: true, plan: WITH_TABLE, ..Style::LLAMA },
        attention_bias: NO_BIAS,
        kv_heads: Some(2),
        tied: true,
        eps: 1e-5,
        activation: "gelu_pytorch_tanh",
        windows: WindowRule::All,
        own_keys: &["embedding_dropout", "norm_epsilon", "residual_dropout", "use_bias"],
        ..LLAMA
    },
];
