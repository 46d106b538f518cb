//! How a screen is to look: the arguments of every command that opens one.

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;

use super::Usage;
use super::spec::{cards, themes, workloads};
use crate::tui::{self, ColorTier, GlyphTier, TuiError, TuiOptions};

/// How many colours to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ColorArg {
    Never,
    #[value(name = "16")]
    Ansi,
    #[value(name = "256")]
    Indexed,
    Truecolor,
}

/// Which characters to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GlyphArg {
    Unicode,
    Ascii,
}

/// How the screen is to look.
#[derive(Debug, Args)]
pub(super) struct ScreenArgs {
    /// Theme: see `vramlab list` [default: dark].
    #[arg(long, value_name = "NAME", help_heading = "Screen")]
    theme: Option<String>,
    /// Colours [default: what the terminal says it can].
    #[arg(long, value_enum, help_heading = "Screen")]
    color: Option<ColorArg>,
    /// Characters [default: what the locale says].
    #[arg(long, value_enum, help_heading = "Screen")]
    glyphs: Option<GlyphArg>,
    /// Leave clicks and the wheel to the terminal.
    #[arg(long, help_heading = "Screen")]
    no_mouse: bool,
}

impl ScreenArgs {
    /// The same, checked, with what a person should know of files that can't be read.
    ///
    /// # Errors
    /// [`Usage`] for a theme that can't be had.
    pub fn options(&self) -> Result<TuiOptions> {
        let options = TuiOptions {
            theme: self.theme.clone(),
            color: self.color.map(|color| match color {
                ColorArg::Never => ColorTier::None,
                ColorArg::Ansi => ColorTier::Ansi,
                ColorArg::Indexed => ColorTier::Indexed,
                ColorArg::Truecolor => ColorTier::True,
            }),
            glyphs: self.glyphs.map(|glyphs| match glyphs {
                GlyphArg::Unicode => GlyphTier::Unicode,
                GlyphArg::Ascii => GlyphTier::Ascii,
            }),
            mouse: !self.no_mouse,
            notices: [workloads().warnings(), cards().warnings(), themes().warnings()].concat(),
        };
        tui::check(&options, themes()).map_err(|error| match error {
            TuiError::Theme(error) => Usage(error.to_string()).into(),
            other => color_eyre::Report::from(other),
        })?;
        Ok(options)
    }
}
