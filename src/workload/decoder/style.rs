//! How the parts of one decoder differ from those of another.

use super::super::llama::{NormKind, PackedMlp};
use super::super::plan::TensorPlan;
use super::names::Names;

/// Where the norms of the residual stream are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormPlaces {
    /// Before attention and before the MLP (Llama).
    #[default]
    Before,
    /// Before and after both (Gemma).
    Around,
    /// The same under other names (GLM-4).
    AroundParts,
    /// One before both, which run side by side (Cohere).
    Once,
    /// The same; the outputs of both are added to each other first (Phi).
    OncePaired,
    /// The same; the output of attention is added to that of the MLP in place (Falcon 7B).
    OnceInPlace,
    /// The same with a norm for each, both of the layer's input (GPT-NeoX).
    Beside,
    /// A norm for each, both of the layer's input and before either runs; sums as in `OnceInPlace` (Falcon 40B).
    BothInPlace,
    /// After both (OLMo 2).
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
    /// Head by head, after values are projected too (GLM-4.5).
    EachBehindValues,
    /// All heads together (OLMo 2).
    Together,
    /// Each head with its own weight (StableLM).
    Apart,
    /// Head by head, after the rotation (Hunyuan).
    Turned,
    /// The same without a weight, in layers that rotate (Llama 4).
    TurnedSquare,
}

/// Which projections of attention have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Biases {
    /// None.
    #[default]
    None,
    /// Those of queries, keys and values (Qwen2).
    Inputs,
    /// Those and that of the output (`attention_bias`).
    All,
}

/// How queries and keys are rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rotation {
    /// Not at all: only the mask tells positions apart (Granite 4 with `nope`).
    Never,
    /// Pairs have one element from each half of a head, in the type of the residual stream (Llama).
    #[default]
    Plain,
    /// The same in f32, cast back (OLMo).
    Wide,
    /// As `Plain`; the rest of a head is joined to its rotated part after both queries and keys are rotated (Nemotron).
    BeforeRest,
    /// The same, but the rotated part is freed when the rest is joined to it, queries before keys (GLM-4.5).
    GivingWay,
    /// Pairs are adjacent elements (GLM).
    Neighbours,
    /// The same over whole heads: there is no rest to join (Helium).
    WholeNeighbours,
    /// The same in f32, cast back (ERNIE 4.5).
    WideNeighbours,
    /// The same for queries and keys that were cast to f32 before, with tables in the type of the residual stream (Cohere).
    CastNeighbours,
    /// By halves, with tables of one half (gpt-oss).
    Halves,
    /// The last part of heads (DeepSeek-V2), or whole heads (Llama 4), whose adjacent elements are complex numbers in f32.
    Complex,
    /// The last part of heads, whose adjacent elements are pairs that end up in two halves (DeepSeek-V3).
    Pairs,
}

impl Rotation {
    /// Whether the tables are in f32.
    pub(super) const fn is_wide(self) -> bool {
        matches!(self, Self::Wide | Self::WideNeighbours)
    }
}

/// Which linear layers of a block are joined into one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerFusion {
    /// None.
    #[default]
    None,
    /// The projections of queries, keys and values, side by side in each head (GPT-NeoX).
    Heads,
    /// The same, each cut out of it for itself (BLOOM).
    Selected,
    /// The projections of queries, keys and values, side by side (GPT-2).
    Thirds,
    /// The projections of queries, keys and values; the queries of a group beside the key and value that they share (Falcon).
    Groups,
    /// The MLP's gate and up projections (GLM).
    Gates,
    /// Those of the MLP, and those of queries, keys and values (Phi-3).
    All,
}

/// When the norms of a layer are created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormsMade {
    /// After its other parts.
    #[default]
    Last,
    /// After its other parts; the norm after all layers is created after the rotary frequencies, not before (Phi).
    VeryLast,
    /// Before its other parts (GPT-NeoX).
    First,
    /// Each before the part that it precedes (GPT-2).
    InTurn,
    /// After attention, before the MLP (GraniteMoE).
    Between,
    /// Each after the part that it precedes; the norm after all layers is created before them (OPT).
    BehindEach,
    /// Before its other parts, and the MLP before attention (Granite 4).
    BeforeMlp,
}

/// Which code gets the positions, besides the rotary embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PositionUse {
    /// The code for masks, which then looks for packed samples, and layers, which do not read them.
    #[default]
    Both,
    /// Layers only (gpt-oss).
    Layers,
    /// Neither (Granite 4).
    Neither,
}

/// Which tensors live as long as a layer, or its attention, runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerLocals {
    /// Nothing.
    #[default]
    Nothing,
    /// The outputs of attention and the MLP; their inputs live until the output is added (GPT-2).
    Outputs,
    /// The cut and rotated tensors within attention, as long as it runs (Phi).
    Rotated,
    /// Those, and the input and output of attention as long as the layer runs (StableLM).
    Attention,
    /// The output of attention (Llama 4).
    AttentionOutput,
}

impl LayerLocals {
    /// Whether the output of attention lives on.
    pub(super) const fn outputs(self) -> bool {
        matches!(self, Self::Outputs | Self::Attention | Self::AttentionOutput)
    }

    /// Whether cut and rotated tensors live to the end of attention.
    pub(super) const fn rotated(self) -> bool {
        matches!(self, Self::Rotated | Self::Attention)
    }
}

/// The activation of an MLP without a gate, or of Gemma's gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MlpActivation {
    /// GELU in its tanh form, as one op (`gelu_pytorch_tanh`).
    #[default]
    GeluTanh,
    /// GELU by the error function (`gelu`).
    Gelu,
    /// GELU in its tanh form, op by op (`gelu_new`).
    NewGelu,
    /// ReLU (`relu`).
    Relu,
    /// ReLU, squared (`relu2`).
    SquaredRelu,
    /// GELU in its tanh form, as a function with a backward of its own (BLOOM).
    BloomGelu,
}

/// How a decoder's parts differ from Llama's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The kind of its norms.
    pub norm: NormKind,
    /// Where its norms are.
    pub places: NormPlaces,
    /// Norms of queries and keys.
    pub heads: HeadNorms,
    /// Biases of attention.
    pub biases: Biases,
    /// Linear layers of the MLP have biases.
    pub mlp_biases: bool,
    /// How queries and keys are rotated.
    pub rotation: Rotation,
    /// Linear layers that are joined.
    pub packing: LayerFusion,
    /// The MLP has no gate.
    pub ungated: bool,
    /// Linear layers within layers are `Conv1D` of transformers: their weights are (in, out), with biases (GPT-2).
    pub conv1d: bool,
    /// The softmax of eager attention runs in the type of the scores (GPT-2, Llama 4).
    pub narrow_softmax: bool,
    /// Linear layers within layers are `input @ weight.T` (Falcon).
    pub products: bool,
    /// SDPA gets a mask although it could do without (Falcon).
    pub always_masks: bool,
    /// The head has a bias (Phi).
    pub head_bias: bool,
    /// The softmax of attention has one more logit for each head, which takes a share: only eager attention does that (gpt-oss).
    pub sinks: bool,
    /// Scores get a bias that grows with positions, which only eager attention adds; parts of a layer add to the residual stream
    /// themselves, and a norm follows the embeddings (BLOOM).
    pub alibi: bool,
    /// When norms are created.
    pub norms_made: NormsMade,
    /// The form of an MLP with one layer for gate and up projection.
    pub packed: PackedMlp,
    /// Which code gets the positions.
    pub told: PositionUse,
    /// Learned positions are computed from a mask, which the model makes if it gets none (OPT).
    pub counts_mask: bool,
    /// Queries are scaled after their projection, instead of their products with keys; they are projected after keys and values (OPT).
    pub scales_queries: bool,
    /// Its class initialises rotary frequencies again (Hunyuan).
    pub turns_anew: bool,
    /// Tensors that live longer than needed.
    pub kept: LayerLocals,
    /// The names of its modules.
    pub names: Names,
    /// How ranks split its modules.
    pub plan: TensorPlan,
    /// Gates go through GELU, and embeddings are multiplied by the root of their width (Gemma).
    pub gemma: bool,
    /// The form of that GELU, or the activation of an MLP without a gate.
    pub activation: MlpActivation,
}

impl Style {
    /// Llama's.
    pub const LLAMA: Self = Self {
        norm: NormKind::Plain,
        places: NormPlaces::Before,
        heads: HeadNorms::None,
        biases: Biases::None,
        mlp_biases: false,
        rotation: Rotation::Plain,
        packing: LayerFusion::None,
        ungated: false,
        conv1d: false,
        narrow_softmax: false,
        products: false,
        always_masks: false,
        head_bias: false,
        sinks: false,
        alibi: false,
        norms_made: NormsMade::Last,
        packed: PackedMlp::PHI,
        told: PositionUse::Both,
        counts_mask: false,
        scales_queries: false,
        turns_anew: false,
        kept: LayerLocals::Nothing,
        names: Names::LLAMA,
        plan: TensorPlan::LLAMA,
        gemma: false,
        activation: MlpActivation::GeluTanh,
    };
}

impl Default for Style {
    fn default() -> Self {
        Self { names: Names::ADAPTED, ..Self::LLAMA }
    }
}
