//! A line to write a filter, which applies while it is written.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::{self, leaves};
use super::low_box;
use super::pressed::LayerResponse;
use crate::drawing::pane::{put, span};
use crate::drawing::theme::Token;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::states::Lookup;
use crate::tui::words;

/// The longest filter in bytes.
const LONGEST: usize = 80;
/// The greatest width of the box.
const WIDTH: u16 = 72;

/// The line of the filter.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    of: Lookup,
    text: String,
}

impl Filter {
    /// Begins with the current filter.
    pub fn new(of: Lookup, text: &str) -> Self {
        Self { of, text: text.to_owned() }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        if line::write(&mut self.text, key, LONGEST) {
            return self.written();
        }
        match keys.dialog_action(key) {
            Some(DialogAction::Cancel) => LayerResponse::Filter { of: self.of, text: "".into(), done: true },
            Some(DialogAction::Apply) => {
                LayerResponse::Filter { of: self.of, text: self.text.trim().into(), done: true }
            }
            Some(DialogAction::Clear) => {
                self.text.clear();
                self.written()
            }
            _ => LayerResponse::Taken,
        }
    }

    /// Inserts text, without characters that don't belong in a line.
    pub fn insert(&mut self, text: &str) -> LayerResponse {
        text.chars().for_each(|symbol| line::push(&mut self.text, symbol, LONGEST));
        self.written()
    }

    fn written(&self) -> LayerResponse {
        LayerResponse::Filter { of: self.of, text: self.text.trim().into(), done: false }
    }

    /// Draws the line in a box over the lower edge of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let (width, height) = (area.width.min(WIDTH), area.height.min(4));
        let title = vec![
            span(theme, Token::Title, "filter"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "keeps it", "clears it")),
        ];
        let inner = low_box::draw(theme, title, (width, height), area, buf);
        let room = usize::from(inner.width.saturating_sub(4));
        let shown = line::end_of(&self.text, room);
        put(
            inner,
            0,
            vec![span(theme, Token::Key, " /"), span(theme, Token::Text, shown), span(theme, Token::Key, "▏")],
            buf,
        );
        let hint = match self.of {
            Lookup::Blocks => " words of a block's name, op or category: qkv activation",
            Lookup::Stacks => " part of a line, a function, a name or a category: attn.py",
        };
        put(inner, 1, vec![span(theme, Token::Dim, hint)], buf);
    }
}
