//! The sizes and properties of a decoder.

use vramlab_device::{DType, Earlier};
use vramlab_train::{GroupRule, PositionScale, RouterRule};

use super::super::lora::Lora;
use super::pattern::LayerPattern;
use super::rotary_scaling::{DynamicScaling, Factors, RotaryScaling};
use super::style::Style;

/// A mixture of experts in place of MLPs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSizes {
    /// Experts of a layer.
    pub count: usize,
    /// Hidden values of an expert.
    pub hidden: usize,
    /// How many of them a position goes to, and with which shares.
    pub rule: RouterRule,
    /// The router is made before the experts (Mixtral).
    pub router_first: bool,
    /// Experts are weighed in f32, and looked for in groups (GLM-4.5).
    pub in_groups: Option<GroupRule>,
    /// The correction of a sigmoid has the type of the weights, not f32 (DeepSeek-V3).
    pub narrow_correction: bool,
    /// Hidden values of a shared expert, which sees every position, if there is one. A gate scales its output (Qwen1.5-MoE),
    /// unless experts are looked for in groups.
    pub shared: Option<usize>,
    /// The shared expert belongs to the layer beside the module of experts, has one layer for gate and up projection, and no gate
    /// (GraniteMoE with shared experts).
    pub shared_of_layer: bool,
    /// Experts and router have biases, and gates are clamped (gpt-oss).
    pub clamped: bool,
    /// Every expert sees every position, scaled by its share, which is zero for most (Llama 4). Nothing scales the shared expert.
    pub of_all: bool,
    /// The router is in f32 and chooses by weights plus a correction; the chosen ones are divided by their sum, or by this where
    /// that is less (ERNIE 4.5). Nothing scales the shared expert, which runs first.
    pub least_sum: Option<f64>,
    /// The layers with experts.
    pub layers: LayerPattern,
}

/// Sizes of attention over a latent vector for each position (DeepSeek).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentSizes {
    /// Elements of the latent vector of queries, if they have one.
    pub query_rank: Option<usize>,
    /// Elements of the latent vector of keys and values.
    pub rank: usize,
    /// Elements of a head of queries and keys that are not rotated; they come first.
    pub plain: usize,
    /// Elements of a head of values.
    pub value: usize,
}

/// Factors on parts of a decoder (Granite).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Embeddings.
    pub embedding: f64,
    /// The factor on embeddings is applied after the masks are made, not at once (GraniteMoE).
    pub late: bool,
    /// Products of queries and keys.
    pub attention: f64,
    /// The outputs of attention and the MLP.
    pub residual: f64,
    /// Logits, as a divisor.
    pub logits: f64,
}

/// Bounds on values, applied by a tanh.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SoftCaps {
    /// Bound on scores; SDPA has none, so only eager attention applies it.
    pub scores: Option<f64>,
    /// Of logits.
    pub logits: Option<f64>,
}

/// Dropout rates in training.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dropouts {
    /// Of attention's weights.
    pub attention: f64,
    /// Of embeddings.
    pub embedding: f64,
    /// The embeddings' variable holds the result of the dropout, which lives to the end of the model in their place (Phi).
    pub replaces: bool,
    /// Of the outputs of attention and the MLP.
    pub residual: f64,
    /// Where the residual dropout is applied.
    pub place: DropoutPlace,
}

/// Where the dropout of the outputs of attention and the MLP is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropoutPlace {
    /// Within both.
    #[default]
    Within,
    /// After they have returned (GPT-NeoX).
    Behind,
    /// After the MLP has returned, to its output only (StableLM).
    BehindMlp,
}

/// Sliding windows or chunks of attention: a position sees itself and those earlier positions that are within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindows {
    /// The windows or chunks, or all positions if there are none.
    earlier: Earlier,
    /// The layers with a window.
    layers: LayerPattern,
    /// A mask without a window is made although every layer has one.
    both: bool,
}

impl SlidingWindows {
    /// No layer has a window.
    pub const NONE: Self = Self { earlier: Earlier::All, layers: LayerPattern::NONE, both: false };

    /// Every layer has a window of this many positions (Mistral).
    #[must_use]
    pub const fn every(window: usize) -> Self {
        Self::some(window, LayerPattern::ALL)
    }

    /// These layers have a window.
    #[must_use]
    pub const fn some(window: usize, layers: LayerPattern) -> Self {
        Self { earlier: Earlier::Window(window), layers, both: false }
    }

    /// These layers have chunks of this many positions (Llama 4).
    #[must_use]
    pub const fn chunks(chunk: usize, layers: LayerPattern) -> Self {
        Self { earlier: Earlier::Chunk(chunk), layers, both: true }
    }

    /// The same, with masks for both kinds of layers in any case.
    #[must_use]
    pub const fn with_both_masks(self) -> Self {
        Self { both: true, ..self }
    }

    /// Whether a layer has one.
    pub(super) fn has(self, layer: usize) -> bool {
        self.of(layer) != Earlier::All
    }

    /// What positions of a layer see.
    pub(super) fn of(self, layer: usize) -> Earlier {
        if self.layers.has(layer) { self.earlier } else { Earlier::All }
    }

    /// The kinds of masks that a forward pass makes, in their order.
    pub(super) fn kinds(self) -> Vec<Earlier> {
        match self.earlier {
            Earlier::All => vec![Earlier::All],
            earlier if self.layers == LayerPattern::ALL && !self.both => vec![earlier],
            earlier => vec![Earlier::All, earlier],
        }
    }
}

/// The sizes of a vision tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TowerSizes {
    /// Which tower it is.
    pub kind: TowerKind,
    /// Width of its residual stream.
    pub width: usize,
    /// Hidden values of its MLPs.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Channels of an image.
    pub channels: usize,
    /// Pixels of a patch's side.
    pub patch: usize,
}

/// The kinds of vision towers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TowerKind {
    /// SigLIP (Gemma 3).
    Siglip {
        /// Patches of an image; each has an embedding.
        positions: usize,
    },
    /// Pixtral (Mistral 3).
    Pixtral(PixtralSizes),
}

/// Sizes that only Pixtral and its projector have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixtralSizes {
    /// Rotary frequencies.
    pub frequencies: usize,
    /// Patches of an image that are merged into one.
    pub merged: usize,
    /// The projector has biases.
    pub biased: bool,
    /// Layers whose output is projected.
    pub features: usize,
}

impl TowerKind {
    /// Whether the model around it makes the masks of the language model, before there are positions and without a search for
    /// packed samples.
    pub(super) const fn makes_masks(self) -> bool {
        matches!(self, Self::Siglip { .. })
    }
}

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderSizes {
    /// Size of the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Hidden values of an MLP.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; they divide those of queries.
    pub kv_heads: usize,
    /// Elements of a head, an even number.
    pub head_size: usize,
    /// Keys and values come from a latent vector, if they do; the last elements of a head are rotated then.
    pub latent: Option<LatentSizes>,
    /// How many elements of a head, from the first on, are rotated, if not all: an even number (`partial_rotary_factor`).
    pub rotated: Option<usize>,
    /// The head's weight is the embedding's.
    pub tied: bool,
    /// Added to the mean squares of norms.
    pub eps: f64,
    /// The longest rotary wavelength is about 2π times this.
    pub theta: f64,
    /// How the frequencies are stretched.
    pub scaling: Option<RotaryScaling>,
    /// For layers with a window that have their own frequencies: their longest wavelength is about 2π times this (Gemma 3).
    pub local_theta: Option<f64>,
    /// How queries are scaled by position (Ministral 3, Llama 4).
    pub position_scale: Option<PositionScale>,
    /// Positions with learned embeddings, which are added to those of tokens; nothing is rotated then (GPT-2).
    pub positions: Option<usize>,
    /// Layers whose queries and keys are not rotated (SmolLM3).
    pub unrotated: LayerPattern,
    /// Positions of a training sample.
    pub seq: usize,
    /// The type of weights: f32, f16 or bf16.
    pub weights: DType,
    /// How its parts differ from Llama's.
    pub style: Style,
    /// The token whose embedding gets no gradient.
    pub padding: Option<usize>,
    /// The bound on queries, keys and values (OLMo 1).
    pub clip: Option<f64>,
    /// Products of queries and keys are divided by the root of this, if it is not the head size.
    pub query_scalar: Option<f64>,
    /// The bounds on scores and logits.
    pub caps: SoftCaps,
    /// The factor on logits (Cohere).
    pub logit_scale: Option<f64>,
    /// The dropout rates.
    pub dropouts: Dropouts,
    /// The factors on its parts.
    pub multipliers: Option<Multipliers>,
    /// How far back positions see.
    pub windows: SlidingWindows,
    /// Experts, if it has any.
    pub experts: Option<ExpertSizes>,
    /// A vision tower that is in memory and is not run.
    pub tower: Option<TowerSizes>,
    /// Adapters that are trained in its place.
    pub lora: Option<Lora>,
}

impl DecoderSizes {
    /// The rotary frequencies, in f32: half as many as a head has rotated elements. With `local`, those of layers with a window,
    /// if they have their own.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    pub(super) fn frequencies(&self, local: bool) -> Vec<f32> {
        let (theta, scaling) = match self.local_theta.filter(|_| local) {
            Some(theta) => (theta, None),
            None => (self.theta, self.scaling),
        };
        let alpha = scaling.and_then(|scaling| scaling.alpha());
        let rotated = self.rotated.unwrap_or(self.head_size) as f64;
        let theta = alpha.map_or(theta, |alpha| theta * alpha.powf(rotated / (rotated - 2.0)));
        if let Some(RotaryScaling::Long(scaling)) = &scaling {
            return self.divided(&scaling.short);
        }
        if let Some(RotaryScaling::Yarn(scaling)) = scaling {
            let [low, high] = scaling.ends(self.rotated.unwrap_or(self.head_size), theta);
            return self.wavelengths(theta).zip(0..).map(|(wave, i)| scaling.mixed(wave, i, [low, high])).collect();
        }
        let stretched = |wavelength: f32| match scaling {
            None | Some(RotaryScaling::Long(_) | RotaryScaling::Yarn(_) | RotaryScaling::Dynamic(_)) => {
                1.0 / wavelength
            }
            Some(RotaryScaling::Linear(factor)) => 1.0 / wavelength / factor as f32,
            Some(RotaryScaling::Llama3(scaling)) => scaling.stretched(f64::from(1.0 / wavelength)) as f32,
        };
        self.wavelengths(theta).map(stretched).collect()
    }

    /// The rotary frequencies, each divided by its factor.
    pub(super) fn divided(&self, factors: &Factors) -> Vec<f32> {
        self.wavelengths(self.theta)
            .zip(factors.iter())
            .map(|(wavelength, factor)| 1.0 / (factor * wavelength))
            .collect()
    }

    /// The rotary frequencies for samples of `count` positions if they depend on it, in the f32 steps in which transformers
    /// computes them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    pub(super) fn followed(&self, scaling: DynamicScaling, count: usize) -> Vec<f32> {
        let rotated = self.rotated.unwrap_or(self.head_size) as f64;
        let times = scaling.factor as f32 * count as f32 / scaling.most as f32 - (scaling.factor - 1.0) as f32;
        let theta = self.theta as f32 * times.powf((rotated / (rotated - 2.0)) as f32);
        self.wavelengths(f64::from(theta)).map(|wavelength| 1.0 / wavelength).collect()
    }

    /// The number of positions in which each pair of elements turns by one radian.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    fn wavelengths(&self, theta: f64) -> impl Iterator<Item = f32> {
        let rotated = self.rotated.unwrap_or(self.head_size);
        (0..rotated / 2).map(move |i| (theta as f32).powf(2.0 * i as f32 / rotated as f32))
    }
}
