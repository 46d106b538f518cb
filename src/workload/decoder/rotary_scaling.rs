//! How rotary frequencies are stretched for samples longer than those that a model first learned.

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

    pub(super) fn iter(&self) -> impl Iterator<Item = f32> {
        self.values.iter().copied().take(self.count)
    }
}

impl Llama3Scaling {
    pub(super) fn stretched(self, frequency: f64) -> f64 {
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
    pub(super) fn ends(self, rotated: usize, theta: f64) -> [f64; 2] {
        let end =
            |turns: f64| rotated as f64 * (self.original / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln());
        let (low, high) = (end(self.fast), end(self.slow));
        let (low, high) = if self.truncates { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(rotated as f64 - 1.0));
        if low == high { [low, high + 0.001] } else { [low, high] }
    }

    /// A frequency, in the steps of f32 in which transformers computes it.
    #[expect(clippy::cast_possible_truncation, reason = "f32 as in PyTorch")]
    pub(super) fn mixed(self, wavelength: f32, pair: u16, [low, high]: [f64; 2]) -> f32 {
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
