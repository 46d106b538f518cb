//! Chooses a target of the cursor: a key for each landmark, or the number of a step.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

use super::line::leaves;
use super::pressed::LayerResponse;
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::recording::Direction::{Backward, Forward};
use crate::source::{Landmark, Move, Request};
use crate::tui::action::Action;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::words;

/// Targets with a key.
const PLACES: [(char, &str, Move); 8] = [
    ('p', "the peak of allocated", Move::Jump(Landmark::Peak, Forward)),
    ('f', "the next flip", Move::Jump(Landmark::Flip, Forward)),
    ('F', "the previous flip", Move::Jump(Landmark::Flip, Backward)),
    ('o', "the next out of memory", Move::Jump(Landmark::OutOfMemory, Forward)),
    ('O', "the previous out of memory", Move::Jump(Landmark::OutOfMemory, Backward)),
    ('i', "the finding", Move::Jump(Landmark::Finding, Forward)),
    ('s', "the start", Move::Start),
    ('n', "now", Move::Now),
];

/// The most digits of a step's number.
const DIGITS: usize = 12;

/// The number that is being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct GoTo {
    digits: String,
}

impl GoTo {
    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        match key.code {
            KeyCode::Backspace => {
                self.digits.pop();
                return LayerResponse::Taken;
            }
            KeyCode::Char(digit) if digit.is_ascii_digit() => {
                if self.digits.len() < DIGITS {
                    self.digits.push(digit);
                }
                return LayerResponse::Taken;
            }
            KeyCode::Char(symbol) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                if let Some((_, _, to)) = PLACES.iter().find(|(key, ..)| *key == symbol) {
                    return LayerResponse::Done(vec![Request::Move(*to)]);
                }
            }
            _ => {}
        }
        match keys.dialog_action(key) {
            Some(DialogAction::Cancel) => LayerResponse::Closed,
            Some(DialogAction::Apply) => match self.digits.parse() {
                Ok(step) => LayerResponse::Done(vec![Request::Move(Move::Step(step))]),
                Err(_) => LayerResponse::Closed,
            },
            Some(DialogAction::Clear) => {
                self.digits.clear();
                LayerResponse::Taken
            }
            _ => LayerResponse::Taken,
        }
    }

    /// Draws it in a box over the middle of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let (width, height) = (44.min(area.width), (PLACES.len() as u16 + 3).min(area.height));
        let outer =
            Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let title = vec![
            span(theme, Token::Title, "go to"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "", "cancels")),
        ];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
        for (y, (key, words, _)) in (0..inner.height).zip(PLACES) {
            put(inner, y, vec![span(theme, Token::Key, format!("  {key}  ")), span(theme, Token::Text, words)], buf);
        }
        let y = inner.height.saturating_sub(1);
        let line = vec![
            span(theme, Token::Key, "  0–9"),
            span(theme, Token::Text, " step "),
            span(theme, Token::Strong, self.digits.clone()),
            span(theme, Token::Key, "▏"),
            span(theme, Token::Dim, format!(" {}", stage.keys.key_of(Action::Dialog(DialogAction::Apply)))),
        ];
        put(inner, y, line, buf);
    }
}
