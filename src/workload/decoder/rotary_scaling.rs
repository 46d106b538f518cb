//! How rotary frequencies are stretched for samples longer than those of the original training.

/// How rotary frequencies are stretched beyond the positions of the original training.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one a model, and it is copied with its sizes")]
pub enum RotaryScaling {
    /// All frequencies are divided by this.
    Linear(f64),
    /// The frequencies of long wavelengths are divided.
    Llama3(Llama3Scaling),
    /// Each frequency is divided by a factor of its own.
    Long(LongScaling),
    /// Low frequencies are divided, high ones stay, those in between are blended (YaRN).
    Yarn(YarnScaling),
    /// All are stretched for samples longer than those of the original training, in proportion to the excess.
    Dynamic(DynamicScaling),
}

impl RotaryScaling {
    /// The factor on the base of the first frequencies.
    pub(super) const fn alpha(&self) -> Option<f64> {
        match self {
            Self::Dynamic(scaling) => scaling.alpha,
            Self::Long(_) | Self::Yarn(_) | Self::Linear(_) | Self::Llama3(_) => None,
        }
    }

    /// The factor on cosines and sines.
    pub(super) const fn attention(&self) -> f64 {
        match self {
            Self::Long(scaling) => scaling.attention,
            Self::Yarn(scaling) => scaling.attention,
            Self::Linear(_) | Self::Llama3(_) | Self::Dynamic(_) => 1.0,
        }
    }
}

/// Rotary frequencies with two factors each, one for samples up to the length of the original training, one for longer ones (Phi-3.5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongScaling {
    /// Divisors of frequencies in samples up to that length.
    pub short: Factors,
    /// Divisors in longer ones.
    pub long: Factors,
    /// Positions of the original training.
    pub original: usize,
    /// The factor on cosines and sines.
    pub attention: f64,
}

/// Rotary frequencies that are stretched beyond the positions of the original training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// The factor on long wavelengths.
    pub factor: f64,
    /// Wavelengths over `original / low` are long.
    pub low: f64,
    /// Wavelengths under `original / high` stay.
    pub high: f64,
    /// Positions of the original training.
    pub original: f64,
}

/// Rotary frequencies that are stretched more for longer wavelengths (YaRN).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// The factor on long wavelengths.
    pub factor: f64,
    /// A pair of elements with at least this many turns within `original` positions stays unchanged.
    pub fast: f64,
    /// A pair with at most this many turns is stretched fully.
    pub slow: f64,
    /// Both ends are rounded to pairs of elements.
    pub truncates: bool,
    /// Positions of the original training.
    pub original: f64,
    /// The factor on cosines and sines.
    pub attention: f64,
}

/// Rotary frequencies that depend on the longest sample so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicScaling {
    /// How fast they change with it.
    pub factor: f64,
    /// Up to this many positions they stay unchanged (`max_position_embeddings`).
    pub most: usize,
    /// The factor, up to an exponent, on the base of the first frequencies (Hunyuan).
    pub alpha: Option<f64>,
}

/// Divisors of rotary frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    values: [f32; Self::MOST],
    count: usize,
}

impl Factors {
    /// The most divisors: enough for heads of 256 elements.
    pub const MOST: usize = 128;

    /// The divisors; `None` if there are more than [`Self::MOST`].
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
    /// Among `rotated` elements, the first pair whose frequency is blended, and the first that is divided.
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
