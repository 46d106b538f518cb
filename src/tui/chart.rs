//! Stacked areas in eighths of a cell, and axes with round ticks.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::figures::Unit;
use super::pane::{put_at, span};
use super::theme::{Theme, Token};
use crate::units::Bytes;

/// What fills a part of a column: a colour, and the glyph of a whole cell, which tells it from its neighbours where colours
/// can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink {
    /// The colour.
    pub token: Token,
    /// The glyph of a whole cell.
    pub fill: &'static str,
}

impl Ink {
    const NOTHING: Self = Self { token: Token::Surface, fill: " " };

    fn style(self, theme: &Theme) -> Style {
        Style::new().fg(theme.color(self.token))
    }
}

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// One column: parts from the bottom up, each with its height in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stack(Vec<(Bytes, Ink)>);

impl Stack {
    /// Adds a part on top.
    pub fn add(&mut self, height: Bytes, ink: Ink) {
        if height > Bytes::ZERO {
            self.0.push((height, ink));
        }
    }

    /// Draws it as column `x` of `area`, which is `top` bytes high.
    pub fn draw(&self, top: Bytes, theme: &Theme, area: Rect, x: u16, buf: &mut Buffer) {
        if x >= area.width || !buf.area.contains((area.x + x, area.y).into()) {
            return;
        }
        let edges = self.edges(top, area.height);
        for row in 0..area.height {
            let position = (area.x + x, area.bottom() - 1 - row);
            let (lower, upper, eighths) = cell(&edges, u64::from(row));
            if lower == Ink::NOTHING {
                return;
            }
            let cell = &mut buf[position];
            let whole = eighths == 8 || lower == upper;
            if whole || theme.is_colorless() {
                let ink = if whole || eighths >= 4 || upper == Ink::NOTHING { lower } else { upper };
                cell.set_symbol(ink.fill).set_style(ink.style(theme));
            } else if upper == Ink::NOTHING {
                cell.set_symbol(EIGHTHS[eighths]).set_style(lower.style(theme));
            } else {
                let style = lower.style(theme).bg(theme.color(upper.token));
                cell.set_symbol(EIGHTHS[eighths]).set_style(style);
            }
        }
    }

    /// Where each part ends, in eighths of a cell from the bottom. Something is never drawn as nothing.
    fn edges(&self, top: Bytes, rows: u16) -> Vec<(u64, Ink)> {
        let full = u64::from(rows) * 8;
        let mut sum = 0u64;
        let mut below = 0;
        let edge = |(height, ink): &(Bytes, Ink)| {
            sum = sum.saturating_add(height.get());
            let scaled =
                (u128::from(sum) * u128::from(full) + u128::from(top.get()) / 2) / u128::from(top.get().max(1));
            let end = u64::try_from(scaled).unwrap_or(full).min(full).max(u64::from(below == 0));
            below = end;
            (end, *ink)
        };
        self.0.iter().map(edge).collect()
    }
}

/// The two inks that a cell shows, and how many eighths belong to the lower. Where three meet the thinnest gives way.
fn cell(edges: &[(u64, Ink)], row: u64) -> (Ink, Ink, usize) {
    let ink = |eighth: u64| edges.iter().find(|(end, _)| eighth < *end).map_or(Ink::NOTHING, |(_, ink)| *ink);
    let mut runs: Vec<(Ink, usize)> = Vec::with_capacity(3);
    for eighth in row * 8..row * 8 + 8 {
        let ink = ink(eighth);
        match runs.last_mut() {
            Some((last, length)) if *last == ink => *length += 1,
            _ => runs.push((ink, 1)),
        }
    }
    while runs.len() > 2 {
        let thinnest = (0..runs.len()).min_by_key(|&index| runs[index].1).unwrap_or(0);
        let (_, length) = runs.remove(thinnest);
        runs[thinnest.saturating_sub(1)].1 += length;
    }
    match *runs.as_slice() {
        [(lower, length), (upper, _)] => (lower, upper, length),
        [(only, _), ..] => (only, only, 8),
        [] => (Ink::NOTHING, Ink::NOTHING, 8),
    }
}

/// An axis of bytes: its height, and the distance of its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// The height of the chart.
    pub top: Bytes,
    tick: u64,
    rows_per_tick: u16,
}

impl Axis {
    /// Cells of its labels.
    pub const WIDTH: u16 = 5;

    /// The lowest axis that holds `largest` in `rows` rows, with ticks at round figures and on whole rows.
    pub fn new(largest: Bytes, rows: u16) -> Self {
        let unit = Unit::for_largest(largest).bytes();
        let largest = largest.get().max(1);
        let rows = rows.max(1);
        let most = (rows / 2).max(1);
        let least = (rows / 6).clamp(1, most).max(2.min(most));
        let axis = |rows_per_tick: u16| {
            let tick = round_up(largest as f64 * f64::from(rows_per_tick) / f64::from(rows), unit);
            let top = (u128::from(tick) * u128::from(rows)).div_ceil(u128::from(rows_per_tick));
            Self { top: Bytes(u64::try_from(top).unwrap_or(u64::MAX)), tick, rows_per_tick }
        };
        (least..=most).map(axis).min_by_key(|axis| axis.top).unwrap_or_else(|| axis(1))
    }

    /// The row from the bottom in which `bytes` lie.
    pub fn row(self, bytes: Bytes, rows: u16) -> u16 {
        let row = u128::from(bytes.get()) * u128::from(rows) / u128::from(self.top.get().max(1));
        u16::try_from(row).unwrap_or(u16::MAX).min(rows.saturating_sub(1))
    }

    /// Draws labels left of `plot`, inside `inner`, and a faint line at each tick.
    pub fn draw(self, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
        let unit = Unit::for_largest(self.top);
        for (tick, row) in (0..plot.height).step_by(usize::from(self.rows_per_tick.max(1))).enumerate() {
            // A value stands at the lower edge of its row.
            let y = plot.bottom() - 1 - row;
            let scaled = self.tick as f64 * tick as f64 / unit.bytes() as f64;
            let decimals = [0, 1, 2].into_iter().find(|decimals| {
                let power = 10f64.powi(*decimals);
                ((scaled * power).round() / power - scaled).abs() < 1e-6 * scaled.max(1e-3)
            });
            let label = format!("{scaled:.*}", decimals.unwrap_or(2) as usize);
            put_at(inner, 0, y - inner.y, vec![span(theme, Token::Dim, format!("{label:>4}"))], buf);
            if row > 0 {
                for x in plot.left()..plot.right() {
                    buf[(x, y)].set_symbol("┄").set_style(theme.style(Token::Border));
                }
            }
        }
    }
}

/// The smallest round number of bytes that is at least `wanted`: in `unit`, 1, 1.5, 2, 2.5, 3, 4, 5 or 8 times a power of
/// ten.
fn round_up(wanted: f64, unit: u64) -> u64 {
    let scaled = (wanted / unit as f64).max(1e-3);
    let power = 10f64.powf(scaled.log10().floor());
    let round = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 10.0];
    let factor = round.into_iter().find(|factor| factor * power >= scaled);
    ((factor.unwrap_or(10.0) * power * unit as f64).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::{Catalog, ColorTier};
    use crate::units::MIB;

    const LOW: Ink = Ink { token: Token::Allocated, fill: "█" };
    const HIGH: Ink = Ink { token: Token::Reserved, fill: "▓" };

    fn drawn(parts: &[(u64, Ink)], tier: ColorTier) -> String {
        let (theme, _) = Catalog::default().load("dark", tier).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 1, 4));
        let mut stack = Stack::default();
        parts.iter().for_each(|(height, ink)| stack.add(Bytes(*height), *ink));
        stack.draw(Bytes(32), &theme, buf.area, 0, &mut buf);
        (0..4).map(|y| buf[(0, y)].symbol().to_owned()).collect()
    }

    #[test]
    fn parts_stack_in_eighths() {
        assert_eq!(drawn(&[(12, LOW), (12, HIGH)], ColorTier::True), " ▓▄█");
        assert_eq!(drawn(&[(1, LOW)], ColorTier::True), "   ▁");
        assert_eq!(drawn(&[(32, LOW)], ColorTier::None), "████");
        assert_eq!(drawn(&[(8, LOW), (16, HIGH)], ColorTier::None), " ▓▓█");
        assert_eq!(drawn(&[], ColorTier::True), "    ");
    }

    #[test]
    fn where_three_parts_meet_the_thinnest_gives_way() {
        let thin = Ink { token: Token::Stranded, fill: "▒" };
        let edges = [(3, LOW), (4, thin), (8, HIGH)];
        assert_eq!(cell(&edges, 0), (LOW, HIGH, 4));
    }

    #[test]
    fn axes_hold_what_they_must_and_little_more() {
        for rows in [1, 2, 3, 4, 7, 8, 10, 12, 16, 30] {
            for mib in [1, 3, 7, 66, 81, 96, 100, 1000, 1500, 18_600] {
                let axis = Axis::new(Bytes::mib(mib), rows);
                assert!(axis.top >= Bytes::mib(mib), "{mib} in {rows}: {axis:?}");
                let most = if rows < 4 { 3 * mib } else { 2 * mib };
                assert!(axis.top.get() <= most * MIB, "{mib} in {rows}: {axis:?}");
            }
        }
        assert!(Axis::new(Bytes::ZERO, 8).top > Bytes::ZERO);
        assert!(Axis::new(Bytes(u64::MAX), 8).top > Bytes::ZERO);
    }
}
