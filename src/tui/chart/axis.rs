//! An axis of bytes: round ticks, each at the height of its value.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::shown::GRID;
use crate::tui::figures::Unit;
use crate::tui::pane::{Frame, put_at, span};
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Where the columns of a chart are, with room for labels at the left and `below` rows.
pub(crate) fn plot_in(inner: Rect, kind: Frame, below: u16) -> Rect {
    let margin = u16::from(kind == Frame::Box);
    let below = if inner.height >= 3 { below } else { 0 };
    Rect {
        x: inner.x + Axis::WIDTH.min(inner.width),
        width: inner.width.saturating_sub(Axis::WIDTH + margin),
        height: inner.height.saturating_sub(below),
        ..inner
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

    /// The lowest axis that holds `largest` in `rows` rows, with four ticks or more where there is room for them, at round figures
    /// and on whole rows.
    pub fn new(largest: Bytes, rows: u16) -> Self {
        let unit = Unit::for_largest(largest).bytes();
        let largest = largest.get().max(1);
        let rows = rows.max(1);
        let least = rows.div_ceil(8).max(if rows >= 4 { 2 } else { 1 });
        let most = (rows / 4).max(least + 1).min(rows.saturating_sub(1)).max(least);
        let axis = |rows_per_tick: u16| {
            let tick = round_up(largest as f64 * f64::from(rows_per_tick) / f64::from(rows), unit);
            let top = (u128::from(tick) * u128::from(rows)).div_ceil(u128::from(rows_per_tick));
            Self { top: Bytes(u64::try_from(top).unwrap_or(u64::MAX)), tick, rows_per_tick }
        };
        (least..=most).map(axis).min_by_key(|axis| axis.top).unwrap_or_else(|| axis(1))
    }

    /// An axis on which `largest` fills `filled` of `rows` rows to the edge: of a low chart every part of its top row can be seen. Its
    /// ticks are on whole rows, and seldom round.
    pub fn fitted(largest: Bytes, filled: u16, rows: u16) -> Self {
        let (largest, filled, rows) = (largest.get().max(1), filled.clamp(1, rows.max(1)), rows.max(1));
        let of_rows = |count: u16| {
            let bytes = (u128::from(largest) * u128::from(count)).div_ceil(u128::from(filled));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let rows_per_tick = rows.div_ceil(4);
        Self { top: Bytes(of_rows(rows)), tick: of_rows(rows_per_tick), rows_per_tick }
    }

    /// How high `bytes` stand in a chart of so many rows, in eighths of a row.
    pub fn eighths(self, bytes: Bytes, rows: u16) -> u64 {
        let full = u128::from(rows) * 8;
        let top = u128::from(self.top.get().max(1));
        let scaled = (u128::from(bytes.get()) * full + top / 2) / top;
        u64::try_from(scaled.min(full)).unwrap_or(u64::MAX)
    }

    /// The row from the bottom in which `bytes` end.
    pub fn row(self, bytes: Bytes, rows: u16) -> u16 {
        let row = self.eighths(bytes, rows).saturating_sub(1) / 8;
        u16::try_from(row).unwrap_or(u16::MAX).min(rows.saturating_sub(1))
    }

    /// Draws labels left of `plot`, inside `inner`, and a faint line at each tick: at the lower edge of the row that begins there.
    pub fn draw(self, theme: &Theme, inner: Rect, plot: Rect, buf: &mut Buffer) {
        let unit = Unit::for_largest(self.top);
        for (tick, row) in (0..plot.height).step_by(usize::from(self.rows_per_tick.max(1))).enumerate() {
            let y = plot.bottom() - 1 - row;
            let scaled = self.tick as f64 * tick as f64 / unit.bytes() as f64;
            let decimals = [0, 1, 2].into_iter().find(|decimals| {
                let power = 10f64.powi(*decimals);
                ((scaled * power).round() / power - scaled).abs() < 1e-6 * scaled.max(1e-3)
            });
            // A figure that is not round has as many digits as there is room for.
            let most = if scaled < 10.0 { 2 } else { i32::from(scaled < 100.0) };
            let label = format!("{scaled:.*}", decimals.unwrap_or(2).min(most) as usize);
            put_at(inner, 0, y - inner.y, vec![span(theme, Token::Dim, format!("{label:>4}"))], buf);
            if row > 0 {
                let style = theme.style(Token::Border);
                for x in plot.left()..plot.right() {
                    // Every second cell: a line that is not taken for an area.
                    let symbol = if (x - plot.left()).is_multiple_of(2) { GRID } else { " " };
                    buf[(x, y)].set_symbol(symbol).set_style(style);
                }
            }
        }
    }
}

/// The smallest round number of bytes that is at least `wanted`: in `unit`, 1, 2 or 5 times a power of ten, or a power of two.
fn round_up(wanted: f64, unit: u64) -> u64 {
    let scaled = (wanted / unit as f64).max(1e-3);
    let power = 10f64.powf(scaled.log10().floor());
    let decimal = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= scaled).unwrap_or(10.0) * power;
    let binary = 2f64.powf(scaled.log2().ceil());
    // A fraction is read in tenths.
    let round = if scaled > 1.0 { decimal.min(binary) } else { decimal };
    ((round * unit as f64).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Buffer;

    use super::*;
    use crate::tui::theme::{Catalog, ColorTier};
    use crate::units::{GIB, MIB};

    #[test]
    fn axes_hold_what_they_must_and_little_more() {
        for rows in [1, 2, 3, 4, 7, 8, 10, 12, 16, 30, 38] {
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

    #[test]
    fn what_is_fitted_ends_on_the_edge_of_a_row() {
        for (filled, rows) in [(1, 1), (2, 2), (2, 3), (3, 3), (4, 5)] {
            for gib in [1, 6, 25] {
                let axis = Axis::fitted(Bytes(gib * GIB), filled, rows);
                assert_eq!(axis.eighths(Bytes(gib * GIB), rows), u64::from(filled) * 8, "{gib} in {filled} of {rows}");
                let ticks = ticks(axis, rows);
                assert_eq!(ticks[0], (0.0, 0));
                for (value, row) in ticks {
                    let exact = gib as f64 * f64::from(row) / f64::from(filled);
                    assert!((value - exact).abs() < 0.006 * exact.max(1.0), "{value} for {exact}");
                }
            }
        }
    }

    /// Labels and grid lines as they are read back from a frame: a label's figure in GiB, and its row from the bottom.
    fn ticks(axis: Axis, rows: u16) -> Vec<(f64, u16)> {
        let (theme, _) = Catalog::default().load("dark", ColorTier::True).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 20, rows));
        let plot = Rect::new(Axis::WIDTH, 0, 15, rows);
        axis.draw(&theme, buf.area, plot, &mut buf);
        let mut ticks = Vec::new();
        for row in 0..rows {
            let y = rows - 1 - row;
            let label: String = (0..Axis::WIDTH).map(|x| buf[(x, y)].symbol()).collect();
            let line = buf[(plot.x, y)].symbol() == GRID;
            match label.trim() {
                "" => assert!(!line, "a line without a label"),
                label => {
                    assert_eq!(line, row > 0, "a label has its line");
                    ticks.push((label.parse().unwrap(), row));
                }
            }
        }
        ticks
    }

    #[test]
    fn the_glyph_of_a_tick_stands_at_the_height_of_its_value() {
        for rows in 1..=60 {
            for tenths in [1, 7, 28, 73, 146, 228, 364, 1398] {
                let axis = Axis::new(Bytes(tenths * GIB / 10), rows);
                let ticks = ticks(axis, rows);
                if Unit::for_largest(axis.top) == Unit::GiB {
                    for (value, row) in &ticks {
                        // The glyph fills the lowest eighth of its cell: it begins at eight times the row.
                        let exact = value * GIB as f64 / axis.top.get() as f64 * f64::from(rows) * 8.0;
                        assert!((exact - f64::from(row * 8)).abs() < 0.5, "{rows} rows: {value} at {row}: {axis:?}");
                    }
                }
                assert!(ticks.windows(2).all(|pair| rows < 4 || pair[1].1 >= pair[0].1 + 2), "labels have air");
                let fewest = match rows {
                    0..2 => 1,
                    2..7 => 2,
                    7..16 => 3,
                    _ => 4,
                };
                assert!((fewest..=9).contains(&ticks.len()), "{rows} rows: {ticks:?}");
            }
        }
    }
}
