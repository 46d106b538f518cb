//! What makes one decoder another.

use vramlab_device::DType;

use super::super::lora::Lora;

/// How a decoder's parts differ from Llama's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Queries and keys are normalised head by head (Qwen3).
    pub norms_heads: bool,
    /// Projections of queries, keys and values have a bias (Qwen2).
    pub biases: bool,
    /// Embeddings are scaled, gates go through GELU, and norms, whose weights are added to 1, stand behind attention and MLP too
    /// (Gemma 2).
    pub gemma: bool,
}

/// Bounds that values are kept within by the tanh of their part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SoftCaps {
    /// Of scores; SDPA has none, so only eager attention keeps it.
    pub scores: Option<f64>,
    /// Of logits.
    pub logits: Option<f64>,
}

/// SlidingWindows of attention: a position sees itself and those before it within one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlidingWindows {
    /// No layer has one.
    #[default]
    None,
    /// Every layer has one of so many positions (Mistral).
    Every(usize),
    /// The first layer has one, and every second one after it (Gemma 2).
    Alternate(usize),
}

impl SlidingWindows {
    /// That of a layer.
    pub(super) const fn of(self, layer: usize) -> Option<usize> {
        match self {
            Self::Every(window) => Some(window),
            Self::Alternate(window) if layer.is_multiple_of(2) => Some(window),
            Self::None | Self::Alternate(_) => None,
        }
    }

    /// The kinds of masks that a forward pass makes, in their order.
    pub(super) fn kinds(self) -> Vec<Option<usize>> {
        match self {
            Self::None => vec![None],
            Self::Every(window) => vec![Some(window)],
            Self::Alternate(window) => vec![None, Some(window)],
        }
    }
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
    /// The head's weight is the embedding's.
    pub tied: bool,
    /// Added to the mean squares of norms.
    pub eps: f64,
    /// The longest rotary wavelength is about 2π times this.
    pub theta: f64,
    /// Stretched frequencies.
    pub scaling: Option<Llama3Scaling>,
    /// Positions of a training sample.
    pub seq: usize,
    /// The type of weights: f32 or bf16.
    pub weights: DType,
    /// How its parts differ from Llama's.
    pub style: Style,
    /// The token whose embedding learns nothing.
    pub padding: Option<usize>,
    /// Products of queries and keys are divided by the root of this, where it is not a head's size.
    pub query_scalar: Option<f64>,
    /// What scores and logits are kept within.
    pub caps: SoftCaps,
    /// How far back positions see.
    pub windows: SlidingWindows,
    /// Adapters that are trained instead of it.
    pub lora: Option<Lora>,
}

impl DecoderSizes {
    /// The rotary frequencies, in f32: half as many as a head has elements.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "f32 as in PyTorch")]
    pub(super) fn frequencies(&self) -> Vec<f32> {
        let of = |i: usize| 1.0 / (self.theta as f32).powf(2.0 * i as f32 / self.head_size as f32);
        let stretched = |frequency: f32| match self.scaling {
            None => frequency,
            Some(scaling) => scaling.stretched(f64::from(frequency)) as f32,
        };
        (0..self.head_size / 2).map(of).map(stretched).collect()
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
