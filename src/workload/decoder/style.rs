//! How the parts of one decoder differ from those of another.

use super::super::llama::{NormKind, PackedMlp};
use super::super::plan::TensorPlan;
use super::names::Names;

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
    /// The same, when values are projected too (GLM-4.5).
    EachBehindValues,
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
    /// The same, and the rest of a head is joined to what is rotated when both are (Nemotron).
    BeforeRest,
    /// The same, and what was rotated goes when the rest is joined to it, of queries before keys (GLM-4.5).
    GivingWay,
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
pub enum LayerFusion {
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
    /// Each behind what it stands before; the one behind all layers is made before them (OPT).
    BehindEach,
    /// Before them, and the MLP before attention (Granite 4).
    BeforeMlp,
}

/// What is told of positions beside what turns them into rotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PositionUse {
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
pub enum LayerLocals {
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

impl LayerLocals {
    /// What comes out of attention lives on.
    pub(super) const fn outputs(self) -> bool {
        matches!(self, Self::Outputs | Self::Attention)
    }

    /// What is cut and rotated in attention does, within it.
    pub(super) const fn rotated(self) -> bool {
        matches!(self, Self::Rotated | Self::Attention)
    }
}

/// What hidden values of an MLP without a gate go through, or what Gemma's gates do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MlpActivation {
    /// GELU by tanh, as one op (`gelu_pytorch_tanh`).
    #[default]
    GeluTanh,
    /// GELU by the error function (`gelu`).
    Gelu,
    /// GELU by tanh, op by op (`gelu_new`).
    NewGelu,
    /// What is positive (`relu`).
    Relu,
    /// The same, squared (`relu2`).
    SquaredRelu,
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
    pub packing: LayerFusion,
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
    pub told: PositionUse,
    /// Learned positions are counted from a mask, which the model makes where it is given none (OPT).
    pub counts_mask: bool,
    /// Queries are scaled where they are projected, not their products with keys; they are made behind keys and values (OPT).
    pub scales_queries: bool,
    /// Its class initialises rotary frequencies once more (Hunyuan).
    pub turns_anew: bool,
    /// What lives longer than it is needed.
    pub kept: LayerLocals,
    /// What its modules are called.
    pub names: Names,
    /// How ranks split them.
    pub plan: TensorPlan,
    /// Gates go through GELU, and embeddings are multiplied by the root of their width (Gemma).
    pub gemma: bool,
    /// The form of that GELU, or what an MLP without a gate has.
    pub activation: MlpActivation,
}
