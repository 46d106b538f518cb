//! Qwen's.

use super::super::super::plan::TensorPlan;
use super::super::family::{Family, OwnExperts, WindowRule};
use super::super::names::Names;
use super::super::style::{Biases, HeadNorms, Style};
use super::base::{EXPERTS, LLAMA, WITH_NORMS};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family {
        name: "qwen2",
        style: Style { biases: Biases::Inputs, names: Names::ADAPTED, ..Style::LLAMA },
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
        style: Style { heads: HeadNorms::Each, names: Names::ADAPTED, plan: WITH_NORMS, ..Style::LLAMA },
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
            plan: TensorPlan { splits_experts: true, ..WITH_NORMS },
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
];
