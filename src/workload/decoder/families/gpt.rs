//! GPT's kind: layer norms with biases, and MLPs without a gate.

use super::super::super::llama::NormKind;
use super::super::super::lora::Target;
use super::super::super::plan::TensorPlan;
use super::super::falcon::FalconKeys;
use super::super::family::{EpsKey, Family, HiddenRule, LearnedPositions, OwnDropouts, WindowRule};
use super::super::gpt2::Gpt2Keys;
use super::super::names::Names;
use super::super::opt::OptKeys;
use super::super::sizes::DropoutPlace;
use super::super::style::{
    Biases, LayerFusion, LayerLocals, MlpActivation, NormPlaces, NormsMade, PositionUse, Rotation, Style,
};
use super::base::{LLAMA, NO_BIAS, NO_DROPOUT, NO_PLAN, WITH_TABLE};

/// BLOOM's names.
const BLOOM_NAMES: Names = Names { norms: ["input_layernorm", "post_attention_layernorm"], ..FALCON_NAMES };

/// Falcon's names.
const FALCON_NAMES: Names = Names {
    model: "transformer",
    embedding: "word_embeddings",
    layers: "h",
    norms: ["ln_attn", "ln_mlp"],
    attention: "self_attention",
    norm: "ln_f",
    ..NEOX_NAMES
};

/// GPT-2's names.
const GPT2_NAMES: Names = Names {
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
    ..Names::LLAMA
};

/// GPT-NeoX's names.
const NEOX_NAMES: Names = Names {
    model: "gpt_neox",
    embedding: "embed_in",
    attention: "attention",
    norm: "final_layer_norm",
    projections: Target::WholeQueryKeyValue,
    output: Target::Dense,
    mlp: [Target::Widening, Target::Narrowing],
    adapted: &[Target::WholeQueryKeyValue],
    ..Names::LLAMA
};

/// OPT's names, whose MLP is no module of its own.
const OPT_NAMES: Names = Names {
    model: "model.decoder",
    norms: ["self_attn_layer_norm", "final_layer_norm"],
    mlp_of_layer: "",
    norm: "final_layer_norm",
    output: Target::OutputOfTower,
    mlp: [Target::Wider, Target::Narrower],
    ..Names::ADAPTED
};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
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
            names: BLOOM_NAMES,
            plan: NO_PLAN,
            activation: MlpActivation::BloomGelu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(250_880),
        heads: Some(8),
        tied: true,
        eps: 1e-5,
        eps_key: EpsKey::LayerNormEpsilon,
        hidden: HiddenRule::FourTimesWidth,
        divided: Some(["hidden_size", "num_attention_heads"]),
        trains_padding: true,
        dropouts: OwnDropouts { place: DropoutPlace::Behind, ..NO_DROPOUT },
        own_keys: &["hidden_dropout", "n_embed", "n_head", "n_layer"],
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
            names: FALCON_NAMES,
            plan: NO_PLAN,
            activation: MlpActivation::Gelu,
            ..Style::LLAMA
        },
        attention_bias: NO_BIAS,
        vocab: Some(65_024),
        heads: Some(71),
        tied: true,
        eps: 1e-5,
        activation: ("activation", "gelu"),
        eps_key: EpsKey::LayerNormEpsilon,
        hidden: HiddenRule::FourTimesWidth,
        divided: Some(["hidden_size", "num_attention_heads"]),
        trains_padding: true,
        dropouts: OwnDropouts { place: DropoutPlace::BehindMlp, ..NO_DROPOUT },
        lacks: &["attention_dropout"],
        own_keys: FalconKeys::OWN,
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
            narrow_softmax: true,
            norms_made: NormsMade::InTurn,
            kept: LayerLocals::Outputs,
            names: GPT2_NAMES,
            plan: NO_PLAN,
            activation: MlpActivation::NewGelu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(50_257),
        heads: Some(12),
        tied: true,
        eps: 1e-5,
        activation: ("activation_function", "gelu_new"),
        eps_key: EpsKey::LayerNormEpsilon,
        hidden: HiddenRule::FourTimesWidth,
        positions: Some(LearnedPositions { key: "n_positions", most: 1024 }),
        divided: Some(["n_embd", "n_head"]),
        trains_padding: true,
        dropouts: OwnDropouts { attention: 0.1, embedding: 0.1, residual: 0.1, ..NO_DROPOUT },
        lacks: &["attention_dropout"],
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
            names: NEOX_NAMES,
            plan: TensorPlan { head: "embed_out", ..TensorPlan::LLAMA },
            activation: MlpActivation::Gelu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        eps: 1e-5,
        rotated: 0.25,
        activation: ("hidden_act", "gelu"),
        eps_key: EpsKey::LayerNormEps,
        trains_padding: true,
        dropouts: OwnDropouts { place: DropoutPlace::Behind, embedding_as_hidden: true, ..NO_DROPOUT },
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
        name: "opt",
        style: Style {
            norm: NormKind::Layer,
            mlp_biases: true,
            ungated: true,
            norms_made: NormsMade::BehindEach,
            counts_mask: true,
            scales_queries: true,
            names: OPT_NAMES,
            plan: NO_PLAN,
            activation: MlpActivation::Relu,
            ..Style::LLAMA
        },
        attention_bias: (true, Biases::All),
        vocab: Some(50_272),
        tied: true,
        eps: 1e-5,
        padding: Some(1),
        activation: ("activation_function", "relu"),
        eps_key: EpsKey::Fixed,
        hidden: HiddenRule::FfnDim,
        positions: Some(LearnedPositions { key: "max_position_embeddings", most: 2048 }),
        divided: Some(["hidden_size", "num_attention_heads"]),
        dropouts: OwnDropouts { place: DropoutPlace::Behind, residual: 0.1, ..NO_DROPOUT },
        own_keys: OptKeys::OWN,
        ..LLAMA
    },
    Family {
        name: "starcoder2",
        style: Style { norm: NormKind::Layer, ungated: true, plan: WITH_TABLE, ..Style::LLAMA },
        attention_bias: NO_BIAS,
        kv_heads: Some(2),
        tied: true,
        eps: 1e-5,
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        windows: WindowRule::All,
        eps_key: EpsKey::NormEpsilon,
        biased: true,
        own_keys: &["embedding_dropout", "norm_epsilon", "residual_dropout", "use_bias"],
        ..LLAMA
    },
];
