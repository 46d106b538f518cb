//! Granite's.

use super::super::super::llama::PackedMlp;
use super::super::super::plan::{ExpertFiles, TensorPlan};
use super::super::family::{Family, HiddenRule, OwnExperts};
use super::super::names::Names;
use super::super::style::{LayerFusion, NormsMade, PositionUse, Style};
use super::base::{EXPERTS, LLAMA, NO_PLAN};

/// The keys of Granite's multipliers.
const MULTIPLIED: [&str; 4] = ["attention_multiplier", "embedding_multiplier", "logits_scaling", "residual_multiplier"];

/// Granite's multipliers and the keys of its experts.
const GRANITE_EXPERTS: [&str; 6] =
    [MULTIPLIED[0], MULTIPLIED[1], MULTIPLIED[2], MULTIPLIED[3], "num_experts_per_tok", "num_local_experts"];

/// GraniteMoE's names.
const GRANITE_MOE_NAMES: Names = Names { mlp_of_layer: "block_sparse_moe", router: "router", ..Names::LLAMA };

/// No plan, and how files have experts.
const GRANITE_MOE_PLAN: TensorPlan = TensorPlan { experts: ExpertFiles::Granite, ..NO_PLAN };

/// Granite 4's names.
const GRANITE4_NAMES: Names = Names { mlp_of_layer: "shared_mlp", ..Names::LLAMA };

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "granite",
        own_keys: &[MULTIPLIED[0], MULTIPLIED[1], MULTIPLIED[2], MULTIPLIED[3], "mlp_bias"],
        ..LLAMA
    },
    Family {
        name: "granitemoe",
        style: Style {
            norms_made: NormsMade::Between,
            names: GRANITE_MOE_NAMES,
            plan: GRANITE_MOE_PLAN,
            ..Style::LLAMA
        },
        experts: Some(OwnExperts { widens: true, of_chosen: true, ..EXPERTS }),
        late_embedding: true,
        own_keys: &GRANITE_EXPERTS,
        ..LLAMA
    },
    Family {
        name: "granitemoeshared",
        style: Style {
            norms_made: NormsMade::Between,
            names: GRANITE_MOE_NAMES,
            plan: GRANITE_MOE_PLAN,
            ..Style::LLAMA
        },
        experts: Some(OwnExperts { widens: true, of_chosen: true, shared_of_layer: true, ..EXPERTS }),
        late_embedding: true,
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
            names: GRANITE4_NAMES,
            plan: NO_PLAN,
            ..Style::LLAMA
        },
        hidden: HiddenRule::SharedIntermediateSize,
        own_keys: &GRANITE_EXPERTS,
        ..LLAMA
    },
];
