//! DeepSeek's.

use vramlab_train::{ExpertScores, GroupRule};

use super::super::family::{Family, OwnExperts, WindowRule};
use super::super::sizes::LatentSizes;
use super::super::style::{HeadNorms, Rotation, Style};
use super::base::{EXPERTS, IN_ONE_GROUP, LLAMA};

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

/// The sizes of DeepSeek's latent vectors, and the rotated elements of a head.
const LATENT: (LatentSizes, usize) = (LatentSizes { query_rank: Some(1536), rank: 512, plain: 128, value: 128 }, 64);

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "deepseek_v2",
        style: Style { rotation: Rotation::Complex, ..Style::LLAMA },
        vocab: Some(102_400),
        heads: Some(32),
        latent: Some(LATENT),
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
        style: Style { rotation: Rotation::Pairs, ..Style::LLAMA },
        vocab: Some(129_280),
        heads: Some(128),
        latent: Some(LATENT),
        experts: Some(OwnExperts {
            count: 256,
            chosen: 8,
            hidden: Some(2048),
            norm_topk_prob: true,
            narrows: false,
            router_first: false,
            in_groups: Some(GroupRule { groups: 8, chosen_groups: 4, factor: 2.5, ..IN_ONE_GROUP }),
            narrow_correction: true,
            dense: 3,
            ..EXPERTS
        }),
        dequantized: Some("fp8"),
        own_keys: &DEEPSEEK,
        ..LLAMA
    },
    Family {
        name: "dots1",
        style: Style { heads: HeadNorms::Each, ..Style::LLAMA },
        vocab: Some(152_064),
        heads: Some(32),
        kv_heads: Some(32),
        windows: WindowRule::LateUnlessNone(62),
        experts: Some(OwnExperts {
            hidden: Some(1408),
            narrows: false,
            router_first: false,
            in_groups: Some(IN_ONE_GROUP),
            narrow_correction: true,
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
            "routed_scaling_factor",
            "topk_group",
        ],
        ..LLAMA
    },
];
