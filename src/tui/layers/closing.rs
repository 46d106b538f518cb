//! The last page of a story, over the screen: what was shown, and how to go on.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Span;
use ratatui::widgets::{Clear, Widget};

use super::line::leaves;
use super::pressed::LayerResponse;
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::tui::action::Action;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;

/// The greatest width of the page.
const WIDTH: u16 = 84;

/// The last page of a story.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    /// The paragraphs.
    text: Vec<String>,
}

impl Closing {
    /// A page with these paragraphs.
    pub const fn new(text: Vec<String>) -> Self {
        Self { text }
    }

    pub fn press(&self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        let quits = keys.binding_for(key, 0).is_some_and(|binding| binding.action == Action::Quit);
        match keys.dialog_action(key) {
            // The story is over: a key to quit leaves the lab.
            Some(DialogAction::Cancel | DialogAction::Apply) if !quits => LayerResponse::Closed,
            _ => LayerResponse::Passed,
        }
    }

    /// Draws it in the middle of `area`.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let width = area.width.min(WIDTH);
        let room = usize::from(width.saturating_sub(4));
        let mut lines: Vec<Vec<Span<'static>>> = Vec::new();
        for (place, paragraph) in self.text.iter().enumerate() {
            match command(paragraph) {
                Some((command, rest)) => {
                    lines.push(vec![span(theme, Token::Accent, command.to_owned())]);
                    let about = pane::wrap(rest, room.saturating_sub(2)).into_iter();
                    lines.extend(about.map(|line| vec![Span::raw("  "), span(theme, Token::Text, line)]));
                }
                None => {
                    let text = pane::wrap(paragraph, room).into_iter();
                    lines.extend(text.map(|line| vec![span(theme, Token::Text, line)]));
                }
            }
            // Consecutive commands form a list.
            if self.text.get(place + 1).is_none_or(|next| command(paragraph).is_none() || command(next).is_none()) {
                lines.push(Vec::new());
            }
        }
        let offers = [
            (stage.keys.key_of(Action::ToggleHelp), "keys and words"),
            (stage.keys.key_of(Action::Palette), "find anything"),
            (stage.keys.key_of(Action::Dialog(DialogAction::Cancel)), "close this page"),
        ];
        let offers = offers.into_iter().filter(|(key, _)| !key.is_empty());
        let offer = |(key, word): (&str, &str)| {
            [span(theme, Token::Key, key.to_owned()), span(theme, Token::Dim, format!(" {word}   "))]
        };
        lines.push(offers.flat_map(offer).collect());
        let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
        let outer = area.centered(Constraint::Length(width), Constraint::Length(height));
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let title = vec![span(theme, Token::Title, "what you saw")];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf);
        for (y, line) in (0..inner.height).zip(lines) {
            put(inner, y, [vec![Span::raw(" ")], line].concat(), buf);
        }
    }
}

/// The command between backquotes at the beginning of a paragraph, and the text about it.
fn command(paragraph: &str) -> Option<(&str, &str)> {
    let (command, rest) = paragraph.strip_prefix('`')?.split_once('`')?;
    Some((command, rest.trim_start()))
}
