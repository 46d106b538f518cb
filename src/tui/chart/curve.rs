//! A thin line in dots of braille: two columns and four rows of dots to a cell.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::axis::Axis;
use super::shown::{draw_over, is_braille};
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// Dots of a cell: two columns of four, from the bottom.
const DOTS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];
const TALL: u32 = Curve::ROWS as u32;

/// A line, cell by cell.
pub(crate) struct Curve {
    plot: Rect,
    cells: Vec<u8>,
}

impl Curve {
    /// Columns of dots in a cell.
    pub const COLUMNS: u16 = 2;
    /// Rows of dots in a cell.
    pub const ROWS: u16 = 4;

    /// Through what spans each column of dots takes, from the left: its lowest and its highest dot, counted from the bottom.
    /// Neighbours are joined; where there is no span the line is interrupted.
    pub fn through(plot: Rect, spans: impl IntoIterator<Item = Option<(u32, u32)>>) -> Self {
        let width = usize::from(plot.width);
        let mut cells = vec![0u8; width * usize::from(plot.height)];
        let highest = (u32::from(plot.height) * TALL).saturating_sub(1);
        let mut before: Option<(u32, u32)> = None;
        for (x, span) in spans.into_iter().take(width * usize::from(Self::COLUMNS)).enumerate() {
            let span = span.map(|(low, high)| (low.min(highest), high.min(highest)));
            let drawn = match (span, before) {
                (Some((low, high)), Some((_, under))) if under < low => Some((under + 1, high)),
                (Some((low, high)), Some((over, _))) if over > high => Some((low, over - 1)),
                _ => span,
            };
            before = span;
            let Some((low, high)) = drawn.filter(|_| !cells.is_empty()) else { continue };
            for dot in low..=high {
                let row = usize::from(plot.height) - 1 - (dot / TALL) as usize;
                cells[row * width + x / 2] |= DOTS[x % 2][(dot % TALL) as usize];
            }
        }
        Self { plot, cells }
    }

    /// Through values, one for each column of dots, on an axis.
    pub fn of_bytes(plot: Rect, axis: Axis, values: impl IntoIterator<Item = Option<Bytes>>) -> Self {
        let dot = |bytes: Bytes| (axis.eighths(bytes, plot.height).saturating_sub(1) / 2) as u32;
        Self::through(plot, values.into_iter().map(|value| value.map(|bytes| (dot(bytes), dot(bytes)))))
    }

    /// The row of the plot, from the top, of the highest dot in a column of cells.
    pub fn row_at(&self, x: u16) -> Option<u16> {
        (0..self.plot.height).find(|y| self.dots(x, *y) != 0)
    }

    fn dots(&self, x: u16, y: u16) -> u8 {
        self.cells.get(usize::from(y) * usize::from(self.plot.width) + usize::from(x)).copied().unwrap_or(0)
    }

    /// Draws it over what is there: areas stay its ground, and where one of them ends the line gives way.
    pub fn draw(&self, token: Token, theme: &Theme, buf: &mut Buffer) {
        for y in 0..self.plot.height {
            for x in 0..self.plot.width {
                let dots = self.dots(x, y);
                let Some(cell) = buf.cell_mut((self.plot.x + x, self.plot.y + y)).filter(|_| dots != 0) else {
                    continue;
                };
                let other = cell.symbol().chars().next().filter(|_| is_braille(cell.symbol()));
                let all = u32::from(dots) | other.map_or(0, |other| other as u32 & 0xff);
                let Some(symbol) = char::from_u32(0x2800 + all) else { continue };
                if other.is_some() {
                    // Lines that cross share the cell, in the colour of the later one.
                    cell.set_char(symbol).set_fg(theme.color(token));
                } else {
                    draw_over(cell, symbol.encode_utf8(&mut [0; 4]), token, theme);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::figures::Unit;
    use crate::tui::theme::{Catalog, ColorTier};

    fn drawn(spans: &[Option<(u32, u32)>]) -> [String; 2] {
        let (theme, _) = Catalog::default().load("dark", ColorTier::True).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 3, 2));
        Curve::through(buf.area, spans.iter().copied()).draw(Token::Ghost, &theme, &mut buf);
        [0, 1].map(|y| (0..3).map(|x| buf[(x, y)].symbol()).collect())
    }

    #[test]
    fn dots_are_joined_and_gaps_stay() {
        let rows = [" ⡏ ", "⣀⠇ "].map(str::to_owned);
        assert_eq!(drawn(&[Some((0, 0)), Some((0, 0)), Some((7, 7)), Some((7, 7))]), rows);
        let rows = ["⠁ ⠈", "⡀  "].map(str::to_owned);
        assert_eq!(drawn(&[Some((0, 0)), None, None, None, None, Some((7, 9))])[1], rows[1]);
        assert_eq!(drawn(&[Some((7, 7)), None, None, None, None, Some((7, 9))])[0], rows[0]);
    }

    #[test]
    fn a_value_is_drawn_within_an_eighth_of_its_height() {
        let plot = Rect::new(0, 0, 1, 6);
        let axis = Axis::new(Unit::KiB, Bytes(1000), plot.height);
        for bytes in (0..=1000).map(Bytes) {
            let curve = Curve::of_bytes(plot, axis, [Some(bytes)]);
            let row = curve.row_at(0).unwrap();
            let dot = (0..4).find(|dot| curve.dots(0, row) & DOTS[0][*dot] != 0).unwrap();
            let middle = f64::from((plot.height - 1 - row) * 8) + dot as f64 * 2.0 + 1.0;
            let exact = bytes.get() as f64 * f64::from(plot.height) * 8.0 / axis.top.get() as f64;
            assert!((middle - exact).abs() <= 1.5, "{bytes:?}: {middle} for {exact}");
        }
    }
}
