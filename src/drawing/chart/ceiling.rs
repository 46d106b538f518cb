//! The line of what memory can't exceed, with its name: the limit, or else the card's memory.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::axis::Axis;
use super::shown::{CellContent, draw_over};
use crate::figures::{self, ByteUnit};
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;

/// From this many rows on there is room for a name above the line.
const NAMED: u16 = 4;
/// From this many rows on there is room for a note above the highest area, and for the mark of a moment.
const NOTED: u16 = 8;
const MARKED: u16 = 6;

/// A height that memory can't exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    bytes: Bytes,
    name: &'static str,
    /// The number of steps until memory reaches it, if memory climbs.
    full_in: Option<u64>,
    token: Token,
}

impl Ceiling {
    /// The limit if one is set, otherwise the card's memory if it is known.
    pub fn new(limit: Option<Bytes>, card: Option<Bytes>) -> Option<Self> {
        let of = |name| move |bytes| Self { bytes, name, full_in: None, token: Token::Limit };
        limit.map(of("limit")).or_else(|| card.map(of("card"))).filter(|ceiling| ceiling.bytes > Bytes::ZERO)
    }

    /// A height that does not bound memory: a goal, or the size of a request.
    pub const fn spoken_of(name: &'static str, bytes: Bytes, token: Token) -> Self {
        Self { bytes, name, full_in: None, token }
    }

    /// Adds the number of steps until memory reaches it, if memory climbs.
    #[must_use]
    pub const fn full_in(self, steps: Option<u64>) -> Self {
        Self { full_in: steps, ..self }
    }

    /// The height.
    pub const fn height(self) -> Bytes {
        self.bytes
    }

    /// Its name and height, and when memory reaches it.
    fn words(self) -> String {
        let unit = ByteUnit::for_largest(self.bytes);
        let value = self.bytes.get() as f64 / unit.bytes() as f64;
        // Goals and requests are given with two decimals.
        let figure = if self.token == Token::Limit { format!("{value:.1}") } else { format!("{value:.2}") };
        let figure = figure.trim_end_matches('0').trim_end_matches('.');
        let steps =
            self.full_in.map_or_else(String::new, |steps| format!(", full in {}", figures::counted(steps, "step")));
        format!("{} {} {}{steps}", self.name, figure, unit.name())
    }

    /// True if it is near enough to be part of the scale.
    fn is_near(self, largest: Bytes) -> bool {
        u128::from(self.bytes.get()) * 2 <= u128::from(largest.get()) * 3
    }

    /// The axis of a chart whose highest value is `largest`. A near ceiling lies on the upper edge of a row, so that
    /// its line never shares a cell with an area that ends below it. Its name is in the row above.
    pub fn axis(ceiling: Option<Self>, unit: ByteUnit, largest: Bytes, rows: u16) -> Axis {
        if let Some(near) = ceiling.filter(|ceiling| ceiling.is_near(largest)) {
            let most = if rows >= NAMED { rows - 1 } else { rows };
            // A value that exceeds the top by less than an eighth of a row is cut.
            let eighths = u128::from(near.bytes.get()) * (8 * u128::from(rows) + 1) / u128::from(largest.get().max(1));
            let below = u16::try_from(eighths / 8).unwrap_or(most).clamp(1, most.max(1));
            return Axis::with_edge(unit, near.bytes, below, rows);
        }
        // One more row for the mark of a moment.
        let room = if rows >= MARKED { largest.get() / u64::from(rows - 1) } else { 0 };
        Axis::new(unit, Bytes(largest.get().saturating_add(room)), rows)
    }

    /// Like [`Ceiling::axis`], for a low chart: `largest` fills its rows to the top, unless the ceiling is near and has
    /// its own row.
    pub fn fitted(ceiling: Option<Self>, unit: ByteUnit, largest: Bytes, rows: u16) -> Axis {
        match ceiling {
            Some(near) if near.is_near(largest) => Self::axis(ceiling, unit, largest, rows),
            _ if rows >= NOTED => Self::axis(ceiling, unit, largest, rows),
            _ => Axis::fitted(unit, largest, rows),
        }
    }

    /// Draws the ceiling with its name over the areas of a chart, as a dashed line to the right edge, if it is near
    /// enough to be in the chart. `height` is the ceiling's height at a column, or `None` if there was none. Returns
    /// whether the ceiling is in the chart.
    pub fn draw(
        self,
        largest: Bytes,
        axis: Axis,
        height: impl Fn(u16) -> Option<Bytes>,
        theme: &Theme,
        plot: Rect,
        buf: &mut Buffer,
    ) -> bool {
        let plot = plot.intersection(buf.area);
        if plot.is_empty() {
            return false;
        }
        for x in 0..plot.width {
            if let Some(height) = height(x).filter(|height| *height <= axis.top) {
                self.dash(axis, height, theme, plot, x, buf);
            }
        }
        if !self.is_near(largest) || self.bytes > axis.top {
            return false;
        }
        let above = line(axis, self.bytes, plot.height).0;
        let row = plot.height - 1 - above;
        Axis::clear_beside(above, theme, plot, buf);
        write(&format!(" {}", self.words()), self.token, [Some(row), row.checked_sub(1)], theme, plot, buf);
        true
    }

    /// Draws a dash of the line in every second cell, in the quarter of the row where the height ends.
    fn dash(self, axis: Axis, bytes: Bytes, theme: &Theme, plot: Rect, x: u16, buf: &mut Buffer) {
        if !x.is_multiple_of(2) {
            return;
        }
        let (row, quarter) = line(axis, bytes, plot.height);
        let y = plot.bottom() - 1 - row;
        draw_over(&mut buf[(plot.x + x, y)], DASHES[quarter], self.token, theme);
    }

    /// Notes at the top of the chart that the ceiling is far above.
    pub fn note(self, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let plot = plot.intersection(buf.area);
        if !plot.is_empty() {
            let note = format!(" {} ↑", self.words());
            write(&note, Token::Dim, [Some(0), (plot.height > 2).then_some(1)], theme, plot, buf);
        }
    }
}

/// The dots of a line, by the quarter of the cell in which they lie.
const DASHES: [&str; 4] = ["⣀", "⠤", "⠒", "⠉"];

/// The row of a line at this height, counted from the bottom, and the quarter of the row.
fn line(axis: Axis, bytes: Bytes, rows: u16) -> (u16, usize) {
    let eighths = axis.eighths(bytes, rows);
    match u16::try_from(eighths / 8).unwrap_or(u16::MAX) {
        row if row < rows => (row, eighths as usize % 8 / 2),
        _ => (rows - 1, 3),
    }
}

/// Writes a word into the first of two rows that has room for it, as far to the right as it covers nothing. If a
/// ceiling's line runs through areas from edge to edge, its name covers the areas' right end: a line without a name
/// says nothing.
fn write(word: &str, token: Token, rows: [Option<u16>; 2], theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let width = u16::try_from(word.width()).unwrap_or(u16::MAX);
    let Some(last) = plot.width.checked_sub(width) else { return };
    for y in rows.into_iter().flatten().map(|row| plot.y + row) {
        let is_free = |x: u16| {
            let cell = &buf[(plot.x + x, y)];
            CellContent::of(cell, theme) == CellContent::Nothing || is_dash(cell, theme)
        };
        // Leave a blank before whatever follows the word.
        let place = (0..=last).rev().find(|x| (*x..(x + width + 1).min(plot.width)).all(is_free));
        if let Some(x) = place {
            // A lone dash behind the word would seem to connect it to whatever follows.
            let behind = x + width;
            let is_held = behind + 1 < plot.width && !is_free(behind + 1);
            buf.set_string(plot.x + x, y, word, theme.style(token));
            if is_held && is_dash(&buf[(plot.x + behind, y)], theme) {
                buf[(plot.x + behind, y)].set_symbol(" ");
            }
            return;
        }
    }
    // Never where an area ends: the word would seem to name that end.
    let is_inside = |row: u16| {
        row > 0
            && (last..plot.width)
                .all(|x| CellContent::of(&buf[(plot.x + x, plot.y + row - 1)], theme) != CellContent::Nothing)
    };
    if let [Some(row), _] = rows
        && token != Token::Dim
        && is_inside(row)
    {
        // Few colours are readable on every area, so the name gets the surface's colour as background, like a sign in
        // front of the areas.
        let sign = format!("{word} ");
        let x = plot.x + last.saturating_sub(1);
        let style = Style::new().bg(theme.color(Token::Surface)).patch(theme.style(token));
        for (x, letter) in (x..plot.right()).zip(sign.chars()) {
            let cell = &mut buf[(x, plot.y + row)];
            cell.reset();
            cell.set_char(letter).set_style(style);
        }
    }
}

/// True for a dash of a ceiling, a goal or an answer.
fn is_dash(cell: &Cell, theme: &Theme) -> bool {
    let tokens = [Token::Limit, Token::Ok, Token::Warn];
    DASHES.contains(&cell.symbol()) && tokens.into_iter().any(|token| cell.fg == theme.color(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Ink, Stack, areas};
    use crate::theme::{ColorTier, ThemeCatalog};
    use vramlab_allocator::units::GIB;

    fn drawn(limit: Option<u64>, card: Option<u64>, peak: u64, rows: u16) -> Vec<String> {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 40, rows));
        let gib = |gib: u64| Bytes(gib * GIB);
        let ceiling = Ceiling::new(limit.map(gib), card.map(gib)).unwrap();
        let axis = Ceiling::axis(Some(ceiling), ByteUnit::GiB, gib(peak), rows);
        let mut stack = Stack::default();
        stack.add(gib(peak), Ink { token: Token::Allocated, fill: "█" });
        areas(&vec![stack; 40], axis.top, &theme, buf.area, &mut buf);
        if !ceiling.draw(gib(peak), axis, |_| Some(ceiling.bytes), &theme, buf.area, &mut buf) {
            ceiling.note(&theme, buf.area, &mut buf);
        }
        (0..rows).map(|y| (0..40).map(|x| buf[(x, y)].symbol()).collect()).collect()
    }

    #[test]
    fn a_near_ceiling_is_a_named_line_and_a_far_one_a_note() {
        for rows in 4..=40 {
            let text = drawn(Some(8), Some(140), 7, rows).join("\n");
            assert!(text.contains("limit 8 GiB"), "{rows}: {text}");
            assert!(!text.contains("card") && !text.contains('↑'), "the limit is lower: {text}");
            let text = drawn(None, Some(10), 9, rows).join("\n");
            assert!(text.contains("card 10 GiB") && !text.contains('↑'), "{rows}: {text}");
            let text = drawn(None, Some(140), 20, rows).join("\n");
            assert!(text.contains("card 140 GiB ↑") || rows < NOTED, "{rows}: {text}");
        }
    }

    #[test]
    fn a_line_through_areas_has_its_name_on_them_and_takes_no_end_of_one() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        for (height, named) in [(8, true), (6, true), (4, false)] {
            let mut buf = Buffer::empty(Rect::new(0, 0, 40, 8));
            let mut stack = Stack::default();
            stack.add(Bytes(height), Ink { token: Token::Allocated, fill: "█" });
            areas(&vec![stack; 40], Bytes(8), &theme, buf.area, &mut buf);
            let before = buf.clone();
            write(" limit", Token::Limit, [Some(4), None], &theme, buf.area, &mut buf);
            let row: String = (0..40).map(|x| buf[(x, 4)].symbol()).collect();
            assert_eq!((row.contains("limit"), buf != before), (named, named), "{height}: {row}");
        }
    }

    #[test]
    fn areas_below_keep_their_colours() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 40, 8));
        let mut stack = Stack::default();
        stack.add(Bytes(8), Ink { token: Token::Allocated, fill: "█" });
        let axis = Axis::new(ByteUnit::KiB, Bytes(8), 8);
        areas(&vec![stack; 40], axis.top, &theme, buf.area, &mut buf);
        let ceiling = Ceiling::new(Some(Bytes(4)), None).unwrap();
        let before = buf.clone();
        ceiling.draw(Bytes(8), axis, |_| Some(Bytes(4)), &theme, buf.area, &mut buf);
        assert_ne!(buf, before);
        // Except for the ceiling's name, which covers areas where they fill the plot.
        let name = ceiling.words().width() as u16 + 2;
        let row = 7 - axis.row(Bytes(4), 8);
        let drawn: String = (0..40).map(|x| buf[(x, row)].symbol()).collect();
        assert!(drawn.contains(&ceiling.words()), "dashes take none of its letters: {drawn}");
        for position in buf.area.positions().filter(|at| at.y != row || at.x < 40 - name) {
            let is = CellContent::of(&before[position], &theme);
            let ground =
                if is == CellContent::Nothing { ratatui::style::Color::Reset } else { theme.color(Token::Allocated) };
            assert!(buf[position].bg == ground || buf[position] == before[position], "{position:?}");
        }
    }
}
