//! The units of figures, and how amounts are printed.

use std::fmt;

use serde::Serialize;

use crate::units::Bytes;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Bytes a second.
    BytesPerSecond,
    /// Tokens, images or samples a second.
    PerSecond,
    /// A count.
    Count,
    /// A part of a whole, which is 1; printed in per cent.
    Share,
    /// A number without a unit, such as a ratio or a loss.
    Number,
}

impl FigureUnit {
    /// The unit's name in sentences and tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Milliseconds => "milliseconds",
            Self::BytesPerSecond => "bytes a second",
            Self::PerSecond => "a second",
            Self::Count => "count",
            Self::Share => "share",
            Self::Number => "number",
        }
    }

    /// Whether this is a count, a share or a number: these multiply any unit, and can be added to one another.
    #[must_use]
    pub const fn is_bare(self) -> bool {
        matches!(self, Self::Count | Self::Share | Self::Number)
    }

    /// How many of the unit of computation one of this is; times are computed in seconds.
    pub(super) const fn base(self) -> f64 {
        match self {
            Self::Milliseconds => 1e-3,
            _ => 1.0,
        }
    }
}

/// A number with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Amount {
    /// The number, in its unit; a difference can be negative.
    pub value: f64,
    /// The unit.
    pub unit: FigureUnit,
}

impl Amount {
    /// The same in per cent, if it is a count, a share or a number.
    #[must_use]
    pub fn as_share(self) -> Self {
        if self.unit.is_bare() { Self { unit: FigureUnit::Share, ..self } } else { self }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, size) = (self.value, self.value.abs());
        let text = match self.unit {
            FigureUnit::Bytes => {
                let sign = if value < 0.0 && size >= 0.5 { "-" } else { "" };
                format!("{sign}{}", Bytes(size.round() as u64))
            }
            FigureUnit::Milliseconds if size < 1.0 => format!("{value:.3} ms"),
            FigureUnit::Milliseconds => format!("{value:.2} ms"),
            FigureUnit::BytesPerSecond if size >= 1e9 => format!("{:.1} GB/s", value / 1e9),
            FigureUnit::BytesPerSecond => format!("{:.1} MB/s", value / 1e6),
            FigureUnit::PerSecond if size >= 100.0 => format!("{value:.0}/s"),
            FigureUnit::PerSecond => format!("{value:.1}/s"),
            FigureUnit::Count if value == value.trunc() => format!("{value:.0}"),
            FigureUnit::Count => format!("{value:.1}"),
            FigureUnit::Share if size >= 0.1 => format!("{:.0} %", value * 100.0),
            FigureUnit::Share => format!("{:.1} %", value * 100.0),
            FigureUnit::Number if size != 0.0 && size < 0.1 => format!("{value:.4}"),
            FigureUnit::Number => format!("{value:.2}"),
        };
        match text.strip_prefix('-') {
            // Zero gets no sign.
            Some(size) if !size.contains(|digit: char| ('1'..='9').contains(&digit)) => f.pad(size),
            Some(size) => f.pad(&format!("−{size}")),
            None => f.pad(&text),
        }
    }
}
