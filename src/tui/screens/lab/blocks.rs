//! The block map: all segments in address order, live bytes by category, rounding, pending and free bytes told apart.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use super::block_map::{self, Half, Kind};
use crate::allocator::PoolKind;
use crate::model::{Category, SegmentView, Touched, View};
use crate::tui::figures::{self, Unit};
use crate::tui::legend::{account_marks, category_letter, legend_of, short_label};
use crate::tui::pane::{self, Frame, put, span};
use crate::tui::stage::Stage;
use crate::tui::theme::{Theme, Token};
use crate::units::{Bytes, StreamId};

/// Of which moment the figures are, where steps go by too fast for each to be shown.
pub(crate) const AT_THE_FULLEST: &str = "at the fullest moment seen";

/// Cells of the pool and stream in a row's label.
const GROUP: usize = 6;
/// Cells of the largest size in it.
const SIZE: usize = 8;

/// Draws the pane; returns the rows of the map in all, and how many are seen.
pub(crate) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let (theme, view) = (stage.theme, stage.shown);
    let margin = if kind == Frame::Box { 4 } else { 2 };
    let inside = area.height.saturating_sub(if kind == Frame::Box { 2 } else { 1 });
    let wide = area.width.saturating_sub(margin);
    let most = inside.saturating_sub(1) / 3;
    let legend = |with_bytes| legend(view, with_bytes, theme, usize::from(wide));
    // All words before some figures.
    let legend = Some(legend(true)).filter(|lines| lines.len() <= usize::from(most)).unwrap_or_else(|| legend(false));
    let legend_rows = u16::try_from(legend.len()).unwrap_or(0).min(most);
    let sizes = view.segments.iter().map(|segment| figures::short_bytes(segment.size).len());
    let size = sizes.max().unwrap_or(0).min(SIZE);
    let label = u16::try_from(GROUP + size + 1).unwrap_or(0);
    let label = if wide >= 3 * label { label } else { 0 };
    let seen = usize::from(inside - legend_rows);
    let plan = block_map::plan(&view.segments, usize::from(wide - label), seen);
    let room = usize::from(area.width.saturating_sub(5));
    let word = if stage.fullest && kind == Frame::Rule { "blocks at the fullest" } else { "blocks" };
    let title = title(word, view, plan.scale, room, theme);
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    if stage.fullest && kind == Frame::Box {
        pane::remark(span(theme, Token::Dim, AT_THE_FULLEST), area, buf);
    }
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let map = Rect { height: inner.height.saturating_sub(legend_rows), ..inner };
    let bars = Rect { x: map.x + label, width: map.width - label.min(map.width), ..map };
    let first = stage.scroll.min(plan.rows.saturating_sub(seen));
    let touched: &[Touched] = if stage.is_still() { &view.touched } else { &[] };
    let mut kept: Option<(usize, Vec<Half>)> = None;
    let mut labelled = None;
    for piece in plan.pieces.iter().filter(|piece| (first..first + seen).contains(&piece.row)) {
        let Some(segment) = view.segments.get(piece.segment) else { continue };
        let y = u16::try_from(piece.row - first).unwrap_or(u16::MAX);
        if label > 0 && piece.from == 0 && labelled != Some(piece.row) {
            row_label(segment, piece.leads, size, theme, map, y, buf);
        }
        labelled = Some(piece.row);
        // A segment over several rows is divided once.
        let halves = match kept.take() {
            Some((of, halves)) if of == piece.segment => halves,
            _ => {
                let mut halves = block_map::halves(segment, piece.cells * 2);
                block_map::light(&mut halves, segment, touched);
                halves
            }
        };
        let part = halves.get(piece.from * 2..(piece.from + piece.count) * 2).unwrap_or_default();
        let x = u16::try_from(piece.x).unwrap_or(u16::MAX);
        let width = u16::try_from(piece.count).unwrap_or(u16::MAX).min(bars.width.saturating_sub(x));
        bar(part, theme, Rect { x: bars.x.saturating_add(x), y: bars.y.saturating_add(y), width, height: 1 }, buf);
        kept = Some((piece.segment, halves));
    }
    for (y, line) in (map.height..inner.height).zip(legend) {
        put(inner, y, line, buf);
    }
    if view.segments.is_empty() && map.height > 0 {
        put(map, 0, vec![span(theme, Token::Dim, "no segments yet")], buf);
    }
    (plan.rows, seen)
}

/// As much as there is room for: how many, how much of it is lost in holes, and the largest hole.
fn title(word: &'static str, view: &View, scale: u64, room: usize, theme: &Theme) -> Vec<Span<'static>> {
    let ledger = &view.ledger;
    let alarm = if ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Text };
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let segments = figures::counted(view.segments.len() as u64, "segment");
    let blocks: usize = view.segments.iter().map(|segment| segment.blocks.len()).sum();
    // The most telling first.
    let words = [
        (Token::Text, segments),
        (alarm, format!("stranded {} ({share})", figures::bytes(ledger.stranded))),
        (
            Token::Dim,
            if scale > 0 { format!("1 cell = {}", figures::short_bytes(Bytes(scale))) } else { String::new() },
        ),
        (Token::Text, format!("largest hole {}", figures::bytes(view.largest_hole))),
        (Token::Text, figures::counted(blocks as u64, "block")),
    ];
    let mut line = vec![span(theme, Token::Title, word)];
    let mut room = room.saturating_sub(word.len());
    for (token, word) in words.into_iter().filter(|(_, word)| !word.is_empty()) {
        let Some(left) = room.checked_sub(word.chars().count() + 3) else { break };
        room = left;
        line.push(span(theme, Token::Dim, " · "));
        line.push(span(theme, token, word));
    }
    line
}

/// The pool and stream where they change, and the size of the row's first segment.
fn row_label(segment: &SegmentView, leads: bool, cells: usize, theme: &Theme, map: Rect, y: u16, buf: &mut Buffer) {
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
    let group = span(theme, Token::Dim, format!("{group:<GROUP$.GROUP$}"));
    put(map, y, vec![group, span(theme, Token::Text, format!("{size:>cells$}"))], buf);
}

/// A stream's handle in as few characters as tell it from others.
fn stream_name(stream: StreamId) -> String {
    if stream.0 < 1000 { format!("s{}", stream.0) } else { format!("s{:x}", stream.0 & 0xfff) }
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
    if let Some(taken) = left.lit.or(right.lit) {
        let kind = if left.lit.is_some() { left.kind } else { right.kind };
        let symbol = match (taken, theme.is_colorless()) {
            (true, false) => "▓",
            (false, false) => "▒",
            (true, true) => "@",
            (false, true) => "o",
        };
        let style = Style::new().fg(theme.color(Token::Lit));
        return (symbol, if theme.paints() { style.bg(theme.color(token(kind))) } else { style });
    }
    let foreground = |kind: Kind| Style::new().fg(theme.color(token(kind)));
    if theme.is_colorless() {
        // One letter a cell: what somebody holds before what is free.
        let kind = if left.kind.is_free() || right.kind == Kind::Pending { right.kind } else { left.kind };
        return (letter(kind), Style::new());
    }
    let ground = |style: Style, _: Kind| style;
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
        // What is stranded is hatched, what would go back dotted.
        let (mark, ground) = match kind {
            Kind::Stranded => (Token::Stranded, Token::Surface),
            _ => (Token::FreeMark, Token::Surface),
        };
        (free_mark(kind), Style::new().fg(theme.color(mark)).bg(theme.color(ground)))
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
        if used + usize::from(with_bytes) + cells > width + 1 && used > 0 {
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
