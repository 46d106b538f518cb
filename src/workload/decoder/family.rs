//! The differences between families of decoders, by the `model_type` of a `config.json`.

use super::style::{Biases, Rotation, Style};
use vramlab_train::GroupRule;

/// One family.
pub(super) struct Family {
    /// Its `model_type`.
    pub name: &'static str,
    pub style: Style,
    /// Whether `attention_bias` is on if a file leaves it out, and which biases it covers.
    pub attention_bias: (bool, Biases),
    /// Size of the vocabulary, if a file may leave that out.
    pub vocab: Option<usize>,
    /// Heads of queries, if a file may leave that out.
    pub heads: Option<usize>,
    /// Heads of keys; `None`: as many as of queries.
    pub kv_heads: Option<usize>,
    /// Elements of a head; `None`: the width divided by the heads.
    pub head_size: Option<usize>,
    pub tied: bool,
    pub eps: f64,
    pub theta: f64,
    /// The theta of layers with a window, if these have their own frequencies.
    pub local_theta: Option<f64>,
    /// The part of a head that is rotated.
    pub rotated: f64,
    pub padding: Option<i64>,
    /// The default dropout of attention's weights and of the additions to the residual stream.
    pub dropout: f64,
    /// The activation of gates.
    pub activation: &'static str,
    /// Which layers have a window.
    pub windows: WindowRule,
    /// Only layers with a window rotate queries and keys, unless a file says that there are no windows.
    pub turns_in_windows: bool,
    pub experts: Option<OwnExperts>,
    /// Keys that this family reads and most others do not.
    pub own_keys: &'static [&'static str],
}

impl Family {
    /// Whether its frequencies are stretched by YaRN by default.
    pub(super) const fn rotation_is_yarn(&self) -> bool {
        matches!(self.style.rotation, Rotation::Halves)
    }
}

/// How a family has experts.
#[derive(Clone, Copy)]
pub(super) struct OwnExperts {
    /// How many.
    pub count: usize,
    /// How many of them a position goes to.
    pub chosen: usize,
    /// Hidden values of an expert; `None`: those of an MLP.
    pub hidden: Option<usize>,
    /// Shares always add up to 1, whatever the config says.
    pub normalises: bool,
    /// Shares are cast back to the type of the logits.
    pub narrows: bool,
    /// Logits are cast to f32 first, and shares back.
    pub widens: bool,
    /// Softmax covers the chosen experts only.
    pub of_chosen: bool,
    /// The router is made first.
    pub router_first: bool,
    /// Experts are weighed in f32 and chosen in groups; this rule is the default.
    pub in_groups: Option<GroupRule>,
    /// The correction of a sigmoid has the type of the weights.
    pub narrow_correction: bool,
    /// Layers with an MLP before those with experts, if a file leaves that out.
    pub dense: usize,
    /// Hidden values of a shared expert, which sees every position.
    pub shared: Option<usize>,
    /// The experts have biases and clamped gates.
    pub clamped: bool,
}

/// How a family tells which layers have a sliding window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowRule {
    /// No layer has one.
    Never,
    /// All layers, if a window is given.
    All,
    /// All layers unless `layer_types` says otherwise, with a window of 4,096 positions by default.
    AllOrListed,
    /// All layers if `use_sliding_window` is set, with a window of 4,096 positions by default.
    AllWhereAsked,
    /// All layers but every n-th unless `layer_types` says otherwise, with a window of 4,096 positions by default.
    AllButEvery(usize),
    /// As `AllButEvery`, but no layer if the window is given as none.
    AllButEveryUnlessNone(usize),
    /// Layers after the first `max_window_layers` unless `layer_types` says otherwise, if `use_sliding_window` is set.
    Late,
    /// Every second layer up to `max_window_layers` unless `layer_types` says otherwise, if `use_sliding_window` is set; else no
    /// layer, but a mask with a window of no positions is still made.
    Early,
    /// Layers that are not rotated unless `layer_types` says otherwise, if `use_sliding_window` is set.
    Unrotated,
}
