//! The box that dialogs of a few lines draw over the lower part of the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::{Clear, Widget};

use crate::tui::pane::{self, Frame};
use crate::tui::theme::{Theme, Token};

/// Draws the empty box, a row above the lower edge of `area`; returns what is inside. `(width, height)` are cells, at most those
/// of `area`.
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
