//! Phi's, and StableLM, which keeps as many variables.

use super::super::super::llama::NormKind;
use super::super::super::lora::Target;
use super::super::super::plan::{TensorPair, TensorPlan};
use super::super::family::{EpsKey, Family, OwnDropouts, WindowRule};
use super::super::names::Names;
use super::super::sizes::DropoutPlace;
use super::super::style::{Biases, HeadNorms, LayerFusion, LayerLocals, MlpActivation, NormPlaces, NormsMade, Style};
use super::base::{LLAMA, NO_BIAS, NO_DROPOUT, NO_PLAN};

/// Phi's names.
const PHI_NAMES: Names = Names {
    head_norms: ["q_layernorm", "k_layernorm"],
    norm: "final_layernorm",
    output: Target::Dense,
    mlp: [Target::Wider, Target::Narrower],
    adapted: &[Target::Query, Target::Value, Target::Wider, Target::Narrower],
    ..Names::LLAMA
};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
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
            names: PHI_NAMES,
            activation: MlpActivation::NewGelu,
            ..Style::LLAMA
        },
        attention_bias: NO_BIAS,
        vocab: Some(51_200),
        eps: 1e-5,
        rotated: 0.5,
        activation: ("hidden_act", "gelu_new"),
        eps_key: EpsKey::LayerNormEps,
        dropouts: OwnDropouts { place: DropoutPlace::Behind, embedding_as_hidden: true, replaces: true, ..NO_DROPOUT },
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
        name: "stablelm",
        style: Style {
            norm: NormKind::Layer,
            kept: LayerLocals::Attention,
            names: Names::ADAPTED,
            plan: NO_PLAN,
            ..Style::LLAMA
        },
        attention_bias: NO_BIAS,
        kv_heads: Some(32),
        eps: 1e-5,
        rotated: 0.25,
        eps_key: EpsKey::LayerNormEps,
        dropouts: OwnDropouts { place: DropoutPlace::BehindMlp, ..NO_DROPOUT },
        asked_norms: HeadNorms::Apart,
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
];
