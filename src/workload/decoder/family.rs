//! What the families of decoders differ in, by the `model_type` of a `config.json`.

use super::style::{Biases, Rotation, Style};
use vramlab_train::SigmoidRule;

/// One family.
pub(super) struct Family {
    /// Its `model_type`.
    pub name: &'static str,
    pub style: Style,
    /// Whether `attention_bias` is on where a file leaves it out, and which biases it means.
    pub attention_bias: (bool, Biases),
    /// Tokens that it knows, where a file may leave that out.
    pub vocab: Option<usize>,
    /// Heads of queries, where a file may.
    pub heads: Option<usize>,
    /// Heads of keys; as many as of queries where there is no number.
    pub kv_heads: Option<usize>,
    /// Elements of a head; the width over the heads where there is no number.
    pub head_size: Option<usize>,
    pub tied: bool,
    pub eps: f64,
    pub theta: f64,
    /// That of layers with a window, where these have frequencies of their own.
    pub local_theta: Option<f64>,
    /// The part of a head that is rotated.
    pub rotated: f64,
    pub padding: Option<i64>,
    /// The shares of attention's weights and of what is added to the residual stream that are left out, where a file leaves that out.
    pub dropout: f64,
    /// What gates go through.
    pub activation: &'static str,
    /// Which layers have a window.
    pub windows: WindowRule,
    /// Queries and keys are rotated where a window is, unless a file says that there are no windows.
    pub turns_in_windows: bool,
    pub experts: Option<OwnExperts>,
    /// Keys that it reads and most others do not.
    pub own_keys: &'static [&'static str],
}

impl Family {
    /// Its frequencies reach further where a file says nothing of them.
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
    /// Hidden values of one; those of an MLP where there is no number.
    pub hidden: Option<usize>,
    /// Shares add up to 1, whatever the config says.
    pub normalises: bool,
    /// Shares are cast back to the type of the logits.
    pub narrows: bool,
    /// Logits are cast to f32 first, and shares back.
    pub widens: bool,
    /// Softmax is of the chosen alone.
    pub of_chosen: bool,
    /// The router is made first.
    pub router_first: bool,
    /// Experts are weighed by a sigmoid and looked for in groups, as many as these where a file says nothing of them.
    pub sigmoid: Option<SigmoidRule>,
    /// Layers that have an MLP before those with experts, where a file leaves that out.
    pub dense: usize,
    /// Hidden values of one more that sees every position.
    pub shared: Option<usize>,
    /// They have biases and clamped gates.
    pub clamped: bool,
}

/// How a family tells which layers have a sliding window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowRule {
    /// It knows none.
    Never,
    /// All of them, where a window is given.
    All,
    /// All of them, `layer_types` aside, in a window of 4,096 positions unless another is given.
    AllOrListed,
    /// All of them, in a window of 4,096 positions unless another is given, where `use_sliding_window` says so.
    AllWhereAsked,
    /// All but every so many, `layer_types` aside, in a window of 4,096 positions unless another is given.
    AllButEvery(usize),
    /// The same, and none where the window is none.
    AllButEveryUnlessNone(usize),
    /// Those behind `max_window_layers`, `layer_types` aside, where `use_sliding_window` says so.
    Late,
    /// Every second one up to `max_window_layers`, `layer_types` aside, where `use_sliding_window` says so; else the mask of a window of
    /// no positions is made for none.
    Early,
    /// Those that are not rotated, `layer_types` aside, where `use_sliding_window` says so.
    Unrotated,
}
