//! The models for which there are formulas, and their parameters.

use thiserror::Error;

/// A kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// A transformer that predicts the next token, with norms before attention and MLP.
    Gpt,
    /// A transformer whose positions see each other, with norms after the sums.
    Bert,
    /// Linear layers with ReLU.
    Mlp,
}

/// A model described by its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its kind.
    pub kind: ModelKind,
    /// L: transformer blocks; for an MLP linear layers, including the head.
    pub layers: u64,
    /// d: channels.
    pub width: u64,
    /// H: attention heads; 0 for an MLP.
    pub heads: u64,
    /// T: positions in a sequence; for an MLP, elements in a sample.
    pub seq: u64,
    /// C: positions for which the model has embeddings.
    pub context: u64,
    /// V: tokens in the vocabulary; for an MLP, classes.
    pub vocab: u64,
}

/// Sizes for which no figure can be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// A size is 0.
    #[error("a model needs layers, width, sequence and vocabulary of 1 at least; give them")]
    Nothing,
    /// An MLP with one layer has no hidden layer.
    #[error("an MLP needs 2 layers at least; raise --layers")]
    TooFewLayers,
    /// The product exceeds 64 bits.
    #[error("the model is larger than any memory; take smaller sizes")]
    TooLarge,
}

/// The number of parameters, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// All of them.
    pub all: u64,
    /// Parameters of matrices that products cast to 16 bits.
    pub cast: u64,
    /// Parameters of the largest tensor.
    pub largest: u64,
    /// The number of tensors.
    pub tensors: u64,
    /// Parameters of the matrices of hidden layers.
    pub hidden: u64,
    /// The sides of the largest of these matrices.
    pub widest: [u64; 2],
}

impl Model {
    /// Counts its parameters.
    ///
    /// # Errors
    /// See [`SizeError`].
    pub fn weights(&self) -> Result<Weights, SizeError> {
        let Self { kind, layers, width: d, seq, context, vocab, .. } = *self;
        if [layers, d, seq, vocab].contains(&0) {
            return Err(SizeError::Nothing);
        }
        if kind == ModelKind::Mlp && layers < 2 {
            return Err(SizeError::TooFewLayers);
        }
        let times = |a: u64, b: u64| a.checked_mul(b).filter(|&n| n < 1 << 56).ok_or(SizeError::TooLarge);
        let square = times(d, d)?;
        let weights = match kind {
            ModelKind::Gpt | ModelKind::Bert => {
                let table = times(vocab, d)?;
                let blocks = times(layers, times(12, square)?)?;
                Weights {
                    all: table + times(context, d)? + blocks + times(layers, 13 * d)? + 2 * d,
                    // The head shares the embedding's weight.
                    cast: blocks + table,
                    largest: table.max(4 * square),
                    tensors: times(layers, 12)? + 4,
                    hidden: blocks,
                    widest: [4 * d, d],
                }
            }
            ModelKind::Mlp => {
                let (first, head) = (times(seq, d)?, times(d, vocab)?);
                let hidden = times(layers - 2, square)?;
                Weights {
                    all: first + hidden + head + times(layers - 1, d)? + vocab,
                    cast: first + hidden + head,
                    largest: first.max(head).max(if layers > 2 { square } else { 0 }),
                    tensors: times(layers, 2)?,
                    hidden: first + hidden,
                    widest: [if layers > 2 { seq.max(d) } else { seq }, d],
                }
            }
        };
        if weights.all < 1 << 56 { Ok(weights) } else { Err(SizeError::TooLarge) }
    }

    /// The number of parameters in letters.
    #[must_use]
    pub const fn weights_in_letters(&self) -> &'static str {
        match self.kind {
            ModelKind::Gpt | ModelKind::Bert => "V·d + C·d + L·(12·d² + 13·d) + 2·d",
            ModelKind::Mlp => "T·d + (L−2)·d² + d·V + (L−1)·d + V",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_reference_models() {
        let of = |kind, [layers, width, heads, seq, vocab]: [u64; 5]| {
            Model { kind, layers, width, heads, seq, context: seq, vocab }.weights().map(|weights| weights.all)
        };
        assert_eq!(of(ModelKind::Gpt, [12, 768, 12, 1024, 50257]), Ok(124_439_808));
        assert_eq!(of(ModelKind::Bert, [24, 1024, 16, 512, 30522]), Ok(334_090_240));
        assert_eq!(of(ModelKind::Mlp, [8, 4096, 0, 1024, 1000]), Ok(108_983_272));
        assert_eq!(of(ModelKind::Mlp, [1, 4096, 0, 1024, 1000]), Err(SizeError::TooFewLayers));
        assert_eq!(of(ModelKind::Gpt, [0, 768, 12, 1024, 50257]), Err(SizeError::Nothing));
        assert_eq!(of(ModelKind::Gpt, [1 << 20, 1 << 24, 1, 1, 1]), Err(SizeError::TooLarge));
    }
}
