//! Rotary frequencies, and how they are stretched for samples longer than those that a model first learned.

use super::sizes::DecoderSizes;

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
