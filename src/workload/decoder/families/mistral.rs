//! Mistral's.

use super::super::super::plan::{ExpertFiles, TensorPlan};
use super::super::family::{Family, OwnExperts, WindowRule};
use super::super::names::Names;
use super::super::style::Style;
use super::base::{EXPERTS, LLAMA, NO_BIAS};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
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
        style: Style { names: Names::ADAPTED, ..Style::LLAMA },
        attention_bias: NO_BIAS,
        kv_heads: Some(8),
        windows: WindowRule::All,
        own_keys: &[],
        ..LLAMA
    },
    Family {
        name: "mixtral",
        style: Style {
            plan: TensorPlan { experts: ExpertFiles::Mixtral, splits_experts: true, ..TensorPlan::LLAMA },
            ..Style::LLAMA
        },
        attention_bias: NO_BIAS,
        kv_heads: Some(8),
        eps: 1e-5,
        windows: WindowRule::All,
        experts: Some(OwnExperts { normalises: true, narrows: false, ..EXPERTS }),
        own_keys: &["num_experts", "num_experts_per_tok", "num_local_experts"],
        ..LLAMA
    },
];
