//! Gemma's.

use super::super::super::llama::NormKind;
use super::super::super::plan::TensorPlan;
use super::super::family::{Family, WindowRule};
use super::super::names::Names;
use super::super::sizes::SoftCaps;
use super::super::style::{HeadNorms, NormPlaces, Style};
use super::base::{LLAMA, WITH_TABLE};

/// The style that all of them begin with.
const GEMMA: Style = Style {
    norm: NormKind::Centred,
    places: NormPlaces::Around,
    gemma: true,
    names: Names::ADAPTED,
    plan: WITH_TABLE,
    ..Style::LLAMA
};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "gemma",
        style: Style { places: NormPlaces::Before, ..GEMMA },
        kv_heads: Some(16),
        head_size: Some(256),
        tied: true,
        padding: Some(0),
        activation: ("hidden_act", "gelu_pytorch_tanh"),
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
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        windows: WindowRule::AllButEvery(2),
        caps: SoftCaps { scores: Some(50.0), logits: Some(30.0) },
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
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
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
    Family {
        name: "vaultgemma",
        style: Style {
            places: NormPlaces::Before,
            names: Names { norms: ["input_layernorm", "pre_feedforward_layernorm"], ..Names::LLAMA },
            ..GEMMA
        },
        vocab: Some(256_000),
        heads: Some(8),
        kv_heads: Some(4),
        head_size: Some(256),
        tied: true,
        padding: Some(0),
        activation: ("hidden_activation", "gelu_pytorch_tanh"),
        caps: SoftCaps { scores: Some(50.0), logits: Some(30.0) },
        windows: WindowRule::AllButEvery(2),
        own_keys: &["attn_logit_softcapping", "final_logit_softcapping", "hidden_activation", "query_pre_attn_scalar"],
        ..LLAMA
    },
];
