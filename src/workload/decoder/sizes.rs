//! What makes one decoder another.

use vramlab_device::DType;
use vramlab_train::{PositionScale, RouterRule};

use super::super::llama::{NormKind, PackedMlp};
use super::super::lora::Lora;
use super::super::plan::TensorPlan;
use super::names::Names;
use super::pattern::LayerPattern;

/// Where norms of the residual stream stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormPlaces {
    /// Before attention and before the MLP (Llama).
    #[default]
    Before,
    /// Before and behind both (Gemma).
    Around,
    /// The same under other names (GLM-4).
    AroundParts,
    /// One before both, which stand side by side (Cohere).
    Once,
    /// The same, and what both put out is added to each other first (Phi).
    OncePaired,
    /// The same with a norm before each, of what goes into the layer (GPT-NeoX).
    Beside,
    /// Behind both (OLMo 2).
    Behind,
}

/// How queries and keys are normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadNorms {
    /// Not at all.
    #[default]
    None,
    /// Head by head (Qwen3, Gemma 3).
    Each,
    /// All heads together (OLMo 2).
    Together,
    /// Each head with a weight of its own (StableLM).
    Apart,
    /// Head by head, when they are rotated (Hunyuan).
    Turned,
}

/// Which projections of attention have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Biases {
    /// None.
    #[default]
    None,
    /// Those to queries, keys and values (Qwen2).
    Inputs,
    /// Those, and that of the output (`attention_bias`).
    All,
}

/// How queries and keys are rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rotation {
    /// Not at all: nothing tells positions apart but the mask (Granite 4 with `nope`).
    Never,
    /// Elements of two halves of a head are pairs, in the type of the residual stream (Llama).
    #[default]
    Plain,
    /// The same in f32, cast back (OLMo).
    Wide,
    /// Neighbours are pairs (GLM).
    Neighbours,
    /// The same in f32, cast back (ERNIE 4.5).
    WideNeighbours,
    /// The same of queries and keys that were cast to f32 before, with tables in the type of the residual stream (Cohere).
    CastNeighbours,
    /// Half by half, with tables of one (gpt-oss).
    Halves,
}

impl Rotation {
    /// The tables are in f32.
    pub(super) const fn is_wide(self) -> bool {
        matches!(self, Self::Wide | Self::WideNeighbours)
    }
}

/// Which layers of a block are one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// None.
    #[default]
    None,
    /// The projections to queries, keys and values, side by side in each head (GPT-NeoX).
    Heads,
    /// The same side by side (GPT-2).
    Thirds,
    /// The MLP's gate and what it lets through (GLM).
    Gates,
    /// Those, and the projections to queries, keys and values (Phi-3).
    All,
}

/// When the norms of a layer are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormsMade {
    /// After its other parts.
    #[default]
    Last,
    /// The same; the one behind all layers is made after rotary frequencies, not before (Phi).
    VeryLast,
    /// Before them (GPT-NeoX).
    First,
    /// Each before what it stands before (GPT-2).
    InTurn,
    /// Behind attention, before the MLP (GraniteMoE).
    Between,
    /// Before them, and the MLP before attention (Granite 4).
    BeforeMlp,
}

/// What is told of positions beside what turns them into rotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// What makes masks, which looks for packed samples then, and layers, which do not read them.
    #[default]
    Both,
    /// Layers alone (gpt-oss).
    Layers,
    /// Neither (Granite 4).
    Neither,
}

/// What lives as long as a layer, or attention in it, runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    #[default]
    Nothing,
    /// What comes out of attention and of the MLP; what goes into them lives until that is added (GPT-2).
    Outputs,
    /// What is cut and rotated within attention, as long as that runs (Phi).
    Rotated,
    /// That, and what goes into attention and what comes out of it, as long as the layer runs (StableLM).
    Attention,
}

impl Kept {
    /// What comes out of attention lives on.
    pub(super) const fn outputs(self) -> bool {
        matches!(self, Self::Outputs | Self::Attention)
    }

    /// What is cut and rotated in attention does, within it.
    pub(super) const fn rotated(self) -> bool {
        matches!(self, Self::Rotated | Self::Attention)
    }
}

/// The form of GELU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gelu {
    /// By tanh, as one op (`gelu_pytorch_tanh`).
    #[default]
    Tanh,
    /// By the error function (`gelu`).
    Exact,
    /// By tanh, op by op (`gelu_new`).
    New,
}

/// How a decoder's parts differ from Llama's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// What its norms do.
    pub norm: NormKind,
    /// Where they stand.
    pub places: NormPlaces,
    /// Norms of queries and keys.
    pub heads: HeadNorms,
    /// Biases of attention.
    pub biases: Biases,
    /// Linear layers of the MLP have biases.
    pub mlp_biases: bool,
    /// How queries and keys are rotated.
    pub rotation: Rotation,
    /// Layers that are one.
    pub packing: Packing,
    /// The MLP has no gate.
    pub ungated: bool,
    /// Linear layers within layers are `Conv1D` of transformers: their weights are (in, out), with biases (GPT-2).
    pub conv1d: bool,
    /// The head has a bias (Phi).
    pub head_bias: bool,
    /// The softmax of attention has one more logit for each head, which takes its share: it is eager alone (gpt-oss).
    pub sinks: bool,
    /// When norms are made.
    pub norms_made: NormsMade,
    /// An MLP whose gate and what it lets through are one layer.
    pub packed: PackedMlp,
    /// What is told of positions.
    pub told: Told,
    /// Its class initialises rotary frequencies once more (Hunyuan).
    pub turns_anew: bool,
    /// What lives longer than it is needed.
    pub kept: Kept,
    /// What its modules are called.
    pub names: Names,
    /// How ranks split them.
    pub plan: TensorPlan,
    /// Gates go through GELU, and embeddings are multiplied by the root of their width (Gemma).
    pub gemma: bool,
    /// The form of that GELU, or of an MLP without a gate.
    pub gelu: Gelu,
}

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
    /// Hidden values of one more that sees every position, where there is one (Qwen1.5-MoE).
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

/// How rotary frequencies reach further than the positions that a model first learned.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one a model, and it is copied with its sizes")]
pub enum RotaryScaling {
    /// All are divided by this.
    Linear(f64),
    /// Those of long wavelengths are.
    Llama3(Llama3Scaling),
    /// Each is divided by a factor of its own.
    Long(LongScaling),
    /// Those that turn seldom are divided, those that turn often stay, those between are mixed (YaRN).
    Yarn(YarnScaling),
    /// All are stretched where samples are longer than those first learned, by how much they are.
    Dynamic(DynamicScaling),
}

impl RotaryScaling {
    /// What the base of the first frequencies grows by.
    pub(super) const fn alpha(&self) -> Option<f64> {
        match self {
            Self::Dynamic(scaling) => scaling.alpha,
            Self::Long(_) | Self::Yarn(_) | Self::Linear(_) | Self::Llama3(_) => None,
        }
    }

    /// What cosines and sines are multiplied by.
    pub(super) const fn attention(&self) -> f64 {
        match self {
            Self::Long(scaling) => scaling.attention,
            Self::Yarn(scaling) => scaling.attention,
            Self::Linear(_) | Self::Llama3(_) | Self::Dynamic(_) => 1.0,
        }
    }
}

/// Rotary frequencies with two factors each, one for samples as long as those that a model first learned, one for longer ones (Phi-3.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongScaling {
    /// Divisors of frequencies in samples that are no longer.
    pub short: Factors,
    /// Those in longer ones.
    pub long: Factors,
    /// Positions first learned.
    pub original: usize,
    /// Cosines and sines are multiplied by it.
    pub attention: f64,
}

/// Rotary frequencies that reach further than the positions that a model first learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// Long wavelengths become so many times longer.
    pub factor: f64,
    /// Wavelengths over `original / low` are long.
    pub low: f64,
    /// Wavelengths under `original / high` stay.
    pub high: f64,
    /// Positions first learned.
    pub original: f64,
}

/// Rotary frequencies that reach further, the more the longer their wavelengths (YaRN).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// Long wavelengths become so many times longer.
    pub factor: f64,
    /// A pair of elements that turns so often within `original` positions stays as it is.
    pub fast: f64,
    /// One that turns so seldom is stretched as a whole.
    pub slow: f64,
    /// Both ends are rounded to pairs of elements.
    pub truncates: bool,
    /// Positions first learned.
    pub original: f64,
    /// Cosines and sines are multiplied by it.
    pub attention: f64,
}

/// Rotary frequencies that follow the longest sample so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicScaling {
    /// How fast they do.
    pub factor: f64,
    /// Positions up to which they stay (`max_position_embeddings`).
    pub most: usize,
    /// The base that they begin with is so many times as large, but for an exponent (Hunyuan).
    pub alpha: Option<f64>,
}

/// Divisors of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    values: [f32; Self::MOST],
    count: usize,
}

impl Factors {
    /// As many as there may be: heads of 256 elements have them.
    pub const MOST: usize = 128;

    /// These; none where there are more than [`Self::MOST`].
    #[must_use]
    pub fn of(given: &[f32]) -> Option<Self> {
        let mut values = [1.0; Self::MOST];
        values.get_mut(..given.len())?.copy_from_slice(given);
        Some(Self { values, count: given.len() })
    }

    fn iter(&self) -> impl Iterator<Item = f32> {
        self.values.iter().copied().take(self.count)
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

impl Llama3Scaling {
    fn stretched(self, frequency: f64) -> f64 {
        let wavelength = std::f64::consts::TAU / frequency;
        if wavelength < self.original / self.high {
            return frequency;
        }
        if wavelength > self.original / self.low {
            return frequency / self.factor;
        }
        let smooth = (self.original / wavelength - self.low) / (self.high - self.low);
        (1.0 - smooth) * frequency / self.factor + smooth * frequency
    }
}

impl YarnScaling {
    /// Among `rotated` elements, the pair from which on frequencies are mixed, and that from which on they are divided.
    #[expect(clippy::cast_precision_loss, reason = "head sizes are small")]
    fn ends(self, rotated: usize, theta: f64) -> [f64; 2] {
        let end =
            |turns: f64| rotated as f64 * (self.original / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
        let (low, high) = (end(self.fast), end(self.slow));
        let (low, high) = if self.truncates { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(rotated as f64 - 1.0));
        if low == high { [low, high + 0.001] } else { [low, high] }
    }

    /// A frequency, in the steps of f32 in which transformers computes it.
    #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
    fn mixed(self, wavelength: f32, pair: u16, [low, high]: [f64; 2]) -> f32 {
        let ramp = ((f32::from(pair) - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
        let stays = 1.0 - ramp;
        1.0 / (self.factor as f32 * wavelength) * (1.0 - stays) + 1.0 / wavelength * stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ROPE_INIT_FUNCTIONS["llama3"]` of transformers 5.17 computes them for Llama 3.2 1B.
    #[test]
    fn long_wavelengths_are_stretched_and_short_ones_stay() {
        let scaling = Llama3Scaling { factor: 32.0, low: 1.0, high: 4.0, original: 8192.0 };
        assert_eq!(scaling.stretched(1.0), 1.0);
        assert_eq!(scaling.stretched(1e-6), 1e-6 / 32.0);
        let between = scaling.stretched(std::f64::consts::TAU / 4096.0);
        assert!((between / (std::f64::consts::TAU / 4096.0) - (1.0 / 3.0 + 2.0 / 3.0 / 32.0)).abs() < 1e-12);
    }
}
