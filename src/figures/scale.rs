//! The units that a number may be written in: `2 GiB`, `30 %`, `1.5 ms`.

use std::fmt;

use super::unit::{Amount, FigureUnit};
use crate::units::{GIB, KIB, MIB};
use crate::user_input::hint;

/// A unit as it is written behind a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The word; empty for a number alone.
    word: &'static str,
    unit: FigureUnit,
    /// How much of `unit` one of it is.
    factor: f64,
}

/// All of them.
const SCALES: [Scale; 16] = [
    scale("B", FigureUnit::Bytes, 1.0),
    scale("KiB", FigureUnit::Bytes, KIB as f64),
    scale("MiB", FigureUnit::Bytes, MIB as f64),
    scale("GiB", FigureUnit::Bytes, GIB as f64),
    scale("TiB", FigureUnit::Bytes, (GIB * KIB) as f64),
    scale("us", FigureUnit::Milliseconds, 1e-3),
    scale("ms", FigureUnit::Milliseconds, 1.0),
    scale("s", FigureUnit::Milliseconds, 1e3),
    scale("B/s", FigureUnit::BytesPerSecond, 1.0),
    scale("kB/s", FigureUnit::BytesPerSecond, 1e3),
    scale("MB/s", FigureUnit::BytesPerSecond, 1e6),
    scale("GB/s", FigureUnit::BytesPerSecond, 1e9),
    scale("GiB/s", FigureUnit::BytesPerSecond, GIB as f64),
    scale("/s", FigureUnit::PerSecond, 1.0),
    scale("%", FigureUnit::Share, 0.01),
    Scale::ONE,
];

const fn scale(word: &'static str, unit: FigureUnit, factor: f64) -> Scale {
    Scale { word, unit, factor }
}

impl Scale {
    /// A number alone.
    pub const ONE: Self = scale("", FigureUnit::Number, 1.0);

    /// The unit written so.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        SCALES.into_iter().find(|scale| scale.word == word)
    }

    /// Like [`Scale::named`].
    ///
    /// # Errors
    /// A sentence: that there is no such unit, and which was probably meant.
    pub fn read(word: &str) -> Result<Self, String> {
        Self::named(word).ok_or_else(|| {
            let meant = match word {
                "GB" | "Gb" | "G" | "g" | "gb" => " (did you mean \"GiB\"?)".to_owned(),
                "MB" | "Mb" | "M" | "m" | "mb" => " (did you mean \"MiB\"?)".to_owned(),
                "kB" | "KB" | "K" | "k" | "kb" => " (did you mean \"KiB\"?)".to_owned(),
                _ => hint(word, SCALES.iter().map(|scale| scale.word).filter(|known| !known.is_empty())),
            };
            format!("'{word}' is no unit{meant}; units are B, KiB, MiB, GiB, ms, s, %, GB/s, /s")
        })
    }

    /// What it counts.
    #[must_use]
    pub const fn unit(self) -> FigureUnit {
        self.unit
    }

    /// So many of it.
    #[must_use]
    pub fn amount(self, number: f64) -> Amount {
        Amount { value: number * self.factor, unit: self.unit }
    }

    /// How many of it `amount` is; `None` where it counts something else.
    #[must_use]
    pub fn number_in(self, amount: Amount) -> Option<f64> {
        let fits = amount.unit == self.unit || (amount.unit.is_bare() && self.unit.is_bare());
        fits.then(|| amount.value / self.factor)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word)
    }
}
