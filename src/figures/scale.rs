//! The units of written numbers: `2 GiB`, `30 %`, `1.5 ms`.

use std::fmt;

use super::unit::{Amount, FigureUnit};
use crate::units::{GIB, KIB, MIB};
use crate::user_input::hint;

/// A unit behind a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The word; empty for a bare number.
    word: &'static str,
    unit: FigureUnit,
    /// How many of `unit` one of this is.
    factor: f64,
}

/// All units.
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
    /// A bare number.
    pub const ONE: Self = scale("", FigureUnit::Number, 1.0);

    /// The unit with this word.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        SCALES.into_iter().find(|scale| scale.word == word)
    }

    /// Like [`Scale::named`].
    ///
    /// # Errors
    /// A sentence that says there is no such unit, and names a similar one.
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

    /// The figure unit that it measures.
    #[must_use]
    pub const fn unit(self) -> FigureUnit {
        self.unit
    }

    /// This many of the unit, as an amount.
    #[must_use]
    pub fn amount(self, number: f64) -> Amount {
        Amount { value: number * self.factor, unit: self.unit }
    }

    /// `amount` as a number of this unit; `None` if it measures something else.
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
