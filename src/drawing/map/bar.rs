//! Draws half cells, two to a cell, and the label of a row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::coloring::Coloring;
use super::strip::{CellKind, Half};
use crate::figures;
use crate::legend::{self, free_style};
use crate::pane::{put, span};
use crate::theme::{Theme, Token};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::StreamId;
use vramlab_model::SegmentView;

/// The width of a row's label in cells, with the blank behind it.
pub const LABEL: u16 = 15;

/// Marks the cells of the selection.
const PICKED: &str = "◆";

/// Draws half cells, two to a cell.
pub fn bar(halves: &[Half], coloring: Coloring, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let inks = Inks { coloring, theme };
    for (x, pair) in area.columns().zip(halves.chunks(2)) {
        let (symbol, style) = match *pair {
            [left, right] => inks.cell(left, right),
            [only] => inks.half(only),
            _ => break,
        };
        buf[(x.x, area.y)].set_symbol(symbol).set_style(style);
    }
}

/// The pool and stream where they change, and the size of the row's largest segment; whether others that are smaller begin there too.
pub fn row_label(
    segment: &SegmentView,
    (leads, differ): (bool, bool),
    theme: &Theme,
    map: Rect,
    y: u16,
    buf: &mut Buffer,
) {
    let group = match (leads, segment.stream.0) {
        (false, _) => String::new(),
        // The pool's segment sizes show which pool it is.
        (true, 0) if segment.expandable => "expand".to_owned(),
        (true, 0) => match segment.pool {
            PoolKind::Small => "small".to_owned(),
            PoolKind::Large => "large".to_owned(),
        },
        (true, _) => stream_name(segment.stream),
    };
    let size = figures::short_bytes(segment.size);
    let size = if differ && size.len() < 8 { format!("≤{size}") } else { size };
    let line = vec![span(theme, Token::Dim, format!("{group:<6.6}")), span(theme, Token::Text, format!("{size:>8}"))];
    put(Rect { width: LABEL - 1, ..map }, y, line, buf);
}

/// A stream's handle, shortened to the characters that tell streams apart.
pub fn stream_name(stream: StreamId) -> String {
    if stream.0 < 1000 { format!("s{}", stream.0) } else { format!("s{:x}", stream.0 & 0xfff) }
}

/// The looks of cell kinds.
struct Inks<'a> {
    coloring: Coloring,
    theme: &'a Theme,
}

impl Inks<'_> {
    /// A last cell whose left half alone belongs to a segment.
    fn half(&self, only: Half) -> (&'static str, Style) {
        // Marks fill whole cells.
        if only.picked || only.lit.is_some() {
            return self.cell(only, only);
        }
        if self.theme.is_colorless() {
            // There is no half letter, so draw an edge that separates the next segment.
            return ("▏", Style::new());
        }
        ("▌", Style::new().fg(self.theme.color(self.token(only.kind))))
    }

    fn cell(&self, left: Half, right: Half) -> (&'static str, Style) {
        let theme = self.theme;
        if left.picked || right.picked {
            let kind = if left.picked { left.kind } else { right.kind };
            return (PICKED, self.reversed(kind));
        }
        if let Some(taken) = left.lit.or(right.lit) {
            let kind = if left.lit.is_some() { left.kind } else { right.kind };
            let [took, gave] = legend::touched_symbols(theme);
            return (if taken { took } else { gave }, legend::touched_style(self.token(kind), theme));
        }
        let foreground = |kind: CellKind| Style::new().fg(theme.color(self.token(kind)));
        if theme.is_colorless() {
            // One letter per cell: allocated bytes win over free ones, blocks that match the filter over others.
            let behind = left.kind.is_free()
                || right.kind == CellKind::Pending
                || left.kind == CellKind::Aside && !right.kind.is_free();
            return (self.letter(if behind { right.kind } else { left.kind }), Style::new());
        }
        match (left.kind, right.kind) {
            (CellKind::Rounding, _) | (_, CellKind::Rounding) => ("▓", foreground(CellKind::Rounding)),
            (a, b) if a == b && (a.is_free() || a == CellKind::Pending) => {
                (pattern(a), free_style(self.token(a), theme))
            }
            (a, b) if a == b => (if right.ends != left.ends { "▉" } else { "█" }, foreground(a)),
            (a, b) => ("▌", foreground(a).bg(theme.color(self.token(b)))),
        }
    }

    /// A selected cell has a mark, and its colours are swapped.
    fn reversed(&self, kind: CellKind) -> Style {
        let theme = self.theme;
        if theme.paints() {
            return Style::new().fg(theme.color(Token::Surface)).bg(theme.color(self.token(kind)));
        }
        Style::new().fg(theme.color(self.token(kind))).add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    fn token(&self, kind: CellKind) -> Token {
        match kind {
            CellKind::Releasable => Token::Reserved,
            CellKind::Stranded => Token::Stranded,
            CellKind::Live(tone) => self.coloring.ink(tone).token,
            CellKind::Rounding => Token::Rounding,
            CellKind::Pending => Token::Pending,
            CellKind::Aside => Token::Border,
        }
    }

    /// The letter of a kind in themes without colour.
    fn letter(&self, kind: CellKind) -> &'static str {
        match kind {
            CellKind::Releasable => "·",
            CellKind::Stranded => "░",
            CellKind::Rounding => "▓",
            CellKind::Pending => "▒",
            CellKind::Live(tone) => self.coloring.ink(tone).fill,
            CellKind::Aside => "-",
        }
    }
}

/// Stranded bytes are hatched, releasable bytes dotted, pending bytes crossed out.
const fn pattern(kind: CellKind) -> &'static str {
    match kind {
        CellKind::Releasable => legend::RELEASABLE,
        CellKind::Pending => legend::PENDING,
        _ => legend::STRANDED,
    }
}
