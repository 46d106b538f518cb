//! What lies over a screen: a stack of dialogs, of which the top one gets the keys first.

mod copy;
mod editor;
mod filter;
mod findings;
mod ghost;
mod go_to;
mod help;
mod path;
mod pressed;
mod themes;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::action::Action;
use super::stage::Stage;

pub(crate) use copy::CopyMenu;
pub(crate) use editor::Editor;
pub(crate) use filter::Filter;
pub(crate) use ghost::GhostEditor;
pub(crate) use go_to::GoTo;
pub(crate) use path::PathPrompt;
pub(crate) use pressed::Pressed;
pub(crate) use themes::ThemeList;

/// One thing that lies over the screen.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    /// Keys and words; its first line.
    Help(usize),
    /// All findings; the first line.
    Findings(usize),
    /// A value that is being written.
    Editor(Editor),
    /// Where the cursor is to go.
    GoTo(GoTo),
    /// The themes.
    Themes(ThemeList),
    /// Which blocks are looked for.
    Filter(Filter),
    /// What can be copied.
    Copy(CopyMenu),
    /// Which file is compared.
    Path(PathPrompt),
    /// Under what a ghost works.
    Ghost(GhostEditor),
}

impl Layer {
    /// A key that was pressed while this is on top.
    pub fn press(&mut self, key: KeyEvent) -> Pressed {
        match self {
            Self::Help(_) | Self::Findings(_) => Pressed::Passed,
            Self::Editor(editor) => editor.press(key),
            Self::GoTo(go_to) => go_to.press(key),
            Self::Themes(themes) => themes.press(key),
            Self::Filter(filter) => filter.press(key),
            Self::Copy(menu) => menu.press(key),
            Self::Path(prompt) => prompt.press(key),
            Self::Ghost(ghost) => ghost.press(key),
        }
    }

    /// Text that was pasted.
    pub fn paste(&mut self, text: &str) -> Pressed {
        match self {
            Self::Editor(editor) => {
                editor.insert(text);
                Pressed::Taken
            }
            Self::Filter(filter) => filter.insert(text),
            Self::Path(prompt) => {
                prompt.insert(text);
                Pressed::Taken
            }
            Self::Ghost(ghost) => {
                ghost.insert(text);
                Pressed::Taken
            }
            Self::Help(_) | Self::Findings(_) | Self::GoTo(_) | Self::Themes(_) | Self::Copy(_) => Pressed::Taken,
        }
    }

    /// The first line shown, where it scrolls.
    pub const fn first_line(&mut self) -> Option<&mut usize> {
        match self {
            Self::Help(line) | Self::Findings(line) => Some(line),
            Self::Editor(_)
            | Self::GoTo(_)
            | Self::Themes(_)
            | Self::Filter(_)
            | Self::Copy(_)
            | Self::Path(_)
            | Self::Ghost(_) => None,
        }
    }

    /// The action that opened it closes it.
    pub fn is_of(&self, action: Action) -> bool {
        matches!((self, action), (Self::Help(_), Action::ToggleHelp) | (Self::Findings(_), Action::ToggleFindings))
    }

    /// Draws it; returns its lines in all, and how many are seen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> (usize, usize) {
        match self {
            Self::Help(first) => help::render(stage, *first, area, buf),
            Self::Findings(first) => findings::render(stage, *first, area, buf),
            Self::Editor(editor) => {
                editor.render(stage.theme, area, buf);
                (0, 0)
            }
            Self::GoTo(go_to) => {
                go_to.render(stage.theme, area, buf);
                (0, 0)
            }
            Self::Themes(themes) => {
                themes.render(stage.theme, area, buf);
                (0, 0)
            }
            Self::Filter(filter) => {
                filter.render(stage.theme, area, buf);
                (0, 0)
            }
            Self::Copy(menu) => {
                menu.render(stage.theme, area, buf);
                (0, 0)
            }
            Self::Path(prompt) => {
                prompt.render(stage.theme, area, buf);
                (0, 0)
            }
            Self::Ghost(ghost) => {
                ghost.render(stage.theme, area, buf);
                (0, 0)
            }
        }
    }
}
