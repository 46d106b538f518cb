//! The segments that strand most, and what holds them.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_at, put_right, span};
use crate::drawing::theme::Token;
use crate::model::StrandingSegment;
use crate::tui::stage::Stage;

/// The fewest rows worth a pane, with the frame.
pub(super) const FEWEST_ROWS: u16 = 5;

/// Draws the pane, if there is room for one.
pub(super) fn render(stage: &Stage<'_>, worst: &[StrandingSegment], area: Rect, buf: &mut Buffer) {
    if area.height < FEWEST_ROWS {
        return;
    }
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "stranding most"), span(theme, Token::Dim, " · and who holds it")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let Some(first) = worst.first() else {
        put(inner, 0, vec![span(theme, Token::Dim, "no segment strands anything")], buf);
        return;
    };
    let unit = ByteUnit::for_largest(first.free);
    put(inner, 0, vec![span(theme, Token::Dim, format!("{:>7} of segment", unit.name()))], buf);
    // Figures are as wide as the widest of them; the rest is for names.
    let sizes = worst.iter().take(usize::from(inner.height)).map(|segment| figures::short_bytes(segment.size).len());
    let sizes = sizes.max().unwrap_or(0).max("segment".len() + 1);
    let begin = u16::try_from(12 + sizes).unwrap_or(u16::MAX);
    put_at(inner, begin, 0, vec![span(theme, Token::Dim, "held by")], buf);
    for (y, segment) in (1..inner.height).zip(worst) {
        let holder = &segment.holder;
        let name = match stage.shown.names.get(holder.name) {
            "" => holder.category.label(),
            name => name,
        };
        let more = if segment.blocks > 1 { format!(" +{}", segment.blocks - 1) } else { String::new() };
        let room = usize::from(inner.width).saturating_sub(14 + sizes + more.len());
        let line = vec![
            span(theme, Token::Strong, format!("{:>7}", unit.or_smaller(segment.free))),
            span(theme, Token::Dim, format!(" of {:<sizes$} ", figures::short_bytes(segment.size))),
            legend::legend_of(holder.category, theme),
            span(theme, Token::Text, format!(" {}", pane::cut_name(name, room))),
        ];
        put(inner, y, line, buf);
        put_right(inner, y, vec![span(theme, Token::Dim, more)], buf);
    }
}
