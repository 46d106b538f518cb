//! The values that settings can have, in a file, in the environment and on the command line alike.

use clap::ValueEnum;
use serde::Deserialize;

use crate::drawing::theme::ColorTier;
use crate::tui::GlyphTier;

/// How many colours to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum ColorArg {
    /// What the terminal supports.
    Auto,
    /// None.
    Never,
    /// The terminal's own.
    #[value(name = "16")]
    #[serde(rename = "16")]
    Ansi,
    /// The fixed ones.
    #[value(name = "256")]
    #[serde(rename = "256")]
    Indexed,
    /// All.
    Truecolor,
}

impl ColorArg {
    /// The colour tier; `None` if it is to be detected.
    pub fn tier(self) -> Option<ColorTier> {
        match self {
            Self::Auto => None,
            Self::Never => Some(ColorTier::None),
            Self::Ansi => Some(ColorTier::Ansi),
            Self::Indexed => Some(ColorTier::Indexed),
            Self::Truecolor => Some(ColorTier::True),
        }
    }
}

/// Which characters to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum GlyphArg {
    /// From the locale.
    Auto,
    /// Lines, blocks, braille.
    Unicode,
    /// Plain ASCII.
    Ascii,
}

impl GlyphArg {
    /// The glyph tier; `None` if it is to be detected.
    pub fn tier(self) -> Option<GlyphTier> {
        match self {
            Self::Auto => None,
            Self::Unicode => Some(GlyphTier::Unicode),
            Self::Ascii => Some(GlyphTier::Ascii),
        }
    }
}
