//! Half cells on the screen, two to a cell, and the label of a row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::coloring::Coloring;
use super::strip::{Half, Kind};
use crate::allocator::PoolKind;
use crate::model::SegmentView;
use crate::tui::figures;
use crate::tui::pane::{put, span};
use crate::tui::theme::{Theme, Token};
use crate::units::StreamId;

/// Cells of a row's label, with the air behind it.
pub(crate) const LABEL: u16 = 15;

/// What marks the cells of what is selected.
const PICKED: &str = "◆";

/// Draws half cells, two to a cell.
pub(crate) fn bar(halves: &[Half], coloring: Coloring, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let inks = Inks { coloring, theme };
    for (x, pair) in area.columns().zip(halves.chunks(2)) {
        let (left, right) = match *pair {
            [left, right] => (left, right),
            [only] => (only, only),
            _ => break,
        };
        let (symbol, style) = inks.cell(left, right);
        buf[(x.x, area.y)].set_symbol(symbol).set_style(style);
    }
}

/// The pool and stream where they change, and the size of the row's first segment.
pub(crate) fn row_label(segment: &SegmentView, leads: bool, theme: &Theme, map: Rect, y: u16, buf: &mut Buffer) {
    let pool = match (segment.pool, segment.expandable) {
        (PoolKind::Small, false) => "small",
        (PoolKind::Large, false) => "large",
        (PoolKind::Small, true) => "exp S",
        (PoolKind::Large, true) => "exp L",
    };
    let group = match (leads, segment.stream == StreamId::DEFAULT) {
        (false, _) => String::new(),
        (true, true) => pool.to_owned(),
        (true, false) => format!("{} {}", &pool[..1], stream_name(segment.stream)),
    };
    let size = figures::short_bytes(segment.size);
    let line = vec![span(theme, Token::Dim, format!("{group:<6.6}")), span(theme, Token::Text, format!("{size:>8}"))];
    put(Rect { width: LABEL - 1, ..map }, y, line, buf);
}

/// A stream's handle in as few characters as tell it from others.
pub(crate) fn stream_name(stream: StreamId) -> String {
    if stream.0 < 1000 { format!("s{}", stream.0) } else { format!("s{:x}", stream.0 & 0xfff) }
}

/// How kinds look.
struct Inks<'a> {
    coloring: Coloring,
    theme: &'a Theme,
}

impl Inks<'_> {
    fn cell(&self, left: Half, right: Half) -> (&'static str, Style) {
        let theme = self.theme;
        if left.picked || right.picked {
            let kind = if left.picked { left.kind } else { right.kind };
            return (PICKED, self.reversed(kind));
        }
        if let Some(taken) = left.lit.or(right.lit) {
            let kind = if left.lit.is_some() { left.kind } else { right.kind };
            let symbol = match (taken, theme.is_colorless()) {
                (true, false) => "▓",
                (false, false) => "▒",
                (true, true) => "@",
                (false, true) => "o",
            };
            let style = Style::new().fg(theme.color(Token::Lit));
            return (symbol, if theme.paints() { style.bg(theme.color(self.token(kind))) } else { style });
        }
        let foreground = |kind: Kind| Style::new().fg(theme.color(self.token(kind)));
        if theme.is_colorless() {
            // One letter a cell: what somebody holds before what is free, what is looked for before what is not.
            let behind =
                left.kind.is_free() || right.kind == Kind::Pending || left.kind == Kind::Aside && !right.kind.is_free();
            return (self.letter(if behind { right.kind } else { left.kind }), Style::new());
        }
        match (left.kind, right.kind) {
            (Kind::Pending, _) | (_, Kind::Pending) => ("▒", foreground(Kind::Pending)),
            (Kind::Rounding, _) | (_, Kind::Rounding) => ("▓", foreground(Kind::Rounding)),
            (a, b) if a.is_free() && b.is_free() => self.free(a),
            (a, b) if a == b => (if right.ends != left.ends { "▉" } else { "█" }, foreground(a)),
            (a, b) if b.is_free() => ("▌", foreground(a)),
            (a, b) if a.is_free() => ("▐", foreground(b)),
            (a, b) => ("▌", foreground(a).bg(theme.color(self.token(b)))),
        }
    }

    /// What is selected stands out by its mark, and by the colours changing places.
    fn reversed(&self, kind: Kind) -> Style {
        let theme = self.theme;
        if theme.paints() {
            return Style::new().fg(theme.color(Token::Surface)).bg(theme.color(self.token(kind)));
        }
        Style::new().fg(theme.color(self.token(kind))).add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    /// A free cell: a tone with faint marks on it, or where tones can't be seen the marks alone. What is stranded is
    /// hatched, what would go back dotted.
    fn free(&self, kind: Kind) -> (&'static str, Style) {
        let theme = self.theme;
        if theme.paints() {
            let mark = if kind == Kind::Stranded { Token::Stranded } else { Token::FreeMark };
            (free_mark(kind), Style::new().fg(theme.color(mark)).bg(theme.color(Token::Surface)))
        } else {
            (free_mark(kind), Style::new().fg(theme.color(self.token(kind))))
        }
    }

    fn token(&self, kind: Kind) -> Token {
        match kind {
            Kind::Releasable => Token::Reserved,
            Kind::Stranded => Token::Stranded,
            Kind::Live(tone) => self.coloring.ink(tone).token,
            Kind::Rounding => Token::Rounding,
            Kind::Pending => Token::Pending,
            Kind::Aside => Token::Border,
        }
    }

    /// What tells kinds apart where there is no colour.
    fn letter(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Releasable | Kind::Stranded => free_mark(kind),
            Kind::Rounding => "▓",
            Kind::Pending => "▒",
            Kind::Live(tone) => self.coloring.ink(tone).fill,
            Kind::Aside => "-",
        }
    }
}

const fn free_mark(kind: Kind) -> &'static str {
    match kind {
        // Nothing holds the segment: it would go back.
        Kind::Releasable => "·",
        _ => "░",
    }
}
