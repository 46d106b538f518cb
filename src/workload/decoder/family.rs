//! The differences between families of decoders, by the `model_type` of a `config.json`.

use vramlab_train::GroupRule;

use super::rotary_scaling::RotaryScaling;
use super::sizes::{DropoutPlace, LatentSizes, SoftCaps};
use super::style::{Biases, HeadNorms, Style};

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
    /// The sizes of latent vectors and the rotated part of a head, if keys and values come from one and a file leaves them out.
    pub latent: Option<(LatentSizes, usize)>,
    /// Heads of keys; `None`: as many as of queries.
    pub kv_heads: Option<usize>,
    /// Elements of a head; `None`: the width divided by the heads.
    pub head_size: Option<usize>,
    /// Hidden values of an MLP.
    pub hidden: HiddenRule,
    /// Positions have embeddings, which are learned.
    pub positions: Option<LearnedPositions>,
    /// The keys of the width and of the heads that have to divide it.
    pub divided: Option<[&'static str; 2]>,
    pub tied: bool,
    /// The key of what norms add, and its default.
    pub eps_key: EpsKey,
    pub eps: f64,
    pub theta: f64,
    /// How frequencies are stretched, if a file has no table that says so.
    pub scaling: Option<RotaryScaling>,
    /// The theta of layers with a window, if these have their own frequencies.
    pub local_theta: Option<f64>,
    /// The part of a head that is rotated.
    pub rotated: f64,
    /// The token of padding, whose embedding gets no gradient.
    pub padding: Option<i64>,
    /// That embedding gets a gradient like all others.
    pub trains_padding: bool,
    pub dropouts: OwnDropouts,
    /// The key of the activation of gates, and the one that there is.
    pub activation: (&'static str, &'static str),
    /// `use_bias` is on if a file leaves it out.
    pub biased: bool,
    /// The norms of heads that `use_qk_norm` and `qk_layernorm` ask for.
    pub asked_norms: HeadNorms,
    /// The bounds on scores and logits, if a file leaves them out.
    pub caps: SoftCaps,
    /// Embeddings are multiplied once there are masks, not before.
    pub late_embedding: bool,
    /// Which layers have a window.
    pub windows: WindowRule,
    /// Its size, if a file leaves it out.
    pub window: usize,
    /// Only layers with a window rotate queries and keys, unless a file says that there are no windows.
    pub turns_in_windows: bool,
    pub experts: Option<OwnExperts>,
    /// The `quant_method` of files that can't be trained as they are: transformers loads them in 16 bits.
    pub dequantized: Option<&'static str>,
    /// Keys that this family reads and most others do not.
    pub own_keys: &'static [&'static str],
    /// Keys that most families read and this one does not.
    pub lacks: &'static [&'static str],
    /// Keys in its files that change neither memory nor arithmetic of a training step.
    pub harmless: &'static [&'static str],
}

/// The key of what norms add to a mean square or a variance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EpsKey {
    RmsNormEps,
    LayerNormEps,
    LayerNormEpsilon,
    NormEps,
    NormEpsilon,
    /// None: the default always holds.
    Fixed,
}

/// The key of an MLP's hidden values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HiddenRule {
    IntermediateSize,
    /// Beside experts that have `intermediate_size`.
    IntermediateSizeMlp,
    FfnDim,
    SharedIntermediateSize,
    /// Four times the width, unless `n_inner` or `ffn_hidden_size` says otherwise.
    FourTimesWidth,
}

/// Embeddings of positions.
#[derive(Clone, Copy)]
pub(super) struct LearnedPositions {
    /// The key of their number.
    pub key: &'static str,
    /// Their number, if a file leaves it out.
    pub most: usize,
}

/// Where a family has dropout, and the shares that it leaves out if a file says nothing.
#[derive(Clone, Copy)]
pub(super) struct OwnDropouts {
    pub place: DropoutPlace,
    /// Of the weights of attention.
    pub attention: f64,
    pub embedding: f64,
    /// Of the additions to the residual stream.
    pub residual: f64,
    /// `hidden_dropout` is the share of embeddings too.
    pub embedding_as_hidden: bool,
    /// Embeddings after dropout take the place of those before.
    pub replaces: bool,
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
    /// `norm_topk_prob` is on if a file leaves it out.
    pub norm_topk_prob: bool,
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
    /// The shared expert belongs to the layer, with the hidden values that `shared_intermediate_size` says.
    pub shared_of_layer: bool,
    /// The experts have biases and clamped gates.
    pub clamped: bool,
    /// Every expert sees every position, scaled by its share.
    pub of_all: bool,
    /// The router is in f32, and chosen weights are divided by their sum, or by this where that is less.
    pub least_sum: Option<f64>,
}

/// How a family tells which layers have a sliding window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowRule {
    /// No layer has one.
    Never,
    /// All layers, if a window is given.
    All,
    /// All layers unless `layer_types` says otherwise, with the family's window by default.
    AllOrListed,
    /// All layers if `use_sliding_window` is set, with the family's window by default.
    AllWhereAsked,
    /// All layers but every n-th unless `layer_types` says otherwise, with the family's window by default.
    AllButEvery(usize),
    /// As `AllButEvery`, but of every n layers the first has none.
    AllButFirstOf(usize),
    /// As `AllButEvery`, but no layer if the window is given as none.
    AllButEveryUnlessNone(usize),
    /// Layers after the first `max_window_layers` unless `layer_types` says otherwise, if `use_sliding_window` is set.
    Late,
    /// Layers after so many, or the first `max_window_layers`, unless the window is given as none or `layer_types` says otherwise.
    LateUnlessNone(usize),
    /// Every second layer up to `max_window_layers` unless `layer_types` says otherwise, if `use_sliding_window` is set; else no
    /// layer, but a mask with a window of no positions is still made.
    Early,
    /// Layers that are rotated have chunks of `attention_chunk_size` unless `layer_types` says otherwise.
    ChunksWhereRotated,
    /// Layers that are not rotated unless `layer_types` says otherwise, if `use_sliding_window` is set.
    Unrotated,
}
