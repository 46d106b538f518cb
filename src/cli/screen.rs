//! The look of a screen: the arguments of every command that opens one.

use clap::Args;
use color_eyre::eyre::Result;

use super::Usage;
use super::config::{self, ColorArg, GlyphArg, UserSettings};
use super::spec::{cards, themes, workloads};
use crate::model::Tags;
use crate::tui::{self, OpeningCommand, TuiError, TuiOptions};

/// How the screen is to look.
#[derive(Debug, Args)]
pub(super) struct ScreenArgs {
    /// Name of a theme: see `vramlab list` [default: from the settings, else dark].
    #[arg(long, value_name = "NAME", help_heading = "Screen")]
    theme: Option<String>,
    /// How many colours to use [default: as many as the terminal supports].
    #[arg(long, value_enum, help_heading = "Screen")]
    color: Option<ColorArg>,
    /// Which characters to draw with [default: those that the locale allows].
    #[arg(long, value_enum, help_heading = "Screen")]
    glyphs: Option<GlyphArg>,
    /// Don't use the mouse, so that the terminal can select text with it.
    #[arg(long, overrides_with = "mouse", help_heading = "Screen")]
    no_mouse: bool,
    /// Use the mouse, even if the settings say not to.
    #[arg(long, overrides_with = "no_mouse", help_heading = "Screen")]
    mouse: bool,
    /// Present to an audience: large figures, keys shown as they are pressed, quitting asks first, and the key of the
    /// leak is off.
    #[arg(long, help_heading = "Screen")]
    present: bool,
}

impl ScreenArgs {
    /// These options on top of `settings`, checked, with remarks on files that can't be read.
    ///
    /// # Errors
    /// [`Usage`] if the command line names a theme that is not available; if the settings name it, a remark says so.
    pub fn options(&self, settings: &UserSettings, origin: OpeningCommand) -> Result<TuiOptions> {
        let config = &settings.config;
        let named = |theme: &Option<String>| theme.clone().filter(|name| name != "auto");
        let mut options = TuiOptions {
            theme: named(&self.theme.clone().or_else(|| config.theme.clone())),
            color: self.color.or(config.color).and_then(ColorArg::tier),
            glyphs: self.glyphs.or(config.glyphs).and_then(GlyphArg::tier),
            mouse: self.mouse || (!self.no_mouse && config.mouse.unwrap_or(true)),
            keys: settings.keys.clone(),
            frames: config.frames.map(|frames| frames.get() as u32),
            calm: config.reduced_motion.unwrap_or(false),
            present: self.present,
            origin,
            compare: Vec::new(),
            keep_theme: Some(config::keep_theme),
            tags: Tags::default(),
            story: None,
            lesson: None,
            awaited: tui::AwaitedProgram::default(),
            notices: [&settings.told[..], &workloads().warnings(), &cards().warnings(), &themes().warnings()].concat(),
        };
        match tui::check(&options, themes()) {
            Err(TuiError::Theme(error)) if self.theme.is_none() => {
                options.theme = None;
                options.notices.insert(0, error.to_string());
                Ok(options)
            }
            Err(TuiError::Theme(error)) => Err(Usage(error.to_string()).into()),
            Err(other) => Err(other.into()),
            Ok(()) => Ok(options),
        }
    }
}
