//! GLM's.

use vramlab_train::GroupRule;

use super::super::super::plan::{TensorPair, TensorPlan};
use super::super::family::{Family, OwnExperts};
use super::super::sizes::LatentSizes;
use super::super::style::{Biases, HeadNorms, LayerFusion, NormPlaces, Rotation, Style};
use super::base::{EXPERTS, IN_ONE_GROUP, LLAMA};

/// GLM-4.
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

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
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
            norm_topk_prob: true,
            narrows: false,
            router_first: false,
            in_groups: Some(IN_ONE_GROUP),
            dense: 1,
            ..EXPERTS
        }),
        asked_norms: HeadNorms::EachBehindValues,
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
        name: "glm4_moe_lite",
        style: Style { rotation: Rotation::Pairs, ..Style::LLAMA },
        vocab: Some(154_880),
        heads: Some(20),
        latent: Some((LatentSizes { query_rank: Some(768), rank: 512, plain: 192, value: 256 }, 64)),
        eps: 1e-5,
        experts: Some(OwnExperts {
            count: 64,
            chosen: 4,
            hidden: Some(1536),
            norm_topk_prob: true,
            narrows: false,
            router_first: false,
            in_groups: Some(GroupRule { factor: 1.8, ..IN_ONE_GROUP }),
            dense: 1,
            ..EXPERTS
        }),
        own_keys: &[
            "kv_lora_rank",
            "mlp_layer_types",
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
        ],
        harmless: &["first_k_dense_replace"],
        ..LLAMA
    },
];
