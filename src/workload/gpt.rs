//! GPT-2: learned positions, pre-norm blocks, a head tied to the token embedding.

use vramlab_train::TrainError;

use super::bounds::{Extent, Repeats};
use super::error::CatalogError;
use super::parameters::Spread;
use super::sequential::{Description, Flow, Layer, LayerKind, Sequential};
use super::sizes::{Size, Sizes};

/// Sizes of a GPT or BERT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanguageSizes {
    /// Tokens that it knows.
    pub vocab: Extent,
    /// Positions that it has embeddings for.
    pub context: Extent,
    /// Positions of a training sample, at most `context`.
    pub seq: Extent,
    /// Width of the residual stream.
    pub width: Extent,
    /// Blocks.
    pub layers: Repeats,
    /// Attention heads; they divide the width.
    pub heads: Extent,
}

impl LanguageSizes {
    /// Those of the workload `name`.
    pub(super) fn of(name: &str, sizes: Sizes) -> Result<Self, CatalogError> {
        let known = [Size::Layers, Size::Width, Size::Heads, Size::Seq, Size::Context, Size::Vocab];
        let checked = sizes.only(name, &known)?;
        let seq = checked.need(Size::Seq)?;
        Ok(Self {
            vocab: checked.need(Size::Vocab)?,
            context: sizes.context.unwrap_or(seq),
            seq,
            width: checked.need(Size::Width)?,
            layers: checked.layers()?,
            heads: checked.need(Size::Heads)?,
        })
    }

    /// A model that embeds tokens, goes on with `layers` and ends with a head tied to the embedding.
    pub(super) fn describe(self, layers: impl IntoIterator<Item = Layer>) -> Description {
        let Self { vocab, context, seq, width, .. } = self;
        let embedding = Layer::named("wte", LayerKind::Embedding { width, positions: Some(context) });
        let head = Layer::named("head", LayerKind::TiedLinear);
        Description {
            input: Flow::Tokens { rows: seq.get(), vocab: vocab.get() },
            layers: std::iter::once(embedding).chain(layers).chain([head]).collect(),
            spread: Spread::Transformer,
        }
    }
}

/// The workload of a GPT.
///
/// # Errors
/// [`TrainError::Workload`] for sizes of which no model can be made.
pub fn gpt(name: &str, sizes: LanguageSizes) -> Result<Sequential, TrainError> {
    let LanguageSizes { heads, layers: repeat, .. } = sizes;
    let blocks = LayerKind::Transformer { heads, causal: true, post_norm: false, tanh: true, repeat };
    let layers = [Layer::named("blocks", blocks), Layer::named("ln_f", LayerKind::LayerNorm)];
    Sequential::new(name, &sizes.describe(layers))
}
