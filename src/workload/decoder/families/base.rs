//! What families begin with: Llama's properties, and usual ones of experts.

use vramlab_train::{ExpertScores, GroupRule};

use super::super::super::lora::Target;
use super::super::super::plan::TensorPlan;
use super::super::family::{EpsKey, Family, HiddenRule, OwnDropouts, OwnExperts, WindowRule};
use super::super::names::Names;
use super::super::sizes::{DropoutPlace, SoftCaps};
use super::super::style::{Biases, HeadNorms, Style};

/// Llama itself.
pub const LLAMA: Family = Family {
    name: "llama",
    style: Style::LLAMA,
    attention_bias: (false, Biases::All),
    vocab: None,
    heads: None,
    latent: None,
    kv_heads: None,
    head_size: None,
    tied: false,
    hidden: HiddenRule::IntermediateSize,
    positions: None,
    divided: None,
    eps_key: EpsKey::RmsNormEps,
    eps: 1e-6,
    theta: 10_000.0,
    scaling: None,
    local_theta: None,
    rotated: 1.0,
    padding: None,
    trains_padding: false,
    dropouts: NO_DROPOUT,
    activation: ("hidden_act", "silu"),
    biased: false,
    asked_norms: HeadNorms::Each,
    caps: SoftCaps { scores: None, logits: None },
    late_embedding: false,
    windows: WindowRule::Never,
    window: 4096,
    turns_in_windows: false,
    experts: None,
    dequantized: None,
    own_keys: &["mlp_bias"],
    lacks: &[],
    harmless: &[],
};

/// No dropout but what a file asks for.
pub const NO_DROPOUT: OwnDropouts = OwnDropouts {
    place: DropoutPlace::Within,
    attention: 0.0,
    embedding: 0.0,
    residual: 0.0,
    embedding_as_hidden: false,
    replaces: false,
};

/// The usual properties of experts.
pub const EXPERTS: OwnExperts = OwnExperts {
    count: 8,
    chosen: 2,
    hidden: None,
    normalises: false,
    norm_topk_prob: false,
    narrows: true,
    widens: false,
    of_chosen: false,
    router_first: true,
    in_groups: None,
    narrow_correction: false,
    dense: 0,
    shared: None,
    shared_of_layer: false,
    clamped: false,
    of_all: false,
    least_sum: None,
};

/// Experts that are weighed by sigmoids, in one group.
pub const IN_ONE_GROUP: GroupRule =
    GroupRule { scores: ExpertScores::Sigmoid, groups: 1, chosen_groups: 1, factor: 1.0 };

/// Llama's plan, and the table of tokens.
pub const WITH_TABLE: TensorPlan = TensorPlan { table: true, ..TensorPlan::LLAMA };

/// Llama's plan with norms of heads.
pub const WITH_NORMS: TensorPlan = TensorPlan { norms: true, ..TensorPlan::LLAMA };

/// No plan.
pub const NO_PLAN: TensorPlan = TensorPlan { none: true, ..TensorPlan::LLAMA };

/// `attention_bias` is not read.
pub const NO_BIAS: (bool, Biases) = (false, Biases::None);

/// Arcee's names.
pub const ARCEE_NAMES: Names = Names { mlp: [Target::Up, Target::Down], ..Names::LLAMA };
