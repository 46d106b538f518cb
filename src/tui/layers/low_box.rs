//! The box that short dialogs draw over the lower part of the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::{Clear, Widget};

use super::offers::Offers;
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::{Theme, Token};

/// Draws an empty box one row above the lower edge of `area`, and returns its inside. `(width, height)` are in cells,
/// at most those of `area`.
pub(super) fn draw(
    theme: &Theme,
    title: Vec<Span<'static>>,
    (width, height): (u16, u16),
    area: Rect,
    buf: &mut Buffer,
) -> Rect {
    let outer = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height).saturating_sub(1),
        width,
        height,
    };
    Clear.render(outer, buf);
    buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
    pane::frame(Frame::Box, title, theme.style(Token::Accent), outer, buf)
}

/// Draws a line with its offers in such a box, and below it the error or else a hint.
pub(super) fn with_offers(
    theme: &Theme,
    title: Vec<Span<'static>>,
    width: u16,
    offers: &Offers,
    said: Result<&str, &str>,
    area: Rect,
    buf: &mut Buffer,
) {
    let room = usize::from(width.saturating_sub(4));
    let (token, text) = match said {
        Ok(error) => (Token::Danger, error),
        Err(hint) => (Token::Dim, hint),
    };
    let below = pane::wrap(text, room);
    let rows = u16::try_from(below.len()).unwrap_or(1);
    let height = rows.saturating_add(offers.wanted_rows()).saturating_add(2).min(area.height);
    let inner = draw(theme, title, (width, height), area, buf);
    let most = inner.height.saturating_sub(1).min(offers.wanted_rows());
    let taken = offers.render(theme, inner, most, buf);
    for (y, line) in (taken..inner.height).zip(below) {
        put(inner, y, vec![span(theme, token, format!(" {line}"))], buf);
    }
}
