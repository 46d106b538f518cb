//! The five accounts of reserved memory, and the categories at the peak.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend::{self, Account};
use crate::drawing::pane::{self, Frame, put, put_at, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::Category;
use crate::tui::share;
use crate::tui::stage::Stage;
use crate::tui::when;
use crate::units::Bytes;

/// How many rows the pane needs, with its frame.
pub(crate) const WANTED_ROWS: u16 = 10;

/// Draws the pane.
pub(crate) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let (theme, view) = (stage.theme, stage.shown);
    let ledger = &view.ledger;
    let unit = stage.unit();
    let subject = if area.width >= 56 { " · every reserved byte, " } else { " · reserved, " };
    let title = vec![
        span(theme, Token::Title, "ledger"),
        span(theme, Token::Dim, subject),
        span(theme, Token::Dim, unit.name()),
    ];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let meanings = [
        "asked for",
        "size rounding of live blocks",
        "freed, in use elsewhere",
        "empty_cache returns it",
        "free between live blocks",
    ];
    let accounts = legend::accounts(ledger, theme).into_iter().zip(meanings);
    let reserved = ledger.reserved().get();
    for (y, (Account { name, ink, bytes }, meaning)) in (0..inner.height).zip(accounts) {
        let line = vec![
            legend::mark(ink, theme),
            span(theme, Token::Text, format!(" {name:<11}")),
            span(
                theme,
                Token::Strong,
                format!("{:>8}", if bytes == Bytes::ZERO { "·".to_owned() } else { unit.or_smaller(bytes) }),
            ),
            span(theme, Token::Dim, format!("{:>6}", figures::percent(bytes.get(), reserved))),
        ];
        put(inner, y, line, buf);
        if inner.width >= 58 {
            put_at(inner, 30, y, vec![span(theme, Token::Dim, meaning)], buf);
        }
    }
    if inner.height > 5 && view.by_category.iter().any(|bytes| *bytes > Bytes::ZERO) {
        put(inner, 5, vec![span(theme, Token::Dim, format!("allocated {}", when::words(stage.picture)))], buf);
        composition(&view.by_category, unit, theme, inner, 6, buf);
    }
}

/// Draws a bar of categories, with the largest part named beside it.
fn composition(parts: &[Bytes; 9], unit: ByteUnit, theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    let total: u64 = parts.iter().map(|bytes| bytes.get()).sum();
    if y >= area.height || total == 0 {
        return;
    }
    share::draw(parts, Bytes(total), theme, Rect { y: area.y + y, height: 1, ..area }, buf);
    let largest = Category::ALL.into_iter().zip(parts).max_by_key(|(_, bytes)| **bytes);
    if let Some((category, bytes)) = largest.filter(|_| y + 1 < area.height) {
        let share = figures::percent(bytes.get(), total);
        let line = vec![
            legend::legend_of(category, theme),
            span(theme, Token::Text, format!(" {} {share}", category.label())),
        ];
        put(area, y + 1, line, buf);
        let total = vec![span(theme, Token::Dim, format!("{} {}", unit.figure(Bytes(total)), unit.name()))];
        put_right(area, y + 1, total, buf);
    }
}
