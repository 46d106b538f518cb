//! The memory chart: how much is allocated against reserved, over the events of the run, with marks where switches
//! were flipped.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::chart::{self, Layer, axis_top};
use super::pane::{self, Frame, put_at, span};
use crate::model::{Column, History, Mark, Page, View};
use crate::tui::figures::Unit;
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Cells left of the chart for the labels of its axis.
const GUTTER: u16 = 5;

/// Draws the pane; returns the number of columns of its chart.
pub(crate) fn render(
    latest: &View,
    shown: &View,
    level: usize,
    kind: Frame,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) -> usize {
    let room = usize::from(area.width.saturating_sub(6));
    let inner = pane::frame(kind, title(shown, room, theme), theme.style(Token::Border), area, buf);
    // One cell of air at the right of a box, none where cells are scarce.
    let margin = u16::from(kind == Frame::Box);
    let width = inner.width.saturating_sub(GUTTER + margin);
    let footer = if inner.height >= 6 { 2 } else { u16::from(inner.height >= 4) };
    let plot =
        Rect { x: inner.x + GUTTER.min(inner.width), width, height: inner.height.saturating_sub(footer), ..inner };
    if plot.is_empty() {
        return 0;
    }
    let sweep = Sweep::new(&latest.history, level, width);
    let largest = sweep.columns().map(|column| column.reserved_max.get()).max().unwrap_or(0);
    let limit = latest.limit.filter(|limit| limit.get() <= largest.saturating_mul(2));
    let top = axis_top(largest.max(limit.map_or(0, Bytes::get)).saturating_add(largest / 32));
    axis(top, theme, inner, plot, buf);
    for (x, _) in &sweep.marks {
        for y in plot.top()..plot.bottom() {
            buf[(plot.x + *x, y)].set_symbol("┊").set_style(theme.style(Token::Border));
        }
    }
    if let Some(limit) = limit {
        let y = height_of(limit.get(), top, plot);
        for x in plot.left()..plot.right() {
            buf[(x, y)].set_symbol("─").set_style(theme.style(Token::Limit));
        }
    }
    chart::draw(&sweep.columns, top, theme, plot, buf);
    sweep.draw_edge(theme, plot, buf);
    if footer >= 1 {
        steps(&sweep, top, theme, inner, plot, buf);
    }
    if footer >= 2 {
        marks(&sweep, theme, plot, buf);
    }
    usize::from(width)
}

fn title(view: &View, room: usize, theme: &Theme) -> Vec<Span<'static>> {
    let ledger = &view.ledger;
    let unit = Unit::for_largest(view.peak_reserved.max(ledger.reserved()));
    let entry = |layer: Layer, label: &str, bytes: Bytes| {
        let symbol = if layer.fill(theme) == "█" { "■" } else { layer.fill(theme) };
        vec![
            Span::styled(symbol, Style::new().fg(theme.color(layer.token()))),
            span(theme, Token::Text, format!(" {label} ")),
            span(theme, Token::Strong, format!("{:>5}  ", unit.figure(bytes))),
        ]
    };
    let mut title = vec![span(theme, Token::Title, "memory  ")];
    title.extend(entry(Layer::Allocated, "allocated", ledger.allocated()));
    title.extend(entry(Layer::Reserved, "reserved", ledger.reserved()));
    let stranded = entry(Layer::Stranded, "stranded", ledger.stranded);
    let mut tail = Vec::new();
    if let Some(limit) = view.limit {
        tail.push(span(theme, Token::Limit, "─ "));
        tail.push(span(theme, Token::Text, format!("limit {} ", unit.figure(limit))));
    }
    tail.push(span(theme, Token::Dim, unit.name()));
    let cells = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    if cells(&title) + cells(&stranded) + cells(&tail) <= room {
        title.extend(stranded);
    }
    title.extend(tail);
    title
}

/// The row in which `bytes` lie on an axis of `top`.
fn height_of(bytes: u64, top: u64, plot: Rect) -> u16 {
    let rows = u128::from(plot.height);
    let from_bottom = u128::from(bytes) * rows / u128::from(top.max(1));
    let from_bottom = u16::try_from(from_bottom).unwrap_or(0).min(plot.height - 1);
    plot.bottom() - 1 - from_bottom
}

/// Labels at the quarters of the axis (halves where it is low) with a faint line each.
fn axis(top: u64, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
    let unit = Unit::for_largest(Bytes(top));
    let parts: u64 = if plot.height >= 8 { 4 } else { 2 };
    for part in 0..=parts {
        let value = top / parts * part;
        let y = if part == 0 {
            plot.bottom() - 1
        } else {
            let down = u128::from(parts - part) * u128::from(plot.height) / u128::from(parts);
            plot.y + u16::try_from(down).unwrap_or(0).min(plot.height - 1)
        };
        let scaled = value as f64 / unit.bytes() as f64;
        let label = if scaled.fract() == 0.0 { format!("{scaled:.0}") } else { format!("{scaled:.1}") };
        put_at(inner, 0, y - inner.y, vec![span(theme, Token::Dim, format!("{label:>4}"))], buf);
        for x in plot.left()..plot.right() {
            buf[(x, y)].set_symbol("┄").set_style(theme.style(Token::Border));
        }
    }
}

/// The numbers of some steps, below the columns in which they began.
fn steps(sweep: &Sweep, top: u64, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
    let row = plot.bottom() - inner.y;
    put_at(inner, 0, row, vec![span(theme, Token::Dim, format!("{:>4}", Unit::for_largest(Bytes(top)).name()))], buf);
    let seen: Vec<u64> = sweep.columns().map(|column| column.step).collect();
    let (Some(first), Some(last)) = (seen.iter().min(), seen.iter().max()) else { return };
    let every = nice_step(((last - first) as f64 / seen.len() as f64 * 12.0).ceil() as u64);
    let area = Rect { height: plot.height + 1, ..plot };
    let mut free_from = 0;
    for (x, pair) in (1..).zip(sweep.columns.windows(2)) {
        let (Some(before), Some(after)) = (&pair[0], &pair[1]) else { continue };
        let label = after.step / every * every;
        if after.step <= before.step || label <= before.step {
            continue;
        }
        let text = if free_from == 0 { format!("step {label}") } else { label.to_string() };
        let width = u16::try_from(text.len()).unwrap_or(u16::MAX).saturating_add(1);
        if x < free_from || width > plot.width.saturating_sub(x) {
            continue;
        }
        put_at(area, x, plot.height, vec![span(theme, Token::Dim, "╵"), span(theme, Token::Dim, text)], buf);
        free_from = x + width + 2;
    }
}

/// The smallest of 1, 2, 5, 10, 20, 50 … that is at least `n`.
fn nice_step(n: u64) -> u64 {
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            if power.saturating_mul(factor) >= n {
                return power.saturating_mul(factor);
            }
        }
        power = power.saturating_mul(10);
        if power == u64::MAX {
            return power;
        }
    }
}

/// Which switch was flipped where: the text where it fits, else the key, else the mark alone.
fn marks(sweep: &Sweep, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let area = Rect { height: plot.height + 2, ..plot };
    for (index, (x, mark)) in sweep.marks.iter().enumerate() {
        let x = *x;
        let next = sweep.marks.get(index + 1).map_or(plot.width, |(x, _)| *x);
        let room = usize::from(next.saturating_sub(x));
        let full = format!("▲{} {}", mark.key, mark.text);
        let short = format!("▲{}", mark.key);
        let token = if mark.key == '!' { Token::Danger } else { Token::Accent };
        let text = [full, short, "▲".to_owned()].into_iter().find(|text| text.width() <= room);
        if let Some(text) = text {
            put_at(area, x, plot.height + 1, vec![span(theme, token, text)], buf);
        }
    }
}

/// Two pages of the history in the place of one: the newer fills it from the left, and the older stays at the right
/// until it is overwritten, as on an oscilloscope. Nothing ever moves, so that a frame costs the new columns only.
struct Sweep {
    /// What each column shows; none where nothing happened yet, and at the edge between new and old.
    columns: Vec<Option<Column>>,
    /// The edge: the column behind the newest one.
    edge: usize,
    /// Marks by their column, from left to right.
    marks: Vec<(u16, Mark)>,
}

impl Sweep {
    fn new(history: &History, level: usize, width: u16) -> Self {
        let wide = usize::from(width);
        // A page of twice the width begins at a multiple of the width.
        let page: Page = history.page(level, wide * 2);
        let newest = page.columns.len().saturating_sub(1) / wide.max(1) * wide;
        let edge = page.columns.len() - newest;
        let column_at = |x: usize| match x {
            x if x < edge => page.columns.get(newest + x).copied(),
            x if x > edge && newest > 0 => page.columns.get(newest - wide + x).copied(),
            _ => None,
        };
        let mut marks: Vec<(u16, Mark)> = Vec::new();
        for (column, mark) in page.marks {
            let x = column % wide.max(1);
            let is_new = column >= newest;
            if let Some(x) = u16::try_from(x).ok().filter(|_| is_new || x > edge) {
                marks.push((x, mark));
            }
        }
        marks.sort_by_key(|(x, _)| *x);
        Self { columns: (0..wide).map(column_at).collect(), edge, marks }
    }

    fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().flatten()
    }

    /// Draws the edge between new and old, where there is something old.
    fn draw_edge(&self, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let Some(x) = u16::try_from(self.edge).ok().filter(|&x| x < plot.width) else { return };
        if self.columns.last().is_some_and(Option::is_some) {
            for y in plot.top()..plot.bottom() {
                buf[(plot.x + x, y)].set_symbol("▏").set_style(theme.style(Token::Text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Micros;

    #[test]
    fn step_labels_are_round() {
        for (n, nice) in [(0, 1), (1, 1), (2, 2), (3, 5), (7, 10), (11, 20), (320, 500)] {
            assert_eq!(nice_step(n), nice);
        }
    }

    /// A history of `events` events that hold as many bytes as their number.
    fn history(events: u64) -> History {
        let mut history = History::default();
        for event in 1..=events {
            history.record(Column::of_event(Bytes(event), Bytes(event), Bytes(0), event, Micros(event)));
        }
        history
    }

    fn shown(sweep: &Sweep) -> Vec<u64> {
        sweep.columns.iter().map(|column| column.map_or(0, |column| column.allocated_max.get())).collect()
    }

    #[test]
    fn a_sweep_fills_from_the_left_and_then_overwrites_the_oldest() {
        assert_eq!(shown(&Sweep::new(&history(0), 0, 6)), [0; 6]);
        assert_eq!(shown(&Sweep::new(&history(4), 0, 6)), [1, 2, 3, 4, 0, 0]);
        assert_eq!(shown(&Sweep::new(&history(6), 0, 6)), [1, 2, 3, 4, 5, 6]);
        assert_eq!(shown(&Sweep::new(&history(7), 0, 6)), [7, 0, 3, 4, 5, 6]);
        assert_eq!(shown(&Sweep::new(&history(11), 0, 6)), [7, 8, 9, 10, 11, 0]);
        assert_eq!(shown(&Sweep::new(&history(14), 0, 6)), [13, 14, 0, 10, 11, 12]);
        assert_eq!(shown(&Sweep::new(&history(100), 0, 0)), [] as [u64; 0]);
    }

    #[test]
    fn a_mark_is_gone_once_its_column_is_overwritten() {
        let mut marked = history(2);
        marked.mark('m', "bf16".to_owned());
        let at = |history: &History| Sweep::new(history, 0, 6).marks.iter().map(|(x, _)| *x).collect::<Vec<_>>();
        for event in 3..=8 {
            marked.record(Column { allocated_max: Bytes(event), ..Column::default() });
        }
        assert_eq!(at(&marked), [] as [u16; 0], "column 2 is the edge");
        let mut early = history(2);
        early.mark('m', "bf16".to_owned());
        early.record(Column::default());
        assert_eq!(at(&early), [2]);
    }

    #[test]
    fn heights_stay_inside_the_plot() {
        let plot = Rect::new(0, 2, 10, 8);
        assert_eq!(height_of(0, 96, plot), 9);
        assert_eq!(height_of(96, 96, plot), 2);
        assert_eq!(height_of(48, 96, plot), 5);
    }
}
