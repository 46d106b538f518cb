//! Stacked areas in eighths of a cell: every part as high as its bytes, wherever its neighbours end.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::ink::Ink;
use super::row::{Column, Edge, FINE, Side, StackCell, row_cells};
use super::scale::Scale;
use super::shown::{CellContent, EIGHTHS};
use super::steady::unsteady;
use super::thin::Faint;
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;

/// The line between two parts, drawn within the upper one.
const LINE: &str = "▁";
/// A line runs between two parts only if both have this many whole rows, and over at least [`LONG`] columns: a shorter
/// line would be mistaken for a part.
const LINED: u64 = 2;
const LONG: usize = 8;

/// At most this many parts are left out where they are unsteady.
const LEFT: usize = 3;

/// One column: parts from the bottom up, each with its height in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack(Vec<(Bytes, Ink)>);

impl Stack {
    /// Adds a part on top.
    pub fn add(&mut self, height: Bytes, ink: Ink) {
        if height > Bytes::ZERO {
            self.0.push((height, ink));
        }
    }

    /// Where each part ends. The top is rounded to the nearest eighth. A column with any bytes has at least an eighth.
    fn edges(&self, column: usize, scale: Scale, faint: &Faint) -> Vec<Edge> {
        let sum = self.sum();
        if sum == 0 {
            return Vec::new();
        }
        let highest = scale.units(sum, FINE).clamp(FINE, scale.full());
        let mut below = 0u64;
        let mut edges: Vec<Edge> = Vec::with_capacity(self.0.len());
        for (height, ink) in &self.0 {
            below = below.saturating_add(height.get());
            let end = scale.units(below, 1).min(highest);
            let drawn = faint.drawn(*ink);
            match (edges.last_mut(), drawn) {
                (Some(lower), None) => lower.end = end,
                (Some(lower), Some(ink)) if lower.ink == ink => lower.end = end,
                (_, Some(ink)) => edges.push(Edge { end, ink }),
                // The part above takes its height.
                (None, None) => {}
            }
        }
        if edges.is_empty() || scale.units(sum, 1) < FINE {
            // Only the largest part is drawn.
            let largest = self.0.iter().max_by_key(|(height, _)| *height);
            let drawn = |ink: Ink| faint.drawn(ink).unwrap_or(ink);
            return largest.map(|(_, ink)| Edge { end: highest, ink: drawn(*ink) }).into_iter().collect();
        }
        if let Some(last) = edges.last_mut() {
            last.end = highest;
        }
        drop_slivers(&mut edges);
        leave_out(&mut edges, column, faint);
        edges
    }

    fn sum(&self) -> u64 {
        self.0.iter().fold(0u64, |sum, (height, _)| sum.saturating_add(height.get()))
    }

    /// The column's parts in each row, from the bottom up.
    fn rows(&self, column: usize, scale: Scale, faint: &Faint) -> Column {
        Column::new(&self.edges(column, scale, faint), scale.units(self.sum(), 1), 0..u64::from(scale.rows))
    }

    /// The same stack with thin parts joined.
    fn joined(&self, faint: &Faint) -> Self {
        let mut joined = Self(Vec::with_capacity(self.0.len()));
        for (height, ink) in &self.0 {
            let ink = faint.drawn(*ink).unwrap_or(*ink);
            match joined.0.last_mut() {
                Some((all, last)) if *last == ink => *all = Bytes(all.get().saturating_add(height.get())),
                _ => joined.0.push((*height, ink)),
            }
        }
        joined
    }

    /// The column's cells from the bottom up when a cell shows only one part. The number of filled cells is nearest to
    /// the total height. Each cell goes to the part with most bytes in it, among the parts that have fewer cells than
    /// their height deserves.
    fn whole_cells(&self, top: Bytes, rows: u16) -> Vec<StackCell> {
        let sum = self.sum();
        let filled = (u128::from(sum) * u128::from(rows) + u128::from(top.get() / 2)) / u128::from(top.get().max(1));
        let filled = filled.max(u128::from(sum > 0));
        // Bytes times rows, so that all numbers are whole.
        let (of_row, of_byte) = (u128::from(top.get().max(1)), u128::from(rows));
        let mut below = 0;
        let spans: Vec<(u128, u128, Ink)> = self
            .0
            .iter()
            .map(|(height, ink)| {
                let begin = below;
                below += u128::from(height.get()) * of_byte;
                (begin, below, *ink)
            })
            .collect();
        let inside = |(begin, end, _): &(u128, u128, Ink), row: usize| {
            let (from, to) = (row as u128 * of_row, (row as u128 + 1) * of_row);
            (*end).min(to).saturating_sub((*begin).max(from))
        };
        let most_in = |row: usize, spans: &mut dyn Iterator<Item = &(u128, u128, Ink)>| {
            let parts = spans.map(|span| (inside(span, row), span.2));
            // Of two equal parts, the lower one.
            parts.fold((0, Ink::NOTHING), |most, part| if part.0 > most.0 { part } else { most }).1
        };
        let filled = usize::try_from(filled).unwrap_or(usize::MAX).min(usize::from(rows));
        let mut letters: Vec<Ink> = Vec::with_capacity(filled);
        for row in 0..filled {
            let has = |ink: Ink| letters.iter().filter(|letter| **letter == ink).count() as u128;
            let is_short = |span: &&(u128, u128, Ink)| 2 * (span.1 - span.0) >= (2 * has(span.2) + 1) * of_row;
            let short = most_in(row, &mut spans.iter().filter(is_short));
            letters.push(if short == Ink::NOTHING { most_in(row, &mut spans.iter()) } else { short });
        }
        // A part of at least half a row (a third, if it is the lowest) without a cell gets the cell in which it has
        // most bytes. Only the lowest gets the only cell of another part: it would have gaps.
        let is_high =
            |place: usize, span: &(u128, u128, Ink)| if place == 0 { 3 } else { 2 } * (span.1 - span.0) >= of_row;
        for (place, span) in spans.iter().enumerate().filter(|(place, span)| is_high(*place, span)) {
            let best = (0..filled).max_by_key(|row| inside(span, *row));
            let count = |ink: Ink| letters.iter().filter(|letter| **letter == ink).count();
            if let Some(row) = best
                .filter(|row| inside(span, *row) > 0 && count(span.2) == 0 && (place == 0 || count(letters[*row]) > 1))
            {
                letters[row] = span.2;
            }
        }
        letters.resize(usize::from(rows), Ink::NOTHING);
        letters.into_iter().map(StackCell::whole).collect()
    }
}

/// Removes parts of less than half an eighth, which would be visible only in columns where the edges below happen to
/// favour them. The height goes to the neighbour that then stays nearer to its bytes. If neither stays as near as can
/// be drawn, the part is kept.
fn drop_slivers(edges: &mut Vec<Edge>) {
    const MOST: u64 = FINE + FINE / 4;
    let eighth = |end: u64| (end + FINE / 2) / FINE * FINE;
    let mut place = 1;
    while place < edges.len() {
        let (below, end) = (edges[place - 1].end, edges[place].end);
        if end - below >= FINE / 2 || eighth(end) == eighth(below) {
            place += 1;
            continue;
        }
        let base = place.checked_sub(2).map_or(0, |at| edges[at].end);
        let off_below = (eighth(end) - eighth(base)).abs_diff(below - base);
        let off_above = edges
            .get(place + 1)
            .map_or(u64::MAX, |above| (eighth(above.end) - eighth(below)).abs_diff(above.end - end));
        if off_below.min(off_above) > MOST {
            place += 1;
            continue;
        }
        if off_below <= off_above {
            edges[place - 1].end = end;
        }
        edges.remove(place);
    }
}

/// Removes the parts that this column leaves out. One of the parts beside each takes its height.
fn leave_out(edges: &mut Vec<Edge>, column: usize, faint: &Faint) {
    let mut place = 0;
    while place < edges.len() {
        let Some(heir) = faint.heir(edges[place].ink, column).filter(|_| edges.len() > 1) else {
            place += 1;
            continue;
        };
        let is_last = place + 1 == edges.len();
        if let Some(below) = place.checked_sub(1).filter(|_| is_last || heir == Side::Below) {
            edges[below].end = edges[place].end;
        }
        edges.remove(place);
    }
    edges.dedup_by(|above, below| {
        let is_same = above.ink == below.ink;
        if is_same {
            below.end = above.end;
        }
        is_same
    });
}

/// Columns side by side, as the cells of a plot.
#[derive(Debug)]
pub struct Areas {
    /// The cells of each column, from the bottom up.
    columns: Vec<Vec<StackCell>>,
    /// The inks that are visible, each once.
    shown: Vec<Ink>,
    faint: Faint,
}

impl Areas {
    /// The areas of `stacks` in a plot of this width and height, which is `top` bytes high.
    pub fn of(stacks: &[Stack], top: Bytes, theme: &Theme, (width, rows): (u16, u16)) -> Self {
        let stacks = &stacks[..stacks.len().min(usize::from(width))];
        let scale = Scale { top, rows };
        let parts = stacks.iter().map(|stack| &*stack.0);
        if theme.has_whole_cells() {
            let faint = Faint::of_cells(parts, scale);
            let columns = stacks.iter().map(|stack| stack.joined(&faint).whole_cells(top, rows)).collect();
            return Self::new(columns, faint);
        }
        let mut faint = Faint::of(parts, scale);
        let mut drawn = cells(stacks, scale, &faint, &[]);
        for _ in 0..LEFT {
            let left = unsteady(&drawn);
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(|part| faint.leave(part));
            drawn = cells(stacks, scale, &faint, &drawn);
        }
        Self::new(drawn.into_iter().map(|(_, cells)| cells).collect(), faint)
    }

    fn new(columns: Vec<Vec<StackCell>>, faint: Faint) -> Self {
        let mut shown = Vec::with_capacity(8);
        for column in &columns {
            // Most cells show the same as the cell below.
            for cells in column.chunk_by(|below, above| below.lower == above.lower && below.upper == above.upper) {
                for ink in [cells[0].lower, cells[0].upper] {
                    if !shown.contains(&ink) {
                        shown.push(ink);
                    }
                }
            }
        }
        Self { columns, shown, faint }
    }

    /// The ink in which a part is visible, its own or a joint one; `None` if nothing of it is visible.
    pub fn drawn_as(&self, ink: Ink) -> Option<Ink> {
        let drawn = self.faint.drawn(ink)?;
        self.shows(drawn).then_some(drawn)
    }

    /// True if any column shows this ink.
    pub fn shows(&self, ink: Ink) -> bool {
        self.shown.contains(&ink)
    }

    /// Draws the areas over `plot`. Where the colours of two touching parts differ too little, and they touch along
    /// cell edges in many neighbouring columns, a line in the surface's colour runs within the upper part.
    pub fn draw(&self, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let plot = plot.intersection(buf.area);
        let lined: Vec<Vec<bool>> = self.columns.iter().map(|cells| lines(cells, theme)).collect();
        for (row, y) in (plot.top()..plot.bottom()).rev().enumerate() {
            let runs: Vec<bool> = lined.iter().map(|rows| rows[row]).collect();
            let mut index = 0;
            for run in runs.chunk_by(|one, other| one == other) {
                let line = run[0] && run.len() >= LONG.max(self.columns.len() * 3 / 4);
                for (x, cells) in (plot.left()..).zip(&self.columns).skip(index).take(run.len()) {
                    cells[row].draw(line, theme, &mut buf[(x, y)]);
                }
                index += run.len();
            }
        }
    }
}

/// Writes an area's name into it, if it has enough neighbouring cells of its own. Returns whether it has.
pub fn name_within(ink: Ink, name: &str, theme: &Theme, plot: Rect, buf: &mut Buffer) -> bool {
    let plot = plot.intersection(buf.area);
    let color = theme.color(ink.token);
    let wanted = name.width() + 2;
    if theme.is_colorless() || !theme.paints() || wanted > usize::from(plot.width) {
        return false;
    }
    let is_own = |x: u16, y: u16| CellContent::of(&buf[(x, y)], theme) == CellContent::Whole(color);
    let begins = |y: u16| {
        let own: Vec<bool> = (plot.left()..plot.right()).map(|x| is_own(x, y)).collect();
        own.windows(wanted).position(|cells| cells.iter().all(|own| *own))
    };
    // In the middle of the rows that have room, at the left.
    let rows: Vec<(u16, usize)> = (plot.top()..plot.bottom()).filter_map(|y| Some((y, begins(y)?))).collect();
    let Some((y, x)) = rows.get(rows.len() / 2) else { return false };
    let style = Style::new().fg(theme.color(Token::Surface)).bg(color).remove_modifier(Modifier::DIM);
    buf.set_string(plot.x + *x as u16 + 1, *y, name, style);
    true
}

/// Draws columns side by side over `plot`, which is `top` bytes high.
pub fn areas(stacks: &[Stack], top: Bytes, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let plot = plot.intersection(buf.area);
    Areas::of(stacks, top, theme, (plot.width, plot.height)).draw(theme, plot, buf);
}

/// A column's parts, and its cells from the bottom up.
type DrawnColumn = (Column, Vec<StackCell>);

/// The columns of `stacks`. `before` has them as they were before a part was left out, or nothing.
fn cells(stacks: &[Stack], scale: Scale, faint: &Faint, before: &[DrawnColumn]) -> Vec<DrawnColumn> {
    let mut columns: Vec<Column> = stacks.iter().enumerate().map(|(x, stack)| stack.rows(x, scale, faint)).collect();
    let rows = usize::from(scale.rows);
    let mut cells: Vec<Vec<StackCell>> = columns.iter().map(|_| Vec::with_capacity(rows)).collect();
    for row in 0..rows {
        // A row in which at most two parts meet leaves nothing to choose and hides none.
        if !columns.iter().any(|column| column.row(row).is_crowded()) {
            cells.iter_mut().zip(&columns).for_each(|(cells, column)| cells.push(column.row(row).only_cell()));
            continue;
        }
        // Most rows stay as they were.
        let is_as_before = |(column, (before, _)): (&Column, &DrawnColumn)| column.row(row) == before.row(row);
        let chosen = match !before.is_empty() && columns.iter().zip(before).all(is_as_before) {
            true => before.iter().map(|(_, cells)| cells[row]).collect(),
            false => row_cells(&columns.iter().map(|column| column.row(row)).collect::<Vec<_>>()),
        };
        columns.iter_mut().zip(&chosen).for_each(|(column, cell)| column.pass_on(row, *cell));
        cells.iter_mut().zip(chosen).for_each(|(cells, cell)| cells.push(cell));
    }
    columns.into_iter().zip(cells).collect()
}

/// For each cell, whether a line may run above its lower edge: between whole cells of parts that colours don't tell
/// apart and that are both high enough.
fn lines(cells: &[StackCell], theme: &Theme) -> Vec<bool> {
    let mut lined = vec![false; cells.len()];
    if theme.is_colorless() {
        return lined;
    }
    let high = |mut rows: &mut dyn Iterator<Item = &StackCell>, ink: Ink| {
        (&mut rows).take_while(|cell| cell.is_whole() && cell.lower == ink).count() as u64 >= LINED
    };
    for row in 1..cells.len() {
        let (below, above) = (cells[row - 1], cells[row]);
        if below.is_whole()
            && above.is_whole()
            && needs_line(below.lower, above.lower, theme)
            && high(&mut cells[..row].iter().rev(), below.lower)
            && high(&mut cells[row..].iter(), above.lower)
        {
            lined[row] = true;
        }
    }
    lined
}

/// True if a line may run between two touching parts, because neither colours nor glyphs tell them apart.
fn needs_line(a: Ink, b: Ink, theme: &Theme) -> bool {
    a != b && a != Ink::NOTHING && b != Ink::NOTHING && a.fill == b.fill && !theme.tells_apart(a.token, b.token)
}

impl StackCell {
    fn draw(self, line: bool, theme: &Theme, cell: &mut ratatui::buffer::Cell) {
        if self.lower == Ink::NOTHING {
            return;
        }
        let color = theme.color(self.lower.token);
        if theme.is_colorless() {
            cell.set_symbol(self.lower.fill).set_style(self.lower.style(theme));
        } else if line {
            // A theme that does not paint its surface has no other name for the surface's colour.
            let style = if theme.paints() {
                Style::new().fg(theme.color(Token::Surface)).bg(color)
            } else {
                Style::new().fg(color).bg(Color::Reset).add_modifier(Modifier::REVERSED)
            };
            cell.set_symbol(LINE).set_style(style);
        } else if self.is_whole() {
            cell.set_symbol(self.lower.fill).set_style(self.lower.style(theme));
        } else if self.upper == Ink::NOTHING {
            cell.set_symbol(EIGHTHS[self.eighths]).set_style(self.lower.style(theme));
        } else {
            let style = self.lower.style(theme).bg(theme.color(self.upper.token));
            cell.set_symbol(EIGHTHS[self.eighths]).set_style(style);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::legend;
    use crate::theme::{ColorTier, ThemeCatalog};
    use vramlab_model::{Category, Ledger};

    const LOW: Ink = Ink { token: Token::Allocated, fill: "█" };
    const HIGH: Ink = Ink { token: Token::AllocatedSwing, fill: "▓" };

    fn themes() -> Vec<Theme> {
        let catalog = ThemeCatalog::default();
        let tiers = [ColorTier::None, ColorTier::Ansi, ColorTier::Indexed, ColorTier::True];
        let names = catalog.names();
        names.flat_map(|name| tiers.map(|tier| catalog.load(name, tier).unwrap().0)).collect()
    }

    fn stack(parts: &[(u64, Ink)]) -> Stack {
        let mut stack = Stack::default();
        parts.iter().for_each(|(height, ink)| stack.add(Bytes(*height), *ink));
        stack
    }

    fn drawn(parts: &[(u64, Ink)], tier: ColorTier) -> String {
        let (theme, _) = ThemeCatalog::default().load("dark", tier).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 1, 4));
        areas(&[stack(parts)], Bytes(32), &theme, buf.area, &mut buf);
        (0..4).map(|y| buf[(0, y)].symbol().to_owned()).collect()
    }

    #[test]
    fn parts_stack_in_eighths() {
        assert_eq!(drawn(&[(12, LOW), (12, HIGH)], ColorTier::True), " ▓▄█");
        assert_eq!(drawn(&[(1, LOW)], ColorTier::True), "   ▁");
        assert_eq!(drawn(&[(32, LOW)], ColorTier::None), "████");
        assert_eq!(drawn(&[(8, LOW), (16, HIGH)], ColorTier::None), " ▓▓█");
        assert_eq!(drawn(&[(10, LOW), (16, HIGH)], ColorTier::None), " ▓▓█", "the nearest row");
        assert_eq!(drawn(&[(1, LOW)], ColorTier::None), "   █", "something is not nothing");
        assert_eq!(drawn(&[], ColorTier::True), "    ");
    }

    /// The content of a cell, read only from its glyph and colours: eighths by ink, from the bottom.
    fn measured(cell: &ratatui::buffer::Cell, inks: &[Ink], theme: &Theme) -> Vec<(Ink, f64)> {
        let by_color = |color: Color| inks.iter().find(|ink| theme.color(ink.token) == color).copied();
        let surface = [Color::Reset, theme.color(Token::Surface)];
        let (symbol, fg, bg) = (cell.symbol(), cell.fg, cell.bg);
        if theme.is_colorless() {
            let ink = inks.iter().find(|ink| ink.fill == symbol);
            assert!(ink.is_some() || symbol == " ", "{symbol}");
            return ink.map(|ink| (*ink, 8.0)).into_iter().collect();
        }
        if symbol == LINE && cell.modifier.contains(Modifier::REVERSED) {
            return vec![(by_color(fg).unwrap(), 8.0)];
        }
        if symbol == LINE && surface.contains(&fg) {
            return vec![(by_color(bg).unwrap(), 8.0)];
        }
        let eighths = EIGHTHS.iter().position(|glyph| *glyph == symbol).unwrap() as f64;
        let lower = (eighths > 0.0).then(|| (by_color(fg).unwrap(), eighths));
        let upper = (!surface.contains(&bg)).then(|| (by_color(bg).unwrap(), 8.0 - eighths));
        lower.into_iter().chain(upper).collect()
    }

    /// How far a part's height may be from its bytes, in eighths: one, because edges lie on eighths; a quarter more
    /// next to the lowest part, which gets an eighth from that on; and what it may have lost or gained in cells where
    /// more parts meet than a cell can show. There the smallest parts give way, or others that are at most four eighths
    /// larger, because a visible part is better than none.
    fn allowed(parts: &[(u64, Ink)], top: u64, rows: u16) -> f64 {
        let scale = f64::from(rows) * 8.0 / top as f64;
        let heights = || parts.iter().map(|(height, _)| *height as f64 * scale).filter(|height| *height > 0.0);
        let mut crowded = 0.0;
        for row in 0..rows {
            let (from, to) = (f64::from(row) * 8.0, f64::from(row + 1) * 8.0);
            let mut shares = Vec::new();
            let mut below = 0.0;
            for height in heights().chain([f64::INFINITY]) {
                let inside = f64::min((below + height).round(), to) - f64::max(f64::round(below), from);
                if inside > 0.0 {
                    shares.push(inside);
                }
                below += height;
            }
            shares.sort_by(f64::total_cmp);
            crowded += shares.iter().rev().skip(2).map(|share| share + 4.0).sum::<f64>();
        }
        1.25 + crowded
    }

    /// Checks that a letter belongs to the part with most bytes in its cell, or is the only letter of a part of at
    /// least half a row where the other part has a cell elsewhere.
    fn check_letters(buf: &Buffer, x: u16, parts: &[(u64, Ink)], top: u64, rows: u16) {
        let letters: Vec<&str> = (0..rows).map(|row| buf[(x, rows - 1 - row)].symbol()).collect();
        for row in 0..rows {
            let symbol = letters[usize::from(row)];
            let (from, to) = (f64::from(row), f64::from(row + 1));
            let mut inside: HashMap<&str, f64> = HashMap::new();
            let mut below = 0.0;
            for (height, ink) in parts {
                let end = below + *height as f64 * f64::from(rows) / top as f64;
                *inside.entry(ink.fill).or_default() += (f64::min(end, to) - f64::max(below, from)).max(0.0);
                below = end;
            }
            if symbol != " " {
                let height = |letter: &str| {
                    let own = parts.iter().filter(|part| part.1.fill == letter).map(|part| part.0 as f64);
                    own.sum::<f64>() * f64::from(rows) / top as f64
                };
                let cells = |letters: &[&str], letter: &str| letters.iter().filter(|known| **known == letter).count();
                // A part with more bytes in this row has as many cells below as its height deserves, or is too small
                // for a cell. It may have given some to parts without a cell.
                let has_its_own = |letter: &str| {
                    let below = &letters[..usize::from(row)];
                    let given = below.iter().filter(|given| **given != letter && cells(&letters, given) == 1).count();
                    (cells(below, letter) + given) as f64 >= (height(letter) + 0.5 - 1e-6).floor()
                };
                let more = inside.iter().filter(|(_, part)| **part > inside[symbol] + 1e-6);
                let lowest = parts.iter().find(|part| part.0 > 0).is_some_and(|part| part.1.fill == symbol);
                let is_lone = cells(&letters, symbol) == 1
                    && height(symbol) >= if lowest { 1.0 / 3.0 } else { 0.5 } - 1e-6
                    && inside[symbol] > 0.0;
                assert!(
                    more.clone().all(|(letter, _)| has_its_own(letter)) || is_lone,
                    "{symbol} in row {row} of {rows}: {inside:?}"
                );
            }
        }
    }

    /// Parts as they are drawn: joined parts are as high as all of them together.
    fn joined(parts: &[(u64, Ink)], theme: &Theme, top: u64, rows: u16) -> Vec<(u64, Ink)> {
        let areas = Areas::of(&vec![stack(parts); LONG], Bytes(top), theme, (LONG as u16, rows));
        let mut joined: Vec<(u64, Ink)> = Vec::new();
        for (height, ink) in parts.iter().filter(|(height, _)| *height > 0) {
            let ink = areas.faint.drawn(*ink).unwrap_or(*ink);
            match joined.last_mut() {
                Some((all, last)) if *last == ink => *all += height,
                _ => joined.push((*height, ink)),
            }
        }
        joined
    }

    fn check(theme: &Theme, parts: &[(u64, Ink)], top: u64, rows: u16) {
        let parts = &joined(parts, theme, top, rows);
        let inks: Vec<Ink> = parts.iter().map(|(_, ink)| *ink).collect();
        let mut buf = Buffer::empty(Rect::new(0, 0, LONG as u16, rows));
        buf.set_style(buf.area, theme.style(Token::Surface));
        areas(&vec![stack(parts); LONG], Bytes(top), theme, buf.area, &mut buf);
        let about = || format!("{} {:?}: {parts:?} of {top} in {rows}", theme.name(), theme.tier());
        for x in 0..LONG as u16 {
            let mut heights: HashMap<Token, f64> = HashMap::new();
            let mut order: Vec<Token> = Vec::new();
            for y in (0..rows).rev() {
                for (ink, eighths) in measured(&buf[(x, y)], &inks, theme) {
                    *heights.entry(ink.token).or_default() += eighths;
                    if order.last() != Some(&ink.token) {
                        order.push(ink.token);
                    }
                }
            }
            // Only the column's own parts are drawn, and every part that can be told apart is drawn.
            let mut tokens = parts.iter().map(|(_, ink)| ink.token);
            assert!(order.iter().all(|drawn| tokens.any(|token| token == *drawn)), "{order:?}: {}", about());
            let scale = f64::from(rows) * 8.0 / top as f64;
            let unit = if theme.is_colorless() { 8.0 } else { 1.0 };
            let sum: f64 = heights.values().sum();
            let exact: f64 = parts.iter().map(|(height, _)| *height as f64).sum::<f64>() * scale;
            assert!((sum - exact).abs() <= unit, "the top: {sum} for {exact}: {}", about());
            if theme.is_colorless() {
                check_letters(&buf, x, parts, top, rows);
                continue;
            }
            // A part that is left out adds to the height of the parts beside it.
            let left =
                |(height, ink): &&(u64, Ink)| (*height as f64 * scale) < 2.0 && !heights.contains_key(&ink.token);
            // Joined parts may lie below and above another part: together they have the height of all of them.
            let of =
                |ink: Ink| parts.iter().filter(move |part| part.1 == ink).map(|(height, _)| *height as f64 * scale);
            for (place, (_, ink)) in parts.iter().enumerate() {
                let (exact, drawn) = (of(*ink).sum::<f64>(), heights.get(&ink.token).copied().unwrap_or(0.0));
                let unseen =
                    of(*ink).filter(|eighths| *eighths < 2.0).sum::<f64>() * f64::from(u8::from(of(*ink).count() > 1));
                let beside =
                    parts[..place].iter().rev().take_while(left).chain(parts[place + 1..].iter().take_while(left));
                let more: u64 = beside.map(|(height, _)| height).sum();
                let allowed = allowed(parts, top, rows) + more as f64 * scale + unseen;
                assert!(
                    (drawn - exact).abs() <= allowed + 1e-9,
                    "{ink:?}: {drawn} for {exact} ± {allowed}: {}",
                    about()
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_part_is_as_high_as_its_bytes_in_every_theme(
            heights in prop::collection::vec(prop_oneof![2 => Just(0u64), 2 => 1u64..1 << 20, 4 => 1u64..1 << 33], 8),
            accounts in prop::collection::vec(prop_oneof![Just(0u64), 1u64..1 << 24, 1u64..1 << 33], 5),
            room in 0u64..1 << 32,
            rows in prop_oneof![1u16..8, 8u16..50],
        ) {
            for theme in themes() {
                let categories = Category::STACKED.map(|category| legend::ink(category, &theme));
                let parts: Vec<(u64, Ink)> = heights.iter().copied().zip(categories).collect();
                // In 16 colours two categories may look alike. Each is measured only where no other looks like it.
                let distinct = |parts: Vec<(u64, Ink)>| -> Vec<(u64, Ink)> {
                    let mut seen = Vec::new();
                    parts.into_iter().filter(|(_, ink)| {
                        let color = theme.color(ink.token);
                        let first = theme.is_colorless() || !seen.contains(&color);
                        seen.push(color);
                        first
                    }).collect()
                };
                let parts = distinct(parts);
                let sum = parts.iter().map(|(height, _)| height).sum::<u64>();
                check(&theme, &parts, (sum + room).max(1), rows);
                let [live, rounding, pending, stranded, releasable] = [0, 1, 2, 3, 4].map(|place| Bytes(accounts[place]));
                let ledger = Ledger { live, rounding, pending, stranded, releasable, ..Ledger::default() };
                let parts = legend::accounts(&ledger, &theme).map(|account| (account.bytes.get(), account.ink)).to_vec();
                let parts = distinct(parts);
                let sum = parts.iter().map(|(height, _)| height).sum::<u64>();
                check(&theme, &parts, (sum + room).max(1), rows);
            }
        }
    }

    #[test]
    fn several_as_one_may_lie_below_and_above_another_part() {
        for theme in themes() {
            let inks = Category::STACKED.map(|category| legend::ink(category, &theme));
            let heights = [0, 1, 0, 3_850_225_456, 6_766_503_628, 643_592_706, 0, 129_608_110];
            let mut seen = Vec::new();
            let mut parts: Vec<(u64, Ink)> = heights.into_iter().zip(inks).collect();
            parts.retain(|(_, ink)| {
                let color = theme.color(ink.token);
                let is_new = theme.is_colorless() || !seen.contains(&color);
                seen.push(color);
                is_new
            });
            let sum = parts.iter().map(|(height, _)| height).sum::<u64>();
            check(&theme, &parts, sum + 987_326_735, 2);
        }
    }

    /// The columns of a step as in training: memory that stays, gradients that come with backward, activations that
    /// come and go, and random temporaries.
    fn step(rng: &mut impl FnMut() -> u64, width: u64) -> Vec<Vec<u64>> {
        let stays = [rng() % 100, rng() % 200, rng() % 4].map(|height| height + 1);
        let activations = rng() % 1600 + 1;
        let peak = width / 4 + rng() % (width / 3);
        (0..width)
            .map(|x| {
                let rise = if x < peak { x * 100 / peak } else { (width - 1 - x) * 100 / (width - peak) };
                let gradients = if x < peak { 0 } else { stays[0] * (x - peak) / (width - peak) };
                let passing = if rng().is_multiple_of(3) { 0 } else { rng() % 60 };
                vec![stays[0], stays[1], gradients, activations * rise / 100, passing, stays[2]]
            })
            .collect()
    }

    #[test]
    fn parts_of_a_step_are_as_high_as_their_bytes_and_do_not_come_and_go() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let own = Category::STACKED.map(|category| legend::ink(category, &theme));
        let inks: Vec<Ink> = own.into_iter().chain([Ink::SEVERAL]).collect();
        let mut seed = 1u64;
        let mut rng = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        // For each number of rows: how far parts are from their bytes, in eighths; how often a part begins or ends
        // although its bytes go on; how often a part of constant height is off by more than an eighth; and how often a
        // column's top is.
        for (rows, most_off, most_changes, most_swollen, most_moved) in [
            (2, 0.537, 0.0118, 0.0745, 0.1415),
            (3, 0.5535, 0.0142, 0.0498, 0.064),
            (5, 0.5625, 0.0078, 0.0379, 0.0326),
            (12, 0.5625, 0.0105, 0.0094, 0.0326),
            (30, 0.5655, 0.0097, 0.0086, 0.0165),
        ] {
            let (mut off, mut parts, mut changes, mut pairs) = (0.0, 0.0, 0.0, 0.0);
            let (mut staying, mut swollen, mut tops, mut moved) = (0.0, 0.0, 0.0, 0.0);
            for _ in 0..40 {
                let columns = step(&mut rng, 70);
                let top = columns.iter().map(|heights| heights.iter().sum::<u64>()).max().unwrap();
                let stacks: Vec<Stack> = columns
                    .iter()
                    .map(|heights| stack(&heights.iter().copied().zip(own).collect::<Vec<_>>()))
                    .collect();
                let mut buf = Buffer::empty(Rect::new(0, 0, 70, rows));
                buf.set_style(buf.area, theme.style(Token::Surface));
                let areas = Areas::of(&stacks, Bytes(top), &theme, (70, rows));
                areas.draw(&theme, buf.area, &mut buf);
                let scale = f64::from(rows) * 8.0 / top as f64;
                // Joined parts are as high as all of them together.
                let columns = columns.iter().map(|heights| {
                    let mut bands = vec![0; inks.len()];
                    for (height, own) in heights.iter().zip(&own) {
                        let drawn = areas.drawn_as(*own).unwrap_or(*own);
                        bands[inks.iter().position(|known| *known == drawn).unwrap()] += height;
                    }
                    bands
                });
                let columns: Vec<Vec<u64>> = columns.collect();
                let drawn: Vec<Vec<f64>> = (0..70)
                    .map(|x| {
                        let mut heights = vec![0.0; inks.len()];
                        for y in 0..rows {
                            for (ink, eighths) in measured(&buf[(x, y)], &inks, &theme) {
                                heights[inks.iter().position(|known| *known == ink).unwrap()] += eighths;
                            }
                        }
                        heights
                    })
                    .collect();
                // If joined parts lie only on the floor, they stay constant.
                let joint = own.map(|own| areas.drawn_as(own) == Some(Ink::SEVERAL));
                let on_ground = joint.iter().take_while(|joint| **joint).count();
                let has_floor = on_ground > 0 && joint[on_ground..].iter().all(|joint| !joint);
                for (x, heights) in columns.iter().enumerate() {
                    let off_top = (drawn[x].iter().sum::<f64>() - heights.iter().sum::<u64>() as f64 * scale).abs();
                    tops += 1.0;
                    moved += f64::from(u8::from(off_top > 1.0 + 1e-9));
                    assert!(off_top <= 3.6, "three eighths, and what rounding adds: {off_top}");
                    for (part, height) in heights.iter().enumerate() {
                        let exact = *height as f64 * scale;
                        if (part < 2 || has_floor && part == own.len()) && exact >= 1.0 {
                            staying += 1.0;
                            swollen += f64::from(u8::from((drawn[x][part] - exact).abs() > 1.25));
                        }
                        off += (drawn[x][part] - exact).abs();
                        parts += f64::from(u8::from(exact > 0.0));
                        if x > 0 && exact >= 1.0 && columns[x - 1][part] as f64 * scale >= 1.0 {
                            pairs += 1.0;
                            changes += f64::from(u8::from((drawn[x][part] > 0.0) != (drawn[x - 1][part] > 0.0)));
                        }
                    }
                }
            }
            let (off, changes) = (off / parts, changes / pairs);
            let (swollen, moved) = (swollen / staying, moved / tops);
            assert!(
                off <= most_off && changes <= most_changes && swollen <= most_swollen && moved <= most_moved,
                "{rows} rows: {off:.3} eighths off, {changes:.4} changes, {swollen:.4} swollen, {moved:.4} tops"
            );
        }
    }

    /// Temporaries on activations that shrink: a thin part that three-part cells would hide in some columns and not in
    /// others. It is also high for a few columns, as at the peak.
    #[test]
    fn a_thin_part_on_a_falling_one_is_seen_all_along_or_nowhere() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let [floor, falling, thin] = [Category::Parameter, Category::Activation, Category::Temporary]
            .map(|category| legend::ink(category, &theme));
        // In hundredths of an eighth.
        for (rows, height) in
            [5, 12, 24].into_iter().flat_map(|rows| [60, 100, 150, 190, 240, 300].map(|height| (rows, height)))
        {
            let full = u64::from(rows) * 800;
            let stacks: Vec<Stack> = (0..60)
                .map(|x| {
                    stack(&[
                        (900, floor),
                        ((60 - x) * (full - 3000) / 60, falling),
                        (if x < 2 { 1600 } else { height }, thin),
                    ])
                })
                .collect();
            let areas = Areas::of(&stacks, Bytes(full), &theme, (60, rows));
            let shown = |x: usize| areas.columns[x].iter().any(|cell| cell.shows(thin));
            let seen: Vec<bool> = (2..60).map(shown).collect();
            let changes = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(changes <= 1, "{height} in {rows} rows: {seen:?}");
            assert!(shown(0) && shown(1));
        }
    }

    /// A part that is always there with less than half an eighth is not shown at random, depending on the edges below it.
    #[test]
    fn a_sliver_is_not_seen_here_and_there() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let [low, sliver, high] = [Category::Parameter, Category::Workspace, Category::Activation]
            .map(|category| legend::ink(category, &theme));
        // In hundredths of an eighth.
        for height in [10, 30, 49] {
            for rows in [4, 13, 24] {
                let top = u64::from(rows) * 800;
                let stacks: Vec<Stack> = (0..200)
                    .map(|x| stack(&[(300 + x * 7, low), (height, sliver), (1 + x * 37 % 900, high)]))
                    .collect();
                let areas = Areas::of(&stacks, Bytes(top), &theme, (200, rows));
                let seen = areas.columns.iter().filter(|cells| cells.iter().any(|cell| cell.shows(sliver))).count();
                assert!(seen <= 4, "{height} in {rows} rows: {seen} of 200 columns");
            }
        }
    }

    #[test]
    fn parts_that_are_thin_everywhere_are_one_band_and_a_column_of_them_is_not_blank() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let [params, optim, activ, temp] =
            [Category::Parameter, Category::OptimizerState, Category::Activation, Category::Temporary]
                .map(|category| legend::ink(category, &theme));
        // In tenths of an eighth: four rows.
        let of = |parts: &[(u64, Ink)]| stack(parts);
        let thick = of(&[(5, params), (9, optim), (200, activ), (6, temp)]);
        let thin = of(&[(5, params), (6, temp)]);
        let areas = Areas::of(&[thick.clone(), thick, thin], Bytes(320), &theme, (3, 4));
        let drawn = [params, optim, activ, temp].map(|ink| areas.drawn_as(ink));
        assert_eq!(drawn, [Some(Ink::SEVERAL), Some(Ink::SEVERAL), Some(activ), None]);
        let eighths = |ink: Ink| areas.columns.iter().map(|cells| cells[0].lower == ink).collect::<Vec<_>>();
        assert_eq!(eighths(Ink::SEVERAL), [true; 3]);
        // Each part is too small for a band.
        let thick = of(&[(4, params), (300, activ), (4, temp)]);
        let areas = Areas::of(&[thick, of(&[(4, params), (5, temp)])], Bytes(320), &theme, (2, 4));
        assert_eq!(areas.columns[1][0], StackCell { lower: temp, upper: Ink::NOTHING, eighths: 1 });
    }

    #[test]
    fn a_line_runs_only_between_parts_of_two_rows_and_changes_no_height() {
        let (theme, _) = ThemeCatalog::default().load("terminal", ColorTier::Ansi).unwrap();
        let inks = [Category::Parameter, Category::Activation].map(|category| legend::ink(category, &theme));
        for (low, high, lined) in [(16, 16, true), (8, 24, false), (24, 8, false), (17, 15, false)] {
            let parts = stack(&[(low, inks[0]), (high, inks[1])]);
            let mut buf = Buffer::empty(Rect::new(0, 0, LONG as u16, 4));
            areas(&vec![parts.clone(); LONG], Bytes(32), &theme, buf.area, &mut buf);
            let lines = buf.area.positions().filter(|at| buf[*at].modifier.contains(Modifier::REVERSED)).count();
            assert_eq!(lines, if lined { LONG } else { 0 }, "{low} {high}");
            let mut few = Buffer::empty(Rect::new(0, 0, LONG as u16 - 1, 4));
            areas(&vec![parts; LONG - 1], Bytes(32), &theme, few.area, &mut few);
            assert!(few.area.positions().all(|at| few[at].modifier.is_empty()), "not for few columns");
        }
    }
}
