//! An axis of bytes: round ticks, each at the height of its value.

use std::ops::RangeInclusive;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::shown::{GRID, GRID_MIDDLE, is_grid};
use crate::figures::ByteUnit;
use crate::pane::{Frame, put_at, span};
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;

/// The part of `inner` that holds a chart's columns, with room for labels at the left and for `below` rows underneath.
pub fn plot_in(inner: Rect, kind: Frame, below: u16) -> Rect {
    let margin = u16::from(kind == Frame::Box);
    let below = if inner.height >= 3 { below } else { 0 };
    Rect {
        x: inner.x + Axis::WIDTH.min(inner.width),
        width: inner.width.saturating_sub(Axis::WIDTH + margin),
        height: inner.height.saturating_sub(below),
        ..inner
    }
}

/// An axis of bytes: its height, and the distance between its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The value at the top of the chart.
    pub top: Bytes,
    /// The unit of its labels.
    pub unit: ByteUnit,
    tick: u64,
}

impl Axis {
    /// The width of its labels, in cells.
    pub const WIDTH: u16 = 5;

    /// The lowest axis that holds `largest` in `rows` rows, with round ticks in `unit` that lie on whole rows: four
    /// ticks or more if there is room for them, or three if that leaves at least an eighth less of the chart blank.
    pub fn new(unit: ByteUnit, largest: Bytes, rows: u16) -> Self {
        let largest = largest.get().max(1);
        let rows = rows.max(1);
        let least = rows.div_ceil(8).max(if rows >= 4 { 2 } else { 1 });
        let most = (rows.saturating_sub(1) / 3).max(least + 1).min(rows.saturating_sub(1)).max(least);
        let axis = |rows_per_tick: u16| {
            let tick = round_up(largest as f64 * f64::from(rows_per_tick) / f64::from(rows), unit.bytes());
            let top = (u128::from(tick) * u128::from(rows)).div_ceil(u128::from(rows_per_tick));
            Self { top: Bytes(u64::try_from(top).unwrap_or(u64::MAX)), unit, tick }
        };
        let lowest = |per_tick: RangeInclusive<u16>| per_tick.map(axis).min_by_key(|axis| axis.top);
        let usual = lowest(least..=most).unwrap_or_else(|| axis(1));
        let fewer = lowest(most + 1..=rows * 2 / 5).filter(|fewer| fewer.ticks(rows).len() >= fewest_ticks(rows));
        fewer.filter(|fewer| fewer.top.get() / 7 <= usual.top.get() / 8).unwrap_or(usual)
    }

    /// An axis that `largest` fills to the top, for charts of few rows, so that every part of the top row can be seen.
    pub fn fitted(unit: ByteUnit, largest: Bytes, rows: u16) -> Self {
        let top = largest.get().max(1);
        Self::best(unit, top, [top], rows.max(1))
    }

    /// The axis with the best ticks among the axes of `rows` rows with these tops. Even ticks are better than nearly
    /// even ones, then more ticks (up to what is useful) than fewer, then an earlier top than a later one.
    fn best(unit: ByteUnit, edge: u64, tops: impl IntoIterator<Item = u64> + Clone, rows: u16) -> Self {
        let axes = || {
            let numbered = tops.clone().into_iter().enumerate();
            numbered.flat_map(|(place, top)| Self::with_round_ticks(unit, top, rows).map(move |axis| (place, axis)))
        };
        let rank = |(place, axis): &(usize, Self)| {
            let evenness = axis.evenness(rows);
            let few = (fewest_ticks(rows) + 1).saturating_sub(axis.ticks(rows).len());
            (evenness >= Evenness::Nearly, few, *place, evenness)
        };
        let telling = axes().filter(|(_, axis)| axis.tells_enough(edge, rows)).min_by_key(rank);
        let even = || axes().filter(|(_, axis)| axis.evenness(rows) < Evenness::Nearly).min_by_key(rank);
        telling.or_else(even).map(|(_, axis)| axis).unwrap_or_else(|| {
            let top = tops.clone().into_iter().next().unwrap_or(1);
            Self { top: Bytes(top), unit, tick: lone_tick(unit, top, rows) }
        })
    }

    /// Axes with round ticks that are as far apart as labels need, the smallest distance first.
    fn with_round_ticks(unit: ByteUnit, top: u64, rows: u16) -> impl Iterator<Item = Self> {
        let least = if rows > 4 { 16 } else { 8 };
        round_numbers(unit, top as f64 / f64::from(rows))
            .map(move |tick| Self { top: Bytes(top), unit, tick: tick.round() as u64 })
            .take_while(move |axis| axis.tick <= top)
            .filter(move |axis| axis.lines(rows).windows(2).all(|pair| pair[1] >= pair[0] + least))
    }

    /// The heights of the ticks' lines, in eighths of a row, starting with the zero's.
    fn lines(self, rows: u16) -> Vec<u64> {
        self.ticks(rows).into_iter().map(|(_, above)| line_of(above)).collect()
    }

    /// How evenly its lines are spaced as drawn.
    fn evenness(self, rows: u16) -> Evenness {
        let drawn = self.lines(rows);
        match drawn.get(1) {
            Some(first) if (0..).zip(&drawn).all(|(count, at)| *at == count * first) => {
                if first.is_multiple_of(8) {
                    Evenness::WholeRows
                } else {
                    Evenness::HalfRows
                }
            }
            Some(_) => Evenness::Nearly,
            None => Evenness::Lone,
        }
    }

    /// True if it has enough ticks for `rows` rows, and one of them near `edge`.
    fn tells_enough(self, edge: u64, rows: u16) -> bool {
        let ticks = self.ticks(rows);
        let most = ticks.last().map_or(0, |(value, _)| *value);
        // With two or three rows, no label can be near the top.
        let least = if rows < 4 { 70 } else { 75 };
        let is_high = u128::from(most) * 100 >= u128::from(edge) * least;
        (fewest_ticks(rows)..=MOST_TICKS).contains(&ticks.len()) && is_high
    }

    /// An axis of `rows` rows in which `edge` lies on the upper edge of a row: of row `below`, counted from one, or of
    /// a row a little lower if round ticks are evenly spaced then.
    pub(super) fn with_edge(unit: ByteUnit, edge: Bytes, below: u16, rows: u16) -> Self {
        let (below, rows) = (below.max(1), rows.max(1));
        let lowest = below - (below / 6).max(1).min(below - 1);
        let top = |below: u16| {
            let top = (u128::from(edge.get().max(1)) * u128::from(rows)).div_ceil(u128::from(below));
            u64::try_from(top).unwrap_or(u64::MAX)
        };
        Self::best(unit, edge.get(), (lowest..=below).rev().map(top), rows)
    }

    /// The height of `bytes` in a chart of `rows` rows, in eighths of a row.
    pub fn eighths(self, bytes: Bytes, rows: u16) -> u64 {
        let full = u128::from(rows) * 8;
        let top = u128::from(self.top.get().max(1));
        let scaled = (u128::from(bytes.get()) * full + top / 2) / top;
        u64::try_from(scaled.min(full)).unwrap_or(u64::MAX)
    }

    /// The row, counted from the bottom, that contains the end of `bytes`.
    pub fn row(self, bytes: Bytes, rows: u16) -> u16 {
        let row = self.eighths(bytes, rows).saturating_sub(1) / 8;
        u16::try_from(row).unwrap_or(u16::MAX).min(rows.saturating_sub(1))
    }

    /// Draws labels left of `plot`, inside `inner`, and a faint line at the height of each tick.
    pub fn draw(self, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
        if plot.is_empty() {
            return;
        }
        for (value, above) in self.ticks(plot.height) {
            let Some(y) = u16::try_from(above / 8).ok().and_then(|row| plot.bottom().checked_sub(1 + row)) else {
                continue;
            };
            let label = vec![span(theme, Token::Dim, format!("{:>4}", self.label(value as f64)))];
            put_at(inner, 0, y - inner.y, label, buf);
            if value > 0 {
                grid_line(above, y, theme, plot, buf);
            }
        }
    }

    /// The labelled values, each with its height in eighths of a row plus two. The two eighths move a line to the
    /// nearest lower edge or middle of a row; a value at the upper edge of a row belongs to the next row.
    fn ticks(self, rows: u16) -> Vec<(u64, u64)> {
        let place = |value: u64| (value, self.eighths(Bytes(value), rows) + ABOVE);
        let values = (0..).map_while(|count| self.tick.checked_mul(count)).take_while(|value| *value <= self.top.get());
        values.map(place).take_while(|(_, above)| above / 8 < u64::from(rows)).collect()
    }

    /// Removes grid lines in row `above`, counted from the bottom, and in the rows next to it, because a ceiling's line
    /// there could be confused with them.
    pub(super) fn clear_beside(above: u16, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let row = plot.height.saturating_sub(1 + above);
        for y in row.saturating_sub(1)..(row + 2).min(plot.height) {
            for x in plot.left()..plot.right() {
                let Some(cell) = buf.cell_mut((x, plot.y + y)) else { continue };
                if matches!(cell.symbol(), GRID | GRID_MIDDLE) && is_grid(cell, theme) {
                    cell.set_symbol(" ");
                }
            }
        }
    }

    fn label(self, bytes: f64) -> String {
        let scaled = bytes / self.unit.bytes() as f64;
        let decimals = [0, 1, 2].into_iter().find(|decimals| {
            let power = 10f64.powi(*decimals);
            ((scaled * power).round() / power - scaled).abs() < 1e-6 * scaled.max(1e-3)
        });
        // A figure that is not round gets no more characters than the round ones beside it, unless it is less than one.
        let most = if scaled < 1.0 { 2 } else { i32::from(scaled < 9.95) };
        format!("{scaled:.*}", decimals.unwrap_or(2).min(most) as usize)
    }
}

/// A value's label and line are placed this many eighths of a row above its height.
const ABOVE: u64 = 2;

/// Draws a value's line in row `y`.
fn grid_line(above: u64, y: u16, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let symbol = if line_of(above).is_multiple_of(8) { GRID } else { GRID_MIDDLE };
    // Every second cell, so that the line is not mistaken for an area.
    for x in (plot.left()..plot.right()).step_by(2) {
        buf[(x, y)].set_symbol(symbol).set_style(theme.style(Token::Border));
    }
}

/// The axis of a chart of shares, in per cent: its top, and the number of parts between its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    top: u64,
    parts: u64,
}

impl Shares {
    /// Tops in per cent that give whole ticks.
    const TOPS: [u64; 17] = [4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 30, 40, 50, 60, 80, 100];

    /// The lowest top that holds `largest`, with ticks at least two rows apart. A top up to half as high again is
    /// preferred if its ticks are evenly spaced in `rows` rows.
    pub fn new(largest: f64, rows: u16) -> Self {
        let rows = u64::from(rows);
        let divided = |top: u64, evenly: bool| {
            let fits = |parts: &u64| {
                top.is_multiple_of(*parts) && rows >= 2 * parts && (!evenly || rows.is_multiple_of(*parts))
            };
            let parts = [5, 4, 3, 2].into_iter().find(fits)?;
            Some(Self { top, parts })
        };
        let wanted = 100.0 * largest;
        let tops = || Self::TOPS.into_iter().filter(|top| *top as f64 >= wanted - 1e-9);
        let lowest = tops().next().unwrap_or(100);
        let even = tops().take_while(|top| 2 * top <= 3 * lowest).find_map(|top| divided(top, true));
        even.or_else(|| divided(lowest, false)).unwrap_or(Self { top: lowest, parts: 1 })
    }

    /// The top as a share from 0 to 1.
    pub fn top(self) -> f64 {
        self.top as f64 / 100.0
    }

    /// Draws labels left of `plot`, and lines at the ticks between its ends.
    pub fn draw(self, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
        let Self { top, parts } = self;
        let rows = u64::from(plot.height);
        let mut label = |share: u64, y: u16| {
            put_at(inner, 0, y - inner.y, vec![span(theme, Token::Dim, format!("{share:>3}%"))], &mut *buf);
        };
        // A tick's label is above its line, but the top's label is below the edge. With two rows to a part they would be too close.
        if parts == 1 || rows > 2 * parts {
            label(top, plot.top());
        }
        if plot.height > 1 {
            label(0, plot.bottom() - 1);
        }
        let between = (1..parts).map(|part| (top * part / parts, rows * 8 * part / parts + ABOVE));
        let between: Vec<(u64, u64, u16)> = between
            .filter_map(|(share, above)| {
                Some((share, above, plot.bottom().checked_sub(1 + u16::try_from(above / 8).ok()?)?))
            })
            .collect();
        between.iter().for_each(|(share, _, y)| label(*share, *y));
        between.iter().for_each(|(_, above, y)| grid_line(*above, *y, theme, plot, buf));
    }
}

/// How evenly an axis's ticks are spaced, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evenness {
    /// The same number of whole rows apart.
    WholeRows,
    /// The same number of half rows apart.
    HalfRows,
    /// Each within a quarter of a row of its height, so that distances differ by half a row.
    Nearly,
    /// There is no tick besides the zero.
    Lone,
}

/// The fewest ticks that an axis of `rows` rows should have, including its zero. [`MOST_TICKS`] is the most for any axis.
const fn fewest_ticks(rows: u16) -> usize {
    match rows {
        0..2 => 1,
        2..7 => 2,
        7..16 => 3,
        _ => 4,
    }
}
const MOST_TICKS: usize = 9;

/// The height of the line for a label at this height, in eighths: the lower edge of its row, or the middle.
const fn line_of(above: u64) -> u64 {
    above / 8 * 8 + if above % 8 <= 4 { 0 } else { 4 }
}

/// A round number of more than half of `top`, in a row of its own, for an axis with a single tick.
fn lone_tick(unit: ByteUnit, top: u64, rows: u16) -> u64 {
    let (top, rows) = (top as f64, f64::from(rows));
    let stands_alone = |tick: &f64| *tick > top / 2.0 && *tick <= top * 0.9 && tick * rows / top >= 1.0;
    round_numbers(unit, top / rows).find(stands_alone).map_or(u64::MAX, |tick| tick.round() as u64)
}

/// Round numbers of bytes, starting around `from`. Those with two digits are used only as whole figures.
fn round_numbers(unit: ByteUnit, from: f64) -> impl Iterator<Item = f64> {
    let power = 10f64.powf((from / unit.bytes() as f64).max(1e-3).log10().floor());
    let tens = [1.0, 10.0, 100.0].into_iter();
    let round =
        tens.flat_map(move |tens| [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0].map(|one| (one, tens * power)));
    let is_told = |(one, scale): &(f64, f64)| one.fract() == 0.0 || *scale > 9.0;
    round.filter(is_told).map(move |(one, scale)| one * scale * unit.bytes() as f64)
}

/// The smallest round number of bytes that is at least `wanted`: in `unit`, 1, 2 or 5 times a power of ten, or a power of two.
fn round_up(wanted: f64, unit: u64) -> u64 {
    let scaled = (wanted / unit as f64).max(1e-3);
    let power = 10f64.powf(scaled.log10().floor());
    let decimal = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= scaled).unwrap_or(10.0) * power;
    let binary = 2f64.powf(scaled.log2().ceil());
    // Fractions are easier to read in tenths than in powers of two.
    let round = if scaled > 1.0 { decimal.min(binary) } else { decimal };
    ((round * unit as f64).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;

    use super::*;
    use crate::theme::{ColorTier, ThemeCatalog};
    use vramlab_allocator::units::{GIB, MIB};

    #[test]
    fn axes_hold_what_they_must_and_little_more() {
        for rows in [1, 2, 3, 4, 7, 8, 10, 12, 16, 30, 38] {
            for mib in [1, 3, 7, 66, 81, 96, 100, 1000, 1500, 18_600] {
                let axis = new(Bytes::mib(mib), rows);
                assert!(axis.top >= Bytes::mib(mib), "{mib} in {rows}: {axis:?}");
                let most = if rows < 4 { 3 * mib } else { 2 * mib };
                assert!(axis.top.get() <= most * MIB, "{mib} in {rows}: {axis:?}");
            }
        }
        assert!(new(Bytes::ZERO, 8).top > Bytes::ZERO);
        assert!(new(Bytes(u64::MAX), 8).top > Bytes::ZERO);
    }

    fn new(largest: Bytes, rows: u16) -> Axis {
        Axis::new(ByteUnit::for_largest(largest), largest, rows)
    }

    #[test]
    fn labels_stand_at_their_heights_below_an_edge_that_is_not_round_and_evenly_where_round_figures_can() {
        let (mut labelled, mut even) = (0, 0);
        for rows in 1..=20 {
            for (unit, tenths) in [1, 3, 4, 9, 10, 57, 82, 147, 228, 250, 900, 1398]
                .into_iter()
                .flat_map(|tenths| [(ByteUnit::MiB, tenths), (ByteUnit::GiB, tenths)])
            {
                let edge = Bytes(tenths * unit.bytes() / 10);
                let fitted = Axis::fitted(unit, edge, rows);
                assert_eq!(fitted.eighths(edge, rows), u64::from(rows) * 8);
                let below = rows - u16::from(rows >= 4);
                let with_edge = Axis::with_edge(unit, edge, below, rows);
                let at = with_edge.eighths(edge, rows);
                assert!(at.is_multiple_of(8) && at <= u64::from(below) * 8, "{edge} in {rows}: {with_edge:?}");
                assert!(at >= u64::from(below - (below / 6).max(1).min(below - 1)) * 8, "{edge} in {rows}");
                for axis in [fitted, with_edge] {
                    let ticks = ticks(axis, rows);
                    let about = format!("{edge} in {rows}: {ticks:?}");
                    assert_eq!(ticks[0], (0.0, 0), "{about}");
                    labelled += usize::from(ticks.len() > 1);
                    let Some(&(first, row)) = ticks.get(1) else { continue };
                    assert!(row >= 8 * if rows > 5 { 2 } else { 1 }, "{about}");
                    let digit = first / 10f64.powf(first.log10().floor());
                    assert!(
                        [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
                            .iter()
                            .any(|one| (digit - one).abs() < 1e-6),
                        "{about}"
                    );
                    for (count, (value, eighths)) in ticks.iter().enumerate() {
                        assert!((value - first * count as f64).abs() < 1e-6, "{about}");
                        let exact = value * unit.bytes() as f64 / axis.top.get() as f64 * f64::from(rows * 8);
                        assert!((exact - f64::from(*eighths)).abs() <= 2.5, "{about}");
                    }
                    let is_even = (0..).zip(&ticks).all(|(count, (_, eighths))| *eighths == row * count);
                    even += usize::from(is_even && ticks.len() > 1);
                }
            }
        }
        assert!(labelled > 900, "{labelled} of 960 have a label beside the zero");
        assert!(even * 5 > labelled * 4, "{even} of {labelled} stand evenly");
    }

    /// Reads labels and grid lines back from a frame: each label's figure in the axis's unit, and its height in eighths of a row.
    fn ticks(axis: Axis, rows: u16) -> Vec<(f64, u16)> {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 20, rows));
        let plot = Rect::new(Axis::WIDTH, 0, 15, rows);
        axis.draw(&theme, buf.area, plot, &mut buf);
        let mut ticks = Vec::new();
        for row in 0..rows {
            let y = rows - 1 - row;
            let label: String = (0..Axis::WIDTH).map(|x| buf[(x, y)].symbol()).collect();
            let line = match buf[(plot.x, y)].symbol() {
                GRID => Some(0),
                GRID_MIDDLE => Some(4),
                _ => None,
            };
            match label.trim() {
                "" => assert_eq!(line, None, "a line without a label"),
                label => {
                    assert_eq!(line.is_some(), row > 0, "a label has its line");
                    ticks.push((label.parse().unwrap(), row * 8 + line.unwrap_or(0)));
                }
            }
        }
        ticks
    }

    #[test]
    fn axes_have_as_many_ticks_as_their_rows_want_and_one_near_the_edge() {
        let (mut telling, mut all) = (0, 0);
        for rows in 2..=40_u16 {
            for tenths in (10..=1000).step_by(7) {
                let edge = Bytes(tenths * GIB / 10);
                let below = rows - u16::from(rows >= 4);
                let fitted = Axis::fitted(ByteUnit::GiB, edge, rows);
                for axis in [fitted, Axis::with_edge(ByteUnit::GiB, edge, below, rows)] {
                    let ticks = ticks(axis, rows);
                    let most = ticks.last().map_or(0.0, |(value, _)| *value);
                    let tells = ticks.len() >= fewest_ticks(rows) && most >= 0.75 * tenths as f64 / 10.0;
                    assert!(tells || rows < 12, "{edge} in {rows}: {ticks:?}");
                    (telling, all) = (telling + usize::from(tells), all + 1);
                }
            }
        }
        assert!(telling * 100 >= all * 97, "{telling} of {all}");
    }

    #[test]
    fn ticks_of_shares_stand_evenly_where_rows_allow_it() {
        let of = |largest, rows| Shares::new(largest, rows);
        assert_eq!(of(0.13, 8), Shares { top: 16, parts: 4 });
        assert_eq!(of(0.13, 9), Shares { top: 15, parts: 3 });
        assert_eq!(of(0.13, 10), Shares { top: 15, parts: 5 });
        assert_eq!(of(0.13, 2), Shares { top: 15, parts: 1 });
        assert_eq!(of(0.0, 8), Shares { top: 4, parts: 4 });
        assert_eq!(of(1.0, 10), Shares { top: 100, parts: 5 });
        for rows in 1..60 {
            for hundredths in 0..=100 {
                let largest = f64::from(hundredths) / 100.0;
                let Shares { top, parts } = of(largest, rows);
                assert!(top as f64 >= 100.0 * largest - 1e-9 && top.is_multiple_of(parts), "{rows}: {top} in {parts}");
                assert!(parts == 1 || u64::from(rows) >= 2 * parts, "{rows}: {top} in {parts}");
            }
        }
    }

    #[test]
    fn the_glyph_of_a_tick_stands_at_the_height_of_its_value() {
        for rows in 1..=60 {
            for tenths in [1, 7, 28, 73, 146, 228, 364, 1398] {
                let axis = new(Bytes(tenths * GIB / 10), rows);
                let ticks = ticks(axis, rows);
                if axis.unit == ByteUnit::GiB {
                    for (value, row) in &ticks {
                        // The glyph fills the lowest eighth of its cell, so it begins at eight times the row.
                        let exact = value * GIB as f64 / axis.top.get() as f64 * f64::from(rows) * 8.0;
                        assert!((exact - f64::from(*row)).abs() < 0.5, "{rows} rows: {value} at {row}: {axis:?}");
                    }
                }
                assert!(ticks.windows(2).all(|pair| rows < 4 || pair[1].1 >= pair[0].1 + 16), "labels have air");
                assert!((fewest_ticks(rows)..=MOST_TICKS).contains(&ticks.len()), "{rows} rows: {ticks:?}");
            }
        }
    }
}
