//! The values that settings can have, in a file, in the environment and on the command line alike.

use clap::ValueEnum;
use serde::Deserialize;

use crate::drawing::theme::ColorTier;
use crate::tui::GlyphTier;

/// How many colours to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum ColorArg {
    /// As many as the terminal supports.
    Auto,
    /// No colours.
    Never,
    /// The terminal's own 16 colours.
    #[value(name = "16")]
    #[serde(rename = "16")]
    Ansi,
    /// The 256 fixed colours.
    #[value(name = "256")]
    #[serde(rename = "256")]
    Indexed,
    /// All colours.
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
    /// Those that the locale allows.
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
