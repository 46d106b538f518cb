//! The layers over a screen: a stack of dialogs, of which the topmost gets the keys first.

mod closing;
mod copy;
mod editor;
mod filter;
mod findings;
mod ghost;
mod go_to;
mod help;
mod line;
mod low_box;
mod offers;
mod palette;
mod path;
mod pressed;
mod themes;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::action::Action;
use super::dialog::DialogAction;
use super::keys::Keymap;
use super::stage::Stage;

pub(crate) use closing::Closing;
pub(crate) use copy::CopyMenu;
pub(crate) use editor::Editor;
pub(crate) use filter::Filter;
pub(crate) use ghost::GhostEditor;
pub(crate) use go_to::GoTo;
pub(crate) use help::Help;
pub(crate) use palette::Palette;
pub(crate) use path::PathPrompt;
pub(crate) use pressed::LayerResponse;
pub(crate) use themes::ThemeList;

/// A layer over the screen.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    /// Keys and words.
    Help(Help),
    /// All findings, from this line on.
    Findings(usize),
    /// The last page of a story.
    Closing(Closing),
    /// A value that is being written.
    Editor(Editor),
    /// The choice of a target for the cursor.
    GoTo(GoTo),
    /// The themes.
    Themes(ThemeList),
    /// The filter for blocks.
    Filter(Filter),
    /// The menu of texts to copy.
    Copy(CopyMenu),
    /// The file to compare with.
    Path(PathPrompt),
    /// The conditions of a ghost.
    Ghost(GhostEditor),
    /// The palette of everything that can be done.
    Palette(Palette),
}

impl Layer {
    /// Handles a key on the screen with this index, while this layer is on top.
    pub fn press(&mut self, key: KeyEvent, keys: &Keymap, screen: usize) -> LayerResponse {
        match self {
            Self::Help(help) => help.press(key, keys),
            Self::Findings(_) => keys.dialog_action(key).and_then(scroll).unwrap_or(LayerResponse::Passed),
            Self::Closing(closing) => closing.press(key, keys),
            Self::Editor(editor) => editor.press(key, keys),
            Self::GoTo(go_to) => go_to.press(key, keys),
            Self::Themes(themes) => themes.press(key, keys, screen),
            Self::Filter(filter) => filter.press(key, keys),
            Self::Copy(menu) => menu.press(key, keys),
            Self::Path(prompt) => prompt.press(key, keys),
            Self::Ghost(ghost) => ghost.press(key, keys),
            Self::Palette(palette) => palette.press(key, keys, screen),
        }
    }

    /// Handles pasted text.
    pub fn paste(&mut self, text: &str) -> LayerResponse {
        match self {
            Self::Editor(editor) => {
                editor.insert(text);
                LayerResponse::Taken
            }
            Self::Filter(filter) => filter.insert(text),
            Self::Path(prompt) => {
                prompt.insert(text);
                LayerResponse::Taken
            }
            Self::Ghost(ghost) => {
                ghost.insert(text);
                LayerResponse::Taken
            }
            Self::Palette(palette) => {
                palette.insert(text);
                LayerResponse::Taken
            }
            Self::Help(help) => help.insert(text),
            Self::Findings(_) | Self::Closing(_) | Self::GoTo(_) | Self::Themes(_) | Self::Copy(_) => {
                LayerResponse::Taken
            }
        }
    }

    /// The first visible line, if the layer scrolls.
    pub const fn first_line(&mut self) -> Option<&mut usize> {
        match self {
            Self::Help(help) => Some(&mut help.first),
            Self::Findings(line) => Some(line),
            Self::Closing(_)
            | Self::Editor(_)
            | Self::GoTo(_)
            | Self::Themes(_)
            | Self::Filter(_)
            | Self::Copy(_)
            | Self::Path(_)
            | Self::Ghost(_)
            | Self::Palette(_) => None,
        }
    }

    /// True if characters are text here, or choices of the layer.
    pub const fn takes_text(&self) -> bool {
        match self {
            Self::Help(help) => help.is_written(),
            Self::Findings(_) | Self::Closing(_) => false,
            Self::Editor(_)
            | Self::GoTo(_)
            | Self::Themes(_)
            | Self::Filter(_)
            | Self::Copy(_)
            | Self::Path(_)
            | Self::Ghost(_)
            | Self::Palette(_) => true,
        }
    }

    /// True if the layer is read instead of the screen, which is only what one returns to. Other layers, and short
    /// ones, are about what they leave visible.
    pub fn covers(&self, stage: &Stage<'_>, area: Rect) -> bool {
        match self {
            Self::Help(_) | Self::Palette(_) | Self::Closing(_) => true,
            Self::Findings(_) => findings::fill(stage, area),
            _ => false,
        }
    }

    /// True if `action` opened the layer, and so closes it.
    pub fn is_of(&self, action: Action) -> bool {
        matches!((self, action), (Self::Help(_), Action::ToggleHelp) | (Self::Findings(_), Action::ToggleFindings))
    }

    /// Draws the layer. Returns the number of lines, and how many are visible.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> (usize, usize) {
        match self {
            Self::Help(help) => return help.render(stage, area, buf),
            Self::Findings(first) => return findings::render(stage, *first, area, buf),
            Self::Closing(closing) => closing.render(stage, area, buf),
            Self::Editor(editor) => editor.render(stage, area, buf),
            Self::GoTo(go_to) => go_to.render(stage, area, buf),
            Self::Themes(themes) => themes.render(stage, area, buf),
            Self::Filter(filter) => filter.render(stage, area, buf),
            Self::Copy(menu) => menu.render(stage, area, buf),
            Self::Path(prompt) => prompt.render(stage, area, buf),
            Self::Ghost(ghost) => ghost.render(stage, area, buf),
            Self::Palette(palette) => palette.render(stage, area, buf),
        }
        (0, 0)
    }
}

/// How an action scrolls; `None` if it does not.
fn scroll(action: DialogAction) -> Option<LayerResponse> {
    let (by, pages) = match action {
        DialogAction::Next => (1, false),
        DialogAction::Previous => (-1, false),
        DialogAction::PageDown => (1, true),
        DialogAction::PageUp => (-1, true),
        DialogAction::First => (i32::MIN, false),
        DialogAction::Last => (i32::MAX, false),
        _ => return None,
    };
    Some(LayerResponse::Scroll { by, pages })
}
