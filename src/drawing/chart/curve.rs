//! A thin line in dots of braille: two columns and four rows of dots to a cell.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::axis::Axis;
use super::shown::{CellContent, draw_over, end_of, is_braille};
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;

/// Dots of a cell: two columns of four, from the bottom.
const DOTS: [[u8; 4]; 2] = [[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]];
const TALL: u32 = Curve::ROWS as u32;
/// The highest dot of a cell.
const TOP_DOT: usize = Curve::ROWS as usize - 1;

/// A line, as the dots of each cell.
pub struct Curve {
    plot: Rect,
    cells: Vec<u8>,
    /// The shortest run of cell columns that is drawn.
    least: usize,
    /// True if its colour carries meaning.
    own: bool,
}

impl Curve {
    /// Columns of dots in a cell.
    pub const COLUMNS: u16 = 2;
    /// Rows of dots in a cell.
    pub const ROWS: u16 = 4;

    /// A line through a span of dot rows for each column of dots, from the left: its lowest and its highest dot,
    /// counted from the bottom. Neighbouring spans are connected; where there is no span the line is interrupted.
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
        Self { plot, cells, least: 1, own: false }
    }

    /// A line through values on an axis, one for each column of dots.
    pub fn of_bytes(plot: Rect, axis: Axis, values: impl IntoIterator<Item = Option<Bytes>>) -> Self {
        let dot = |bytes: Bytes| (axis.eighths(bytes, plot.height).saturating_sub(1) / 2) as u32;
        Self::through(plot, values.into_iter().map(|value| value.map(|bytes| (dot(bytes), dot(bytes)))))
    }

    /// A line through `values`, shown only where they differ from the curve `drawn` at the same columns: by more than
    /// an eighth of a row, compared with all values within a cell on either side, over two cells or more. So a curve
    /// has no second line beside it, not even if it came a column later. Gaps of a few cells, as at a spike, are
    /// filled, and where the line begins or ends with a rise or fall of more than a row, that slope is included. Values
    /// above the top interrupt the line.
    pub fn apart(plot: Rect, axis: Axis, values: &[Bytes], drawn: &[Bytes]) -> Self {
        const SIDE: usize = Curve::COLUMNS as usize;
        let eighths = |bytes: &Bytes| axis.eighths(*bytes, plot.height);
        let drawn: Vec<u64> = drawn.iter().map(eighths).collect();
        let is_apart = |(x, value): (usize, &Bytes)| {
            let beside = drawn.get(x.saturating_sub(SIDE)..(x + SIDE + 1).min(drawn.len())).unwrap_or_default();
            let value = eighths(value);
            let (below, above) = (beside.iter().min(), beside.iter().max());
            below.is_none_or(|below| value + 1 < *below) || above.is_none_or(|above| value > above + 1)
        };
        let mut apart: Vec<bool> = values.iter().enumerate().map(is_apart).collect();
        for run in apart.chunk_by_mut(|one, other| one == other).filter(|run| run.len() < 2 * SIDE) {
            run.fill(false);
        }
        let first = apart.iter().position(|apart| *apart).unwrap_or(apart.len());
        let last = apart.iter().rposition(|apart| *apart).unwrap_or(first);
        let between = apart.get_mut(first..last).unwrap_or_default();
        for gap in between.chunk_by_mut(|one, other| one == other).filter(|run| run.len() <= 4 * SIDE) {
            gap.fill(true);
        }
        let steep = |x: usize| eighths(&values[x]).abs_diff(eighths(&values[x + 1])) > 8;
        let ends: Vec<usize> =
            (0..apart.len().saturating_sub(1)).filter(|x| apart[*x] != apart[x + 1] && steep(*x)).collect();
        for x in ends {
            (apart[x], apart[x + 1]) = (true, true);
        }
        let seen = |(value, apart): (&Bytes, bool)| (apart && *value <= axis.top).then_some(*value);
        Self { least: 4, ..Self::of_bytes(plot, axis, values.iter().zip(apart).map(seen)) }
    }

    /// Gives the line a colour with a meaning, which it keeps on every ground.
    pub fn in_its_colour(self) -> Self {
        Self { own: true, ..self }
    }

    /// True if it has no dots.
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(|dots| *dots == 0)
    }

    /// The row of the highest dot in a column of cells, counted from the plot's top.
    pub fn row_at(&self, x: u16) -> Option<u16> {
        (0..self.plot.height).find(|y| self.dots(x, *y) != 0)
    }

    fn dots(&self, x: u16, y: u16) -> u8 {
        self.cells.get(usize::from(y) * usize::from(self.plot.width) + usize::from(x)).copied().unwrap_or(0)
    }

    /// Tells for each column of cells whether the line is drawn there.
    fn seen(&self, theme: &Theme, buf: &Buffer) -> Vec<bool> {
        let in_cell = |x: u16, y: u16| {
            let cell = buf.cell((self.plot.x + x, self.plot.y + y)).filter(|_| self.dots(x, y) != 0);
            cell.is_some_and(|cell| {
                let gives_way = CellContent::of(cell, theme) == CellContent::Shared && !is_braille(cell.symbol());
                !gives_way || self.moved(x, y, theme, buf).is_some()
            })
        };
        let mut seen: Vec<bool> =
            (0..self.plot.width).map(|x| self.least <= 1 || (0..self.plot.height).any(|y| in_cell(x, y))).collect();
        for run in seen.chunk_by_mut(|one, other| one == other).filter(|run| run.len() < self.least) {
            run.fill(false);
        }
        // If less than three fifths of the line are seen, its pieces say nothing.
        let of = (0..self.plot.width).filter(|x| (0..self.plot.height).any(|y| self.dots(*x, y) != 0)).count();
        if self.least > 1 && 5 * seen.iter().filter(|seen| **seen).count() < 3 * of {
            seen.fill(false);
        }
        seen
    }

    /// Where the dots of a cell go if an area ends in the cell: to the row above if the line is at least as high as
    /// that end, otherwise to the row below. They move only to the nearest dot there, because farther away the line
    /// would seem to be elsewhere, and only to a cell of one colour.
    fn moved(&self, x: u16, y: u16, theme: &Theme, buf: &Buffer) -> Option<(u16, u8)> {
        let at = |y: u16| buf.cell((self.plot.x + x, self.plot.y + y));
        let cell = at(y).filter(|cell| CellContent::of(cell, theme) == CellContent::Shared)?;
        let end = end_of(cell)?;
        let dots = self.dots(x, y);
        // A dot takes two eighths of a cell.
        let highest =
            (0..Self::ROWS).rev().find(|dot| DOTS.iter().any(|column| dots & column[usize::from(*dot)] != 0))?;
        let (to, dots) = match 2 * usize::from(highest) + 1 >= end {
            true if usize::from(highest) == TOP_DOT => (y.checked_sub(1)?, [0; 2]),
            false if highest == 0 => (y + 1, [TOP_DOT; 2]),
            _ => return None,
        };
        let dots = DOTS.iter().zip(dots).filter(|(column, _)| column.iter().any(|dot| self.dots(x, y) & dot != 0));
        let dots = dots.fold(0, |all, (column, dot)| all | column[dot]);
        // Beyond the end of another area, the dots would be on the wrong side of that end.
        let side = if to < y { cell.bg } else { cell.fg };
        let is_free = to < self.plot.height
            && at(to).is_some_and(|cell| match CellContent::of(cell, theme) {
                CellContent::Nothing => theme.is_ground(side),
                CellContent::Whole(color) => color == side,
                CellContent::Shared => is_braille(cell.symbol()),
            });
        is_free.then_some((to, dots))
    }

    /// Draws the line over the areas, which stay its background. If an area ends within a cell, the line moves to its
    /// proper side, or is left out there. Returns whether anything of it is drawn.
    pub fn draw(&self, token: Token, theme: &Theme, buf: &mut Buffer) -> bool {
        let seen = self.seen(theme, buf);
        for y in 0..self.plot.height {
            for x in (0..self.plot.width).filter(|x| seen[usize::from(*x)]) {
                let dots = self.dots(x, y);
                if dots == 0 {
                    continue;
                }
                let (y, dots) = self.moved(x, y, theme, buf).unwrap_or((y, dots));
                let Some(cell) = buf.cell_mut((self.plot.x + x, self.plot.y + y)) else { continue };
                let other = cell.symbol().chars().next().filter(|_| is_braille(cell.symbol()));
                let all = u32::from(dots) | other.map_or(0, |other| other as u32 & 0xff);
                let Some(symbol) = char::from_u32(0x2800 + all) else { continue };
                if other.is_some() {
                    // Crossing lines share the cell, in the colour of the later one.
                    cell.set_char(symbol).set_fg(theme.color(token));
                } else {
                    draw_over(cell, symbol.encode_utf8(&mut [0; 4]), token, theme);
                    if self.own && is_braille(cell.symbol()) {
                        cell.set_fg(theme.color(token));
                    }
                }
            }
        }
        seen.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::ByteUnit;
    use crate::theme::{ColorTier, ThemeCatalog};

    fn drawn(spans: &[Option<(u32, u32)>]) -> [String; 2] {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
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

    /// The columns of cells in which one step's line is drawn over another's.
    fn beside(now: &[u64], before: &[u64]) -> String {
        let plot = Rect::new(0, 0, 12, 4);
        let dots = |cells: &[u64]| cells.iter().flat_map(|bytes| [Bytes(*bytes); 2]).collect::<Vec<_>>();
        let line = Curve::apart(plot, Axis::fitted(ByteUnit::KiB, Bytes(320), 4), &dots(before), &dots(now));
        assert_eq!(line.is_empty(), (0..12).all(|x| line.row_at(x).is_none()));
        (0..12).map(|x| if line.row_at(x).is_some() { '#' } else { '.' }).collect()
    }

    #[test]
    fn a_line_beside_stands_where_it_differs_and_nowhere_else() {
        let now = [10, 20, 40, 80, 300, 250, 200, 150, 100, 50, 20, 10];
        assert_eq!(beside(&now, &now), "............");
        // The same values a column later, or an eighth of a row higher.
        let mut later = now;
        later.rotate_right(1);
        assert_eq!(beside(&now[..11], &later[..11]), "............");
        assert_eq!(beside(&now, &now.map(|bytes| bytes + 10)), "............");
        // A single column is noise; a longer difference is not.
        let at = |from: usize, to: usize| {
            let mut before = now;
            before[from..to].fill(200);
            beside(&now, &before)
        };
        assert_eq!((at(0, 1), at(10, 11)), ("............".to_owned(), "............".to_owned()));
        // The line includes steep rises and falls from the curve that is drawn.
        assert_eq!((at(0, 3), at(9, 12)), ("####........".to_owned(), "........####".to_owned()));
        let slow = [300, 280, 260, 240, 220, 200, 190, 180, 170, 160, 150, 150];
        assert_eq!(beside(&[160; 12], &slow), "########....");
        // It goes on at a spike.
        let mut spike = [100; 12];
        spike[6] = 300;
        assert_eq!(beside(&spike, &[220; 12]), "############");
        // Values above the top are cut.
        assert_eq!(beside(&[100; 12], &[90, 90, 90, 250, 250, 250, 400, 400, 250, 250, 90, 90]), "..####..###.");
    }

    #[test]
    fn a_line_changes_no_area() {
        use crate::chart::{Ink, Stack, areas};
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let inks = [Token::Parameters, Token::Activations, Token::Temporaries].map(|token| Ink { token, fill: "█" });
        let mut seed = 7u64;
        let mut random = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for rows in [2, 5, 9, 20] {
            let plot = Rect::new(0, 0, 40, rows);
            let axis = Axis::new(ByteUnit::KiB, Bytes(1000), rows);
            let mut stack = |_| {
                let mut stack = Stack::default();
                inks.into_iter().for_each(|ink| stack.add(Bytes(random(330)), ink));
                stack
            };
            let mut buf = Buffer::empty(plot);
            areas(&(0..40).map(&mut stack).collect::<Vec<_>>(), axis.top, &theme, plot, &mut buf);
            let before = buf.clone();
            let values: Vec<Bytes> = (0..80).map(|_| Bytes(random(1000))).collect();
            let all = Curve::of_bytes(plot, axis, values.iter().map(|value| Some(*value)));
            // Noise in few rows leaves only pieces, which a line beside another omits.
            let apart = Curve::apart(plot, axis, &values, &[Bytes::ZERO; 80]);
            for (line, least) in [(all, 10), (apart, if rows > 2 { 10 } else { 0 })] {
                buf.clone_from(&before);
                line.draw(Token::Ghost, &theme, &mut buf);
                let mut dotted = 0;
                for position in plot.positions().filter(|position| buf[*position] != before[*position]) {
                    assert!(is_braille(buf[position].symbol()), "{position:?}");
                    dotted += 1;
                    let is_ground = |color| CellContent::of(&before[position], &theme) == CellContent::Whole(color);
                    let free = CellContent::of(&before[position], &theme) == CellContent::Nothing;
                    assert!(free || is_ground(buf[position].bg), "{position:?}: {:?}", before[position]);
                }
                assert!(dotted >= least, "{rows} rows: {dotted}");
            }
        }
    }

    /// A line that an area's end cuts is drawn on its own side of that end.
    #[test]
    fn a_line_that_ends_with_an_area_in_a_cell_stands_on_its_side_of_it() {
        use crate::chart::{Ink, Stack, areas};
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        for (height, line, row) in [(20u64, 23u64, 0), (20, 18, 2)] {
            let plot = Rect::new(0, 0, 4, 4);
            let mut stack = Stack::default();
            stack.add(Bytes(height), Ink { token: Token::Reserved, fill: "█" });
            let mut buf = Buffer::empty(plot);
            areas(&vec![stack; 4], Bytes(32), &theme, plot, &mut buf);
            let before = buf.clone();
            let axis = Axis::fitted(ByteUnit::KiB, Bytes(32), 4);
            Curve::of_bytes(plot, axis, [Some(Bytes(line)); 8]).draw(Token::Ghost, &theme, &mut buf);
            for position in plot.positions() {
                assert_eq!(
                    buf[position] != before[position],
                    position.y == row,
                    "{line} beside {height}: {position:?}"
                );
            }
        }
    }

    #[test]
    fn a_value_is_drawn_within_an_eighth_of_its_height() {
        let plot = Rect::new(0, 0, 1, 6);
        let axis = Axis::new(ByteUnit::KiB, Bytes(1000), plot.height);
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
