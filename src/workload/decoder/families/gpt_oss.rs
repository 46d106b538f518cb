//! gpt-oss.

use super::super::super::llama::NormKind;
use super::super::super::plan::{ExpertFiles, TensorPlan};
use super::super::family::{Family, OwnExperts, WindowRule};
use super::super::names::Names;
use super::super::rotary_scaling::{RotaryScaling, YarnScaling};
use super::super::style::{Biases, PositionUse, Rotation, Style};
use super::base::{EXPERTS, LLAMA, NO_PLAN};

/// gpt-oss's names.
const GPT_OSS_NAMES: Names = Names { router: "router", ..Names::LLAMA };

/// All of them.
pub(super) static FAMILIES: &[Family] = &[Family {
    name: "gpt_oss",
    style: Style {
        norm: NormKind::Late,
        rotation: Rotation::Halves,
        sinks: true,
        told: PositionUse::Layers,
        names: GPT_OSS_NAMES,
        plan: TensorPlan { experts: ExpertFiles::Joined, ..NO_PLAN },
        ..Style::LLAMA
    },
    attention_bias: (true, Biases::All),
    vocab: Some(201_088),
    heads: Some(64),
    kv_heads: Some(8),
    head_size: Some(64),
    eps: 1e-5,
    theta: 150_000.0,
    scaling: Some(RotaryScaling::Yarn(YarnScaling {
        factor: 32.0,
        fast: 32.0,
        slow: 1.0,
        truncates: false,
        original: 4096.0,
        // 0.1 ln 32 + 1
        attention: 1.346_573_590_279_972_7,
    })),
    windows: WindowRule::AllButEvery(2),
    experts: Some(OwnExperts { count: 128, chosen: 4, narrows: false, clamped: true, of_chosen: true, ..EXPERTS }),
    window: 128,
    dequantized: Some("mxfp4"),
    own_keys: &["num_experts", "num_experts_per_tok", "num_local_experts"],
    ..LLAMA
}];
