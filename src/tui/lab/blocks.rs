//! The block map: all segments in address order, live bytes by category, rounding, pending and free bytes told apart.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::block_map::{self, Half, Kind, Row};
use super::pane::{self, Frame, put, span};
use crate::model::{Category, Pool, SegmentView, View};
use crate::tui::figures::{self, Unit};
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Cells of a row's label, with the air behind it.
const LABEL: u16 = 20;

/// Draws the pane; returns the rows of the map in all, and how many are seen.
pub(crate) fn render(
    view: &View,
    fullest: bool,
    scroll: usize,
    kind: Frame,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) -> (usize, usize) {
    let room = usize::from(area.width.saturating_sub(6));
    let inner = pane::frame(kind, title(view, room, theme), theme.style(Token::Border), area, buf);
    if fullest && kind == Frame::Box {
        pane::remark(span(theme, Token::Dim, "at the fullest moment seen"), area, buf);
    }
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let legend = legend(view, kind == Frame::Box, theme, usize::from(inner.width));
    let legend_rows = u16::try_from(legend.len()).unwrap_or(0).min(inner.height.saturating_sub(1) / 3);
    let map = Rect { height: inner.height.saturating_sub(legend_rows), ..inner };
    let label = if map.width > 3 * LABEL { LABEL } else { 0 };
    let bars = Rect { x: map.x + label, width: map.width - label, ..map };
    let rows = block_map::rows(&view.segments, usize::from(bars.width), usize::from(map.height));
    let seen = usize::from(map.height);
    let first = scroll.min(rows.len().saturating_sub(seen));
    let mut kept: Option<(usize, Vec<Half>)> = None;
    for (y, row) in (0..map.height).zip(rows.iter().skip(first)) {
        if label > 0 && row.from == 0 {
            row_label(&view.segments, row, theme, map, y, buf);
        }
        let mut x = 0;
        for index in row.first..row.first + row.count {
            let Some(segment) = view.segments.get(index) else { break };
            // A segment over several rows is divided once.
            let halves = match kept.take() {
                Some((of, halves)) if of == index => halves,
                _ => block_map::halves(segment, row.cells * 2),
            };
            let part = halves.get(row.from * 2..).unwrap_or_default();
            x += bar(part, theme, Rect { x: bars.x + x, y: bars.y + y, width: bars.width - x, height: 1 }, buf) + 1;
            x = x.min(bars.width);
            kept = Some((index, halves));
        }
    }
    for (y, line) in (map.height..inner.height).zip(legend) {
        put(inner, y, line, buf);
    }
    if view.segments.is_empty() && map.height > 0 {
        put(map, 0, vec![span(theme, Token::Dim, "no segments yet")], buf);
    }
    (rows.len(), seen)
}

/// As much as there is room for: how many, how much of it is lost in holes, and the largest hole.
fn title(view: &View, room: usize, theme: &Theme) -> Vec<Span<'static>> {
    let ledger = &view.ledger;
    let blocks: usize = view.segments.iter().map(|segment| segment.blocks.len()).sum();
    let alarm = if ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Text };
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let (stranded, hole) = (figures::bytes(ledger.stranded), figures::bytes(ledger.largest_free));
    let segments = figures::counted(view.segments.len() as u64, "segment");
    let blocks = figures::counted(blocks as u64, "block");
    let line = |words: &[(Token, String)]| {
        let mut line = Vec::new();
        for (index, (token, word)) in words.iter().enumerate() {
            if index > 0 {
                line.push(span(theme, Token::Dim, " · "));
            }
            if word.starts_with("stranded") {
                line.push(Span::styled("■ ", Style::new().fg(theme.color(Token::Stranded))));
            }
            line.push(span(theme, *token, word.clone()));
        }
        line
    };
    let text = Token::Text;
    let variants = [
        line(&[
            (Token::Title, "blocks".to_owned()),
            (text, segments.clone()),
            (text, blocks.clone()),
            (alarm, format!("stranded {stranded} ({share})")),
            (text, format!("largest hole {hole}")),
        ]),
        line(&[
            (Token::Title, segments.clone()),
            (text, blocks.clone()),
            (alarm, format!("stranded {stranded} ({share})")),
            (text, format!("hole {hole}")),
        ]),
        line(&[
            (Token::Title, segments.clone()),
            (alarm, format!("stranded {stranded} ({share})")),
            (text, format!("hole {hole}")),
        ]),
        line(&[(Token::Title, segments), (alarm, format!("stranded {share}"))]),
    ];
    let cells = |line: &[Span<'_>]| line.iter().map(Span::width).sum::<usize>();
    let fits = variants.iter().position(|line| cells(line) <= room).unwrap_or(variants.len() - 1);
    variants.into_iter().nth(fits).unwrap_or_default()
}

fn row_label(segments: &[SegmentView], row: &Row, theme: &Theme, map: Rect, y: u16, buf: &mut Buffer) {
    let Some(group) = segments.get(row.first..row.first + row.count) else { return };
    let Some(segment) = group.first() else { return };
    let pool = match (segment.pool, segment.expandable) {
        (Pool::Small, false) => "small",
        (Pool::Large, false) => "large",
        (Pool::Small, true) => "exp S",
        (Pool::Large, true) => "exp L",
    };
    let times = if row.count > 1 { format!("×{}", row.count) } else { String::new() };
    let size: Bytes = group.iter().map(|segment| segment.size).sum();
    let held: Bytes = group.iter().flat_map(|segment| segment.blocks.iter()).map(|block| block.size).sum();
    let share = figures::percent(held.get(), size.get());
    let line = vec![
        span(theme, Token::Dim, format!("{pool} ")),
        span(theme, Token::Text, format!("{:>4}", figures::short_bytes(segment.size))),
        span(theme, Token::Dim, format!("{times:<3}")),
        span(theme, Token::Dim, format!("{share:>6}")),
    ];
    put(Rect { width: LABEL - 1, ..map }, y, line, buf);
}

/// Draws half cells, two to a cell; returns the cells it took.
fn bar(halves: &[Half], theme: &Theme, area: Rect, buf: &mut Buffer) -> u16 {
    let area = area.intersection(buf.area);
    let mut taken = 0;
    for (x, pair) in area.columns().zip(halves.chunks(2)) {
        let (left, right) = match *pair {
            [left, right] => (left, right),
            [only] => (only, only),
            _ => break,
        };
        let (symbol, style) = cell(left, right, theme);
        buf[(x.x, area.y)].set_symbol(symbol).set_style(style);
        taken += 1;
    }
    taken
}

fn cell(left: Half, right: Half, theme: &Theme) -> (&'static str, Style) {
    let foreground = |kind: Kind| Style::new().fg(theme.color(token(kind)));
    if theme.is_colorless() {
        // One letter a cell: what somebody holds before what is free.
        let kind = if left.kind.is_free() || right.kind == Kind::Pending { right.kind } else { left.kind };
        return (letter(kind), Style::new());
    }
    let ground = |style: Style, free: Kind| if theme.paints() { style.bg(theme.color(token(free))) } else { style };
    match (left.kind, right.kind) {
        (Kind::Pending, _) | (_, Kind::Pending) => ("▒", ground(foreground(Kind::Pending), Kind::Releasable)),
        (Kind::Rounding, _) | (_, Kind::Rounding) => ("▓", ground(foreground(Kind::Rounding), Kind::Releasable)),
        (a, b) if a.is_free() && b.is_free() => free(a, theme),
        (a, b) if a == b => (if right.ends && !left.ends { "▉" } else { "█" }, foreground(a)),
        (a, b) if b.is_free() => ("▌", ground(foreground(a), b)),
        (a, b) if a.is_free() => ("▐", ground(foreground(b), a)),
        (a, b) => ("▌", foreground(a).bg(theme.color(token(b)))),
    }
}

/// A free cell: a tone with faint marks on it, or where tones can't be seen the marks alone.
fn free(kind: Kind, theme: &Theme) -> (&'static str, Style) {
    if theme.paints() {
        // A stranded hole is one flat tone, the chart's; what would go back is dotted.
        let mark = if kind == Kind::Stranded { token(kind) } else { Token::FreeMark };
        (free_mark(kind), Style::new().fg(theme.color(mark)).bg(theme.color(token(kind))))
    } else {
        (free_mark(kind), Style::new().fg(theme.color(token(kind))))
    }
}

const fn free_mark(kind: Kind) -> &'static str {
    match kind {
        // Nothing holds the segment: it would go back.
        Kind::Releasable => "·",
        _ => "░",
    }
}

fn token(kind: Kind) -> Token {
    match kind {
        Kind::Releasable => Token::Reserved,
        Kind::Stranded => Token::Stranded,
        Kind::Live(category) => category.into(),
        Kind::Rounding => Token::Rounding,
        Kind::Pending => Token::Pending,
    }
}

/// What tells kinds apart where there is no colour.
const fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Releasable | Kind::Stranded => free_mark(kind),
        Kind::Rounding => "▓",
        Kind::Pending => "▒",
        Kind::Live(category) => category_letter(category),
    }
}

const fn category_letter(category: Category) -> &'static str {
    match category {
        Category::Parameter => "P",
        Category::Gradient => "G",
        Category::OptimizerState => "O",
        Category::Activation => "A",
        Category::Temporary => "T",
        Category::Workspace => "W",
        Category::Input => "I",
        Category::Other => "X",
    }
}

/// What the colours mean, with bytes where they are wanted, in as many lines as it takes. Categories that never held
/// anything are left out.
fn legend(view: &View, with_bytes: bool, theme: &Theme, width: usize) -> Vec<Vec<Span<'static>>> {
    let ledger = &view.ledger;
    let unit = Unit::for_largest(view.peak_reserved.max(ledger.reserved()));
    let mut entries: Vec<(Span<'static>, &'static str, Bytes)> = Vec::new();
    for (index, category) in Category::ALL.into_iter().enumerate() {
        if view.by_category[index] > Bytes::ZERO || view.peak_by_category[index] > Bytes::ZERO {
            entries.push((legend_of(category, theme), short_label(category), view.by_category[index]));
        }
    }
    let accounts = [ledger.stranded, ledger.releasable, ledger.rounding, ledger.pending];
    entries.extend(account_marks(theme).into_iter().zip(accounts).map(|((mark, label), bytes)| (mark, label, bytes)));

    let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new()];
    let mut used = 0;
    let count = entries.len();
    for (index, (symbol, label, bytes)) in entries.into_iter().enumerate() {
        let mut entry = vec![symbol, span(theme, Token::Dim, format!(" {label} "))];
        if with_bytes {
            entry.push(span(theme, Token::Text, format!("{:>5} ", unit.figure(bytes))));
            if index + 1 == count {
                entry.push(span(theme, Token::Dim, unit.name()));
            }
        }
        let cells: usize = entry.iter().map(Span::width).sum();
        if used + cells > width + 1 && used > 0 {
            lines.push(Vec::new());
            used = 0;
        } else if used > 0 && with_bytes {
            entry.insert(0, Span::raw(" "));
        }
        used += entry.iter().map(Span::width).sum::<usize>();
        if let Some(line) = lines.last_mut() {
            line.extend(entry);
        }
    }
    lines
}

/// A short word for a category, where a line must hold many.
const fn short_label(category: Category) -> &'static str {
    match category {
        Category::Parameter => "params",
        Category::Gradient => "grads",
        Category::OptimizerState => "optim",
        Category::Activation => "activ",
        Category::Temporary => "temp",
        Category::Workspace => "works",
        Category::Input => "input",
        Category::Other => "other",
    }
}

/// The mark of a category in legends.
pub(crate) fn legend_of(category: Category, theme: &Theme) -> Span<'static> {
    span(theme, category.into(), if theme.is_colorless() { category_letter(category) } else { "■" })
}

/// The marks of bytes that nobody asked for, as the map shows them.
pub(crate) fn account_marks(theme: &Theme) -> [(Span<'static>, &'static str); 4] {
    let mark = |(symbol, style): (&'static str, Style)| Span::styled(symbol, style);
    [
        (mark(free(Kind::Stranded, theme)), "stranded"),
        (mark(free(Kind::Releasable, theme)), "releasable"),
        (span(theme, Token::Rounding, "▓"), "rounding"),
        (span(theme, Token::Pending, "▒"), "pending"),
    ]
}
