//! OLMo's.

use super::super::super::llama::NormKind;
use super::super::super::plan::{TensorPair, TensorPlan};
use super::super::family::{EpsKey, Family, OwnExperts, WindowRule};
use super::super::style::{HeadNorms, NormPlaces, Rotation, Style};
use super::base::{EXPERTS, LLAMA};

/// The style of those since OLMo 2.
const OLMO: Style = Style {
    norm: NormKind::Late,
    places: NormPlaces::Behind,
    heads: HeadNorms::Together,
    rotation: Rotation::Wide,
    plan: TensorPlan { attention: TensorPair::Gathered, ..TensorPlan::LLAMA },
    ..Style::LLAMA
};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "olmo",
        style: Style { norm: NormKind::Bare, rotation: Rotation::Wide, ..Style::LLAMA },
        eps: 1e-5,
        padding: Some(1),
        eps_key: EpsKey::Fixed,
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
            plan: TensorPlan { splits_experts: true, attention: TensorPair::Gathered, ..TensorPlan::LLAMA },
            ..Style::LLAMA
        },
        eps: 1e-5,
        padding: Some(1),
        experts: Some(OwnExperts { count: 64, chosen: 8, ..EXPERTS }),
        own_keys: &["norm_topk_prob", "num_experts", "num_experts_per_tok", "num_local_experts"],
        ..LLAMA
    },
];
