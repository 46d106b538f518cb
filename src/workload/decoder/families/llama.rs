//! Llama, and those that are Llama but for a property or two.

use super::super::super::llama::NormKind;
use super::super::super::plan::{ExpertFiles, TensorPlan};
use super::super::family::{EpsKey, Family, HiddenRule, OwnDropouts, OwnExperts, WindowRule};
use super::super::names::Names;
use super::super::rotary_scaling::{Llama3Scaling, RotaryScaling};
use super::super::style::{Biases, HeadNorms, LayerLocals, MlpActivation, NormPlaces, Rotation, Style};
use super::base::{ARCEE_NAMES, EXPERTS, LLAMA, NO_BIAS, NO_DROPOUT, NO_PLAN, WITH_NORMS, WITH_TABLE};

/// Hunyuan's names.
const HUNYUAN_NAMES: Names = Names { head_norms: ["query_layernorm", "key_layernorm"], ..Names::LLAMA };

/// Llama 4's names.
const LLAMA4_NAMES: Names = Names { mlp_of_layer: "feed_forward", router: "router", ..Names::LLAMA };

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "arcee",
        style: Style { ungated: true, names: ARCEE_NAMES, activation: MlpActivation::SquaredRelu, ..Style::LLAMA },
        eps: 1e-5,
        activation: ("hidden_act", "relu2"),
        ..LLAMA
    },
    Family {
        name: "cwm",
        attention_bias: NO_BIAS,
        vocab: Some(128_256),
        heads: Some(48),
        kv_heads: Some(8),
        head_size: Some(128),
        eps: 1e-5,
        theta: 1e6,
        scaling: Some(RotaryScaling::Llama3(Llama3Scaling { factor: 16.0, low: 1.0, high: 4.0, original: 8192.0 })),
        windows: WindowRule::AllButFirstOf(4),
        window: 8192,
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
        lacks: &["attention_dropout"],
        own_keys: &["use_bias"],
        ..LLAMA
    },
    Family {
        name: "ernie4_5_moe",
        attention_bias: NO_BIAS,
        style: Style { rotation: Rotation::WideNeighbours, plan: WITH_TABLE, ..Style::LLAMA },
        vocab: Some(103_424),
        heads: Some(20),
        kv_heads: Some(4),
        tied: true,
        eps: 1e-5,
        theta: 500_000.0,
        padding: Some(0),
        lacks: &["attention_dropout"],
        experts: Some(OwnExperts {
            count: 64,
            chosen: 6,
            hidden: Some(1536),
            router_first: true,
            dense: 1,
            least_sum: Some(1e-12),
            ..EXPERTS
        }),
        own_keys: &[
            "moe_intermediate_size",
            "moe_k",
            "moe_layer_end_index",
            "moe_layer_interval",
            "moe_layer_start_index",
            "moe_norm_min",
            "moe_num_experts",
            "moe_num_shared_experts",
            "num_experts",
            "num_experts_per_tok",
        ],
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
        name: "helium",
        style: Style { norm: NormKind::LateCast, rotation: Rotation::WholeNeighbours, ..Style::LLAMA },
        attention_bias: (false, Biases::Inputs),
        vocab: Some(48_000),
        heads: Some(20),
        kv_heads: Some(20),
        head_size: Some(128),
        eps: 1e-8,
        theta: 100_000.0,
        padding: Some(3),
        ..LLAMA
    },
    Family {
        name: "hunyuan_v1_dense",
        style: Style {
            heads: HeadNorms::Turned,
            turns_anew: true,
            names: HUNYUAN_NAMES,
            plan: NO_PLAN,
            ..Style::LLAMA
        },
        eps: 1e-5,
        vocab: Some(290_943),
        padding: Some(0),
        own_keys: &["alpha", "num_experts", "use_qk_norm"],
        ..LLAMA
    },
    Family { style: Style { names: Names::ADAPTED, ..Style::LLAMA }, ..LLAMA },
    Family {
        name: "llama4_text",
        style: Style {
            norm: NormKind::Brief,
            heads: HeadNorms::TurnedSquare,
            rotation: Rotation::Complex,
            narrow_softmax: true,
            kept: LayerLocals::AttentionOutput,
            names: LLAMA4_NAMES,
            plan: TensorPlan { experts: ExpertFiles::Joined, ..TensorPlan::LLAMA },
            ..Style::LLAMA
        },
        vocab: Some(202_048),
        heads: Some(40),
        kv_heads: Some(8),
        head_size: Some(128),
        hidden: HiddenRule::IntermediateSizeMlp,
        eps: 1e-5,
        theta: 500_000.0,
        asked_norms: HeadNorms::TurnedSquare,
        windows: WindowRule::ChunksWhereRotated,
        window: 8192,
        experts: Some(OwnExperts { count: 16, chosen: 1, router_first: false, of_all: true, ..EXPERTS }),
        own_keys: &[
            "attention_chunk_size",
            "attn_scale",
            "attn_temperature_tuning",
            "floor_scale",
            "interleave_moe_layer_step",
            "intermediate_size_mlp",
            "moe_layers",
            "no_rope_layer_interval",
            "no_rope_layers",
            "num_experts_per_tok",
            "num_local_experts",
            "use_qk_norm",
        ],
        ..LLAMA
    },
    Family {
        name: "nemotron",
        style: Style {
            norm: NormKind::CentredLayer,
            rotation: Rotation::BeforeRest,
            ungated: true,
            names: ARCEE_NAMES,
            plan: NO_PLAN,
            activation: MlpActivation::SquaredRelu,
            ..Style::LLAMA
        },
        eps: 1e-5,
        rotated: 0.5,
        activation: ("hidden_act", "relu2"),
        eps_key: EpsKey::NormEps,
        own_keys: &["mlp_bias", "norm_eps", "partial_rotary_factor"],
        ..LLAMA
    },
    Family {
        name: "seed_oss",
        attention_bias: (true, Biases::Inputs),
        kv_heads: Some(8),
        head_size: Some(128),
        padding: Some(1),
        dropouts: OwnDropouts { attention: 0.1, residual: 0.1, ..NO_DROPOUT },
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
];
