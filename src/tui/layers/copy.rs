//! A menu of texts to copy, each with a key.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::leaves;
use super::low_box;
use super::pressed::LayerResponse;
use crate::drawing::pane::{self, put, span};
use crate::drawing::theme::Token;
use crate::tui::copied::Clipping;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::words;

/// The greatest width of the box.
const WIDTH: u16 = 100;
/// Cells before the text, for its key and its name.
const MARGIN: usize = 16;

/// The texts, each with its key.
#[derive(Clone, Debug)]
pub(crate) struct CopyMenu {
    entries: Vec<(char, Clipping)>,
}

impl CopyMenu {
    /// A menu of these texts; `Enter` copies the first.
    pub const fn new(entries: Vec<(char, Clipping)>) -> Self {
        Self { entries }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let chosen = match (keys.dialog_action(key), key.code) {
            (Some(DialogAction::Cancel), _) | (_, KeyCode::Char('q')) => return LayerResponse::Closed,
            (Some(DialogAction::Apply), _) => self.entries.first(),
            (_, KeyCode::Char(symbol)) if plain => self.entries.iter().find(|(key, _)| *key == symbol),
            _ => None,
        };
        chosen.map_or(LayerResponse::Taken, |(_, copied)| LayerResponse::Copy(copied.text.clone()))
    }

    /// Draws it in a box over the lower part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let width = area.width.min(WIDTH);
        let height = u16::try_from(self.entries.len() + 2).unwrap_or(u16::MAX).min(area.height);
        let title = vec![
            span(theme, Token::Title, "copy"),
            span(theme, Token::Dim, " to the terminal's clipboard"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "copies the first", "cancels")),
        ];
        let inner = low_box::draw(theme, title, (width, height), area, buf);
        let room = usize::from(inner.width).saturating_sub(MARGIN + 1);
        for (y, (key, copied)) in (0..inner.height).zip(&self.entries) {
            let text = copied.text.replace(['\n', '\t'], " · ");
            let line = vec![
                span(theme, Token::Key, format!("  {key}  ")),
                span(theme, Token::Text, format!("{:<11}", copied.what)),
                span(theme, Token::Dim, pane::cut(&text, room)),
            ];
            put(inner, y, line, buf);
        }
    }
}
