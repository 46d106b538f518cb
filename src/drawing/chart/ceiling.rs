//! What memory can't pass, as a line with its name: the limit, or else what the card has.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::axis::Axis;
use super::shown::{CellContent, draw_over};
use crate::figures::{self, ByteUnit};
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;

/// Rows from which on there is room for a name above the line.
const NAMED: u16 = 4;
/// Rows from which on there is room for a note above what is highest, and for the mark of a moment.
const NOTED: u16 = 8;
const MARKED: u16 = 6;

/// A height that memory can't pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    bytes: Bytes,
    name: &'static str,
    /// In how many steps memory is there, if it climbs.
    full_in: Option<u64>,
    token: Token,
}

impl Ceiling {
    /// The limit if one is set, else the card's memory if that is known.
    pub fn new(limit: Option<Bytes>, card: Option<Bytes>) -> Option<Self> {
        let of = |name| move |bytes| Self { bytes, name, full_in: None, token: Token::Limit };
        limit.map(of("limit")).or_else(|| card.map(of("card"))).filter(|ceiling| ceiling.bytes > Bytes::ZERO)
    }

    /// A height that is nothing but spoken of: what is to be reached, or was asked for.
    pub const fn spoken_of(name: &'static str, bytes: Bytes, token: Token) -> Self {
        Self { bytes, name, full_in: None, token }
    }

    /// The same with the steps in which memory is there, if it climbs.
    #[must_use]
    pub const fn full_in(self, steps: Option<u64>) -> Self {
        Self { full_in: steps, ..self }
    }

    /// How high it is.
    pub const fn height(self) -> Bytes {
        self.bytes
    }

    /// Its name and its height, and when memory is there.
    fn words(self) -> String {
        let unit = ByteUnit::for_largest(self.bytes);
        let value = self.bytes.get() as f64 / unit.bytes() as f64;
        // What is asked for is asked for to two decimals.
        let figure = if self.token == Token::Limit { format!("{value:.1}") } else { format!("{value:.2}") };
        let figure = figure.trim_end_matches('0').trim_end_matches('.');
        let steps =
            self.full_in.map_or_else(String::new, |steps| format!(", full in {}", figures::counted(steps, "step")));
        format!("{} {} {}{steps}", self.name, figure, unit.name())
    }

    /// Whether it is near enough to be part of the scale.
    fn is_near(self, largest: Bytes) -> bool {
        u128::from(self.bytes.get()) * 2 <= u128::from(largest.get()) * 3
    }

    /// The axis of a chart whose highest value is `largest`. A near ceiling ends with a row, so that its line shares a cell with no area that
    /// ends below it; in the row above stands its name.
    pub fn axis(ceiling: Option<Self>, unit: ByteUnit, largest: Bytes, rows: u16) -> Axis {
        if let Some(near) = ceiling.filter(|ceiling| ceiling.is_near(largest)) {
            let most = if rows >= NAMED { rows - 1 } else { rows };
            // What reaches less than an eighth of a row beyond the top is cut.
            let eighths = u128::from(near.bytes.get()) * (8 * u128::from(rows) + 1) / u128::from(largest.get().max(1));
            let below = u16::try_from(eighths / 8).unwrap_or(most).clamp(1, most.max(1));
            return Axis::with_edge(unit, near.bytes, below, rows);
        }
        // A row above it, for the mark of a moment.
        let room = if rows >= MARKED { largest.get() / u64::from(rows - 1) } else { 0 };
        Axis::new(unit, Bytes(largest.get().saturating_add(room)), rows)
    }

    /// The same of a low chart: `largest` fills its rows to the edge, unless the ceiling is near and has its own place among them.
    pub fn fitted(ceiling: Option<Self>, unit: ByteUnit, largest: Bytes, rows: u16) -> Axis {
        match ceiling {
            Some(near) if near.is_near(largest) => Self::axis(ceiling, unit, largest, rows),
            _ if rows >= NOTED => Self::axis(ceiling, unit, largest, rows),
            _ => Axis::fitted(unit, largest, rows),
        }
    }

    /// Draws it over the areas of a chart, dashed to the right edge, with its name, if it is near enough to be in the chart.
    /// `height` is how high it stood in a column, `None` where there was none. Says whether it stands in the chart.
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

    /// A dash of the line, in every second cell, in the quarter of a row in which it ends.
    fn dash(self, axis: Axis, bytes: Bytes, theme: &Theme, plot: Rect, x: u16, buf: &mut Buffer) {
        if !x.is_multiple_of(2) {
            return;
        }
        let (row, quarter) = line(axis, bytes, plot.height);
        let y = plot.bottom() - 1 - row;
        draw_over(&mut buf[(plot.x + x, y)], DASHES[quarter], self.token, theme);
    }

    /// Says at the top of a chart that it is far above.
    pub fn note(self, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let plot = plot.intersection(buf.area);
        if !plot.is_empty() {
            let note = format!(" {} ↑", self.words());
            write(&note, Token::Dim, [Some(0), (plot.height > 2).then_some(1)], theme, plot, buf);
        }
    }
}

/// Dots of a line, by the quarter of its cell in which they lie.
const DASHES: [&str; 4] = ["⣀", "⠤", "⠒", "⠉"];

/// The row from the bottom in which a line at this height is, and the quarter of it.
fn line(axis: Axis, bytes: Bytes, rows: u16) -> (u16, usize) {
    let eighths = axis.eighths(bytes, rows);
    match u16::try_from(eighths / 8).unwrap_or(u16::MAX) {
        row if row < rows => (row, eighths as usize % 8 / 2),
        _ => (rows - 1, 3),
    }
}

/// Writes a word into the first of some rows that has room for it, as far to the right as nothing is covered. The name of a line that
/// runs through areas from edge to edge stands in front of them, at their right end: a line without a name says nothing.
fn write(word: &str, token: Token, rows: [Option<u16>; 2], theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let width = u16::try_from(word.width()).unwrap_or(u16::MAX);
    let Some(last) = plot.width.checked_sub(width) else { return };
    for y in rows.into_iter().flatten().map(|row| plot.y + row) {
        let is_free = |x: u16| {
            let cell = &buf[(plot.x + x, y)];
            CellContent::of(cell, theme) == CellContent::Nothing || is_dash(cell, theme)
        };
        // With air before what stands behind it.
        let place = (0..=last).rev().find(|x| (*x..(x + width + 1).min(plot.width)).all(is_free));
        if let Some(x) = place {
            // A lone dash behind it would hold it to what comes then.
            let behind = x + width;
            let is_held = behind + 1 < plot.width && !is_free(behind + 1);
            buf.set_string(plot.x + x, y, word, theme.style(token));
            if is_held && is_dash(&buf[(plot.x + behind, y)], theme) {
                buf[(plot.x + behind, y)].set_symbol(" ");
            }
            return;
        }
    }
    // Never where an area ends: there it would take the end for its own.
    let is_inside = |row: u16| {
        row > 0
            && (last..plot.width)
                .all(|x| CellContent::of(&buf[(plot.x + x, plot.y + row - 1)], theme) != CellContent::Nothing)
    };
    if let [Some(row), _] = rows
        && token != Token::Dim
        && is_inside(row)
    {
        // Few colours read on every area: the name has the ground below it, as a sign in front of them.
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

/// A dash of a line of this kind: of a ceiling, of a goal, of an answer.
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
        // But for its name, which stands on them where they fill the plot.
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
