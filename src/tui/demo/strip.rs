//! The strip above the footer in which a story is told.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::Narrator;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::tui::action::Action;
use crate::tui::stage::Stage;

/// How many rows the strip takes: a line, and two for the caption.
pub(crate) const fn rows() -> u16 {
    3
}

/// Draws the caption, and the last key.
pub(crate) fn render(stage: &Stage<'_>, narrator: &Narrator, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let (scene, of) = narrator.place();
    let pause = stage.keys.key_of(Action::TogglePause);
    let quit = stage.keys.key_of(Action::Quit);
    let state = if narrator.is_stopped() {
        format!(" {scene}/{of} · stopped, the lab is yours · {pause} goes on, {quit} leaves")
    } else {
        format!(" {scene}/{of} · {pause} stops, {quit} leaves")
    };
    let title = vec![span(theme, Token::Title, "demo"), span(theme, Token::Dim, state)];
    let inner = pane::frame(Frame::Rule, title, theme.style(Token::Accent), area, buf);
    if let Some((key, word)) = narrator.pressed() {
        let chip = theme.style(Token::Key).add_modifier(Modifier::REVERSED | Modifier::BOLD);
        let pressed =
            vec![Span::raw(" "), Span::styled(format!(" {key} "), chip), span(theme, Token::Text, format!(" {word} "))];
        put_right(Rect { height: 1, ..area }, 0, pressed, buf);
    }
    let room = usize::from(inner.width.saturating_sub(2));
    for (y, line) in (0..inner.height).zip(pane::wrap(narrator.caption(), room)) {
        put(inner, y, vec![Span::raw(" "), span(theme, Token::Strong, line)], buf);
    }
}
