//! What makes one decoder another.

use vramlab_device::DType;
use vramlab_train::{PositionScale, RouterRule, SigmoidRule};

use super::super::lora::Lora;
use super::pattern::LayerPattern;
use super::rotary_scaling::{DynamicScaling, Factors, RotaryScaling};
use super::style::Style;

/// A mixture of experts in the place of MLPs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSizes {
    /// Experts of a layer.
    pub count: usize,
    /// Hidden values of one.
    pub hidden: usize,
    /// How many of them a position goes to, and with which shares.
    pub rule: RouterRule,
    /// The router is made before the experts (Mixtral).
    pub router_first: bool,
    /// Experts are weighed by a sigmoid, and looked for in groups (GLM-4.5).
    pub sigmoid: Option<SigmoidRule>,
    /// Hidden values of one more that sees every position, where there is one: of what a gate lets through (Qwen1.5-MoE), or of all of it
    /// where experts are weighed by a sigmoid.
    pub shared: Option<usize>,
    /// They and the router have biases, and gates are clamped (gpt-oss).
    pub clamped: bool,
    /// The layers that have them.
    pub layers: LayerPattern,
}

/// Numbers that parts of a decoder are multiplied by (Granite).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Multipliers {
    /// Embeddings.
    pub embedding: f64,
    /// Those are multiplied when there are masks, not at once (GraniteMoE).
    pub late: bool,
    /// Products of queries and keys.
    pub attention: f64,
    /// What attention and the MLP add to the residual stream.
    pub residual: f64,
    /// Logits, as a divisor.
    pub logits: f64,
}

/// Bounds that values are kept within by the tanh of their part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SoftCaps {
    /// Of scores; SDPA has none, so only eager attention keeps it.
    pub scores: Option<f64>,
    /// Of logits.
    pub logits: Option<f64>,
}

/// Shares that are left out while it trains, drawn anew for each step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dropouts {
    /// Of attention's weights.
    pub attention: f64,
    /// Of embeddings.
    pub embedding: f64,
    /// What stays of them takes their name, so that it lives to the end of the model, not they (Phi).
    pub replaces: bool,
    /// Of what attention and the MLP add to the residual stream.
    pub residual: f64,
    /// Where the last is.
    pub place: DropoutPlace,
}

/// Where a share of what attention and the MLP add is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DropoutPlace {
    /// By both themselves.
    #[default]
    Within,
    /// When they have returned (GPT-NeoX).
    Behind,
    /// When the MLP has returned, of that alone (StableLM).
    BehindMlp,
}

/// Sliding windows of attention: a position sees itself and those before it within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindows {
    /// Positions of one, where there are windows.
    window: Option<usize>,
    /// The layers that have one.
    layers: LayerPattern,
    /// A mask without one is made although every layer has one.
    both: bool,
}

impl SlidingWindows {
    /// No layer has one.
    pub const NONE: Self = Self { window: None, layers: LayerPattern::NONE, both: false };

    /// Every layer has one of so many positions (Mistral).
    #[must_use]
    pub const fn every(window: usize) -> Self {
        Self::some(window, LayerPattern::ALL)
    }

    /// These layers have one.
    #[must_use]
    pub const fn some(window: usize, layers: LayerPattern) -> Self {
        Self { window: Some(window), layers, both: false }
    }

    /// The same with the masks of both kinds of layers, whichever there are.
    #[must_use]
    pub const fn with_both_masks(self) -> Self {
        Self { both: true, ..self }
    }

    /// Whether a layer has one.
    pub(super) fn has(self, layer: usize) -> bool {
        self.window.is_some() && self.layers.has(layer)
    }

    /// That of a layer.
    pub(super) fn of(self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.layers.has(layer))
    }

    /// The kinds of masks that a forward pass makes, in their order.
    pub(super) fn kinds(self) -> Vec<Option<usize>> {
        match self.window {
            None => vec![None],
            window if self.layers == LayerPattern::ALL && !self.both => vec![window],
            window => vec![None, window],
        }
    }
}

/// The sizes of a vision tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TowerSizes {
    /// What it is.
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

/// What a vision tower is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TowerKind {
    /// SigLIP (Gemma 3).
    Siglip {
        /// Patches of an image, each of which has an embedding.
        positions: usize,
    },
    /// Pixtral (Mistral 3).
    Pixtral(PixtralSizes),
}

/// What only Pixtral and its projector have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixtralSizes {
    /// Rotary frequencies.
    pub frequencies: usize,
    /// Patches of an image that become one.
    pub merged: usize,
    /// What projects them has biases.
    pub biased: bool,
    /// Layers whose output is projected.
    pub features: usize,
}

impl TowerKind {
    /// The model that has the tower makes the masks of its language model, before there are positions, and looks for no packed samples.
    pub(super) const fn makes_masks(self) -> bool {
        matches!(self, Self::Siglip { .. })
    }
}

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecoderSizes {
    /// Tokens that it knows.
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
    /// How many of them are rotated, from the first on, where that is not all: an even number (`partial_rotary_factor`).
    pub rotated: Option<usize>,
    /// The head's weight is the embedding's.
    pub tied: bool,
    /// Added to the mean squares of norms.
    pub eps: f64,
    /// The longest rotary wavelength is about 2π times this.
    pub theta: f64,
    /// Stretched frequencies.
    pub scaling: Option<RotaryScaling>,
    /// Layers with a window have frequencies of their own, whose longest wavelength is about 2π times this (Gemma 3).
    pub local_theta: Option<f64>,
    /// How queries grow with their positions (Ministral 3).
    pub position_scale: Option<PositionScale>,
    /// Positions that have learned embeddings, which are added to those of tokens; then nothing is rotated (GPT-2).
    pub positions: Option<usize>,
    /// Layers whose queries and keys are not rotated (SmolLM3).
    pub unrotated: LayerPattern,
    /// Positions of a training sample.
    pub seq: usize,
    /// The type of weights: f32, f16 or bf16.
    pub weights: DType,
    /// How its parts differ from Llama's.
    pub style: Style,
    /// The token whose embedding learns nothing.
    pub padding: Option<usize>,
    /// Queries, keys and values are kept within this (OLMo 1).
    pub clip: Option<f64>,
    /// Products of queries and keys are divided by the root of this, where it is not a head's size.
    pub query_scalar: Option<f64>,
    /// What scores and logits are kept within.
    pub caps: SoftCaps,
    /// Logits are multiplied by it (Cohere).
    pub logit_scale: Option<f64>,
    /// What is left out.
    pub dropouts: Dropouts,
    /// What its parts are multiplied by.
    pub multipliers: Option<Multipliers>,
    /// How far back positions see.
    pub windows: SlidingWindows,
    /// Experts, where it has them.
    pub experts: Option<ExpertSizes>,
    /// A vision tower that stands beside it and is not run.
    pub tower: Option<TowerSizes>,
    /// Adapters that are trained instead of it.
    pub lora: Option<Lora>,
}

impl DecoderSizes {
    /// The rotary frequencies, in f32: half as many as elements of a head are rotated. Those of layers with a window, where they have their
    /// own and `local` is asked for.
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

    /// The rotary frequencies with a factor for each.
    pub(super) fn divided(&self, factors: &Factors) -> Vec<f32> {
        self.wavelengths(self.theta)
            .zip(factors.iter())
            .map(|(wavelength, factor)| 1.0 / (factor * wavelength))
            .collect()
    }

    /// The rotary frequencies of samples of `count` positions where they follow that, in the steps of f32 in which transformers computes them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    pub(super) fn followed(&self, scaling: DynamicScaling, count: usize) -> Vec<f32> {
        let rotated = self.rotated.unwrap_or(self.head_size) as f64;
        let times = scaling.factor as f32 * count as f32 / scaling.most as f32 - (scaling.factor - 1.0) as f32;
        let theta = self.theta as f32 * times.powf((rotated / (rotated - 2.0)) as f32);
        self.wavelengths(f64::from(theta)).map(|wavelength| 1.0 / wavelength).collect()
    }

    /// Positions in which each pair of elements turns by 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    fn wavelengths(&self, theta: f64) -> impl Iterator<Item = f32> {
        let rotated = self.rotated.unwrap_or(self.head_size);
        (0..rotated / 2).map(move |i| (theta as f32).powf(2.0 * i as f32 / rotated as f32))
    }
}
