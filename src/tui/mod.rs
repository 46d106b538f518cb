//! The terminal screen: drawing, keys, and a terminal that is always restored.
//!
//! `app` is a pure state machine over messages, `screen` and the `screens` draw it, `shell` performs its effects, and
//! only `terminal` knows escape sequences. A screen reads a [`crate::source::Picture`] and sends
//! [`crate::source::Request`]s; it never waits for the source.
//! [`crate::source::Request`]s; it never waits for the source.

mod action;
mod aim;
mod app;
mod asked;
mod autopsy;
mod beside;
mod clipboard;
mod compared;
mod completion;
mod copied;
mod demo;
mod dialog;
mod error;
mod film;
mod footer;
mod frame_keys;
mod ghost_table;
mod glossary;
mod glyphs;
mod header;
mod hold;
mod holders;
mod input;
mod key_name;
mod keymap;
mod keys;
mod large;
mod layers;
mod moments;
mod origin;
mod output_tail;
mod palette;
mod panel;
mod presenter;
mod screen;
mod screens;
mod share;
mod shell;
mod signals;
mod stage;
mod states;
mod svg;
mod terminal;
mod tutor;
mod waiting;
mod when;
mod words;

pub use action::{Action, Binding, Key, KeyGroup};
pub use app::{App, Effect, Message};
pub use autopsy::{grows_with_batch, share_of_batch};
pub(crate) use compared::change;
pub use completion::Completion;
pub use demo::{Ranks, ReadingPace, Scene, SceneEnd, Story};
pub use dialog::DialogAction;
pub use error::TuiError;
pub use film::{Film, screen_names};
pub use glyphs::GlyphTier;
pub use input::Decoder;
pub use key_name::NoKey;
pub use keymap::{acts, keys_markdown, standard as standard_keys};
pub use keys::Keymap;
pub use origin::OpeningCommand;
pub use panel::Panel;
pub use screen::draw;
pub use shell::{Exit, KeepTheme, ScreenOutcome};
pub use signals::ENGINE_PATIENCE;
pub use stage::{Chart, FrameLayout};
pub use states::OtherFile;
pub use states::{LabAction, ScreenAction};
pub use terminal::{leave, restore_on_panic};
pub use tutor::{KeepCourse, Lecture};
pub use waiting::AwaitedProgram;

use std::path::PathBuf;

use crate::drawing::theme::{ColorTier, ThemeCatalog};
use crate::model::{Remedy, Tags, View};
use crate::source::Source;

/// True if the help explains this word of a screen.
#[must_use]
pub fn explains(word: &str) -> bool {
    let is = |known: &str| known.to_lowercase() == word.to_lowercase();
    glossary::all().any(|entry| entry.also.iter().chain([&entry.word]).any(|known| is(known)))
}

/// Why a request failed, in lines of at most `width` characters. `word` words the remedies.
#[must_use]
pub fn autopsy_lines(view: &View, width: usize, word: fn(&Remedy) -> String) -> Vec<String> {
    let lines = view.autopsy.as_ref().map(|autopsy| autopsy::lines(view, autopsy, width, &word));
    lines.unwrap_or_default().into_iter().map(|(_, line)| line).collect()
}

/// Options for the screen. Those that are `None` are taken from the environment.
#[derive(Clone, Debug)]
pub struct TuiOptions {
    /// The theme's name.
    pub theme: Option<String>,
    /// The number of colours.
    pub color: Option<ColorTier>,
    /// The characters.
    pub glyphs: Option<GlyphTier>,
    /// True if clicks and the wheel are read.
    pub mouse: bool,
    /// The keys in force.
    pub keys: Keymap,
    /// The most frames per second; `None` for a number that suits the connection.
    pub frames: Option<u32>,
    /// True if nothing may flash, and little may move.
    pub calm: bool,
    /// True if the screen has an audience.
    pub present: bool,
    /// The command that opens the screen again.
    pub origin: OpeningCommand,
    /// Files whose configurations are compared with those on the screen.
    pub compare: Vec<PathBuf>,
    /// Stores the chosen theme; `None` to store nothing.
    pub keep_theme: Option<KeepTheme>,
    /// A person's tags for blocks, by who allocated them.
    pub tags: Tags,
    /// A story to tell, and its pace.
    pub story: Option<(Story, ReadingPace)>,
    /// A lesson to take.
    pub lesson: Option<Lecture>,
    /// What is known of a watched program before it says anything.
    pub awaited: AwaitedProgram,
    /// Remarks for the person at the start: the footer shows the first, and their number.
    pub notices: Vec<String>,
}

impl Default for TuiOptions {
    fn default() -> Self {
        Self {
            theme: None,
            color: None,
            glyphs: None,
            mouse: true,
            keys: keymap::standard().clone(),
            frames: None,
            calm: false,
            present: false,
            origin: OpeningCommand::default(),
            compare: Vec::new(),
            keep_theme: None,
            tags: Tags::default(),
            story: None,
            lesson: None,
            awaited: AwaitedProgram::default(),
            notices: Vec::new(),
        }
    }
}

/// Shows `source` until the user leaves. Runs on a current-thread runtime with time enabled, on the thread that owns
/// the terminal. The panic hook that prints messages must be installed before.
///
/// # Errors
/// If the theme can't be loaded (before anything is drawn), or the terminal fails.
pub async fn run(source: Source, options: TuiOptions, themes: ThemeCatalog) -> Result<ScreenOutcome, TuiError> {
    let app = prepare(&options, themes)?;
    let pace = shell::Pace::new(options.frames, options.calm);
    shell::run(
        source,
        app,
        pace,
        shell::ShellOptions { mouse: options.mouse, keep_theme: options.keep_theme, compare: options.compare },
    )
    .await
}

/// True if the terminal reports a light background: the last number of `COLORFGBG` is white's or light grey's.
fn is_light(variable: impl Fn(&str) -> Option<String>) -> bool {
    let background = variable("COLORFGBG").and_then(|colors| colors.rsplit(';').next()?.parse::<u8>().ok());
    matches!(background, Some(7 | 15))
}

/// Checks the options before anything else is started.
///
/// # Errors
/// If the theme can't be loaded.
pub fn check(options: &TuiOptions, themes: ThemeCatalog) -> Result<(), TuiError> {
    prepare(options, themes).map(|_| ())
}

fn prepare(options: &TuiOptions, themes: ThemeCatalog) -> Result<App, TuiError> {
    let variable = |name: &str| std::env::var(name).ok();
    let tier = options.color.unwrap_or_else(|| ColorTier::detect(variable));
    let glyphs = options.glyphs.unwrap_or_else(|| GlyphTier::detect(variable));
    let usual = if is_light(variable) { "light" } else { "dark" };
    let (theme, warnings) = themes.load(options.theme.as_deref().unwrap_or(usual), tier)?;
    let mut app = App::new(themes, theme, glyphs)
        .with_keys(options.keys.clone())
        .with_manners(options.calm, options.present)
        .with_tags(options.tags.clone())
        .with_origin(options.origin.clone())
        .with_awaited(options.awaited.clone());
    if let Some((story, pace)) = &options.story {
        app = app.with_story(story.clone(), *pace);
    }
    if let Some(lecture) = &options.lesson {
        app = app.with_lesson(lecture);
    }
    match &*[options.notices.clone(), warnings].concat() {
        [] => {}
        [only] => app.notify(only.clone()),
        [first, others @ ..] => app.notify(format!("{first} (and {} more: vramlab list)", others.len())),
    }
    Ok(app)
}
