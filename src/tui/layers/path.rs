//! A line for a file's name. Tab completes it.

use std::path::PathBuf;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::{self, leaves};
use super::low_box;
use super::pressed::LayerResponse;
use crate::drawing::pane::{self, put, span};
use crate::drawing::theme::Token;
use crate::tui::completion::{Completion, at_home};
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::words;

/// Longer lines are no paths.
const LONGEST: usize = 4096;
/// The greatest width of the box.
const WIDTH: u16 = 100;

/// The line and its completions.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathPrompt {
    text: String,
    /// The possible completions, if there are several.
    below: String,
}

impl PathPrompt {
    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        if !line::write(&mut self.text, key, LONGEST) {
            match keys.dialog_action(key) {
                Some(DialogAction::Cancel) => return LayerResponse::Closed,
                Some(DialogAction::Apply) if self.text.trim().is_empty() => return LayerResponse::Closed,
                Some(DialogAction::Apply) => return LayerResponse::Compare(PathBuf::from(at_home(self.text.trim()))),
                Some(DialogAction::Part) => return LayerResponse::Complete(self.text.clone()),
                Some(DialogAction::Clear) => self.text.clear(),
                _ => return LayerResponse::Taken,
            }
        }
        self.below.clear();
        LayerResponse::Taken
    }

    /// Inserts text, without characters that don't belong in a line.
    pub fn insert(&mut self, text: &str) {
        text.chars().for_each(|symbol| line::push(&mut self.text, symbol, LONGEST));
    }

    /// Takes in completions, if nothing was typed meanwhile.
    pub fn complete(&mut self, completion: &Completion) {
        if completion.of == self.text {
            self.text.clone_from(&completion.text);
            self.below = completion.matches.join("  ");
        }
    }

    /// Draws the line in a box over the lower part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let (width, height) = (area.width.min(WIDTH), area.height.min(4));
        let title = vec![
            span(theme, Token::Title, "compare with a file"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "reads it", "cancels")),
        ];
        let inner = low_box::draw(theme, title, (width, height), area, buf);
        let room = usize::from(inner.width.saturating_sub(3));
        let shown = line::end_of(&self.text, room);
        put(inner, 0, vec![span(theme, Token::Text, format!(" {shown}")), span(theme, Token::Key, "▏")], buf);
        let below = if self.below.is_empty() {
            "a recording, a PyTorch snapshot, or the output of vramlab run --json"
        } else {
            &self.below
        };
        put(inner, 1, vec![span(theme, Token::Dim, format!(" {}", pane::cut(below, room)))], buf);
    }
}
