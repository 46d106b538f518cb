//! Stacked areas in eighths of a cell, told apart by contrast or by a line, and axes with round ticks.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::figures::Unit;
use super::pane::{Frame, put_at, span};
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

/// Eighths of a cell below which a part may give way where there is no room for a line beside it.
const THIN: u64 = 2;

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

    /// Its cells from the bottom up. Parts whose colours differ too little never share one, and have a line between them.
    fn cells(&self, top: Bytes, theme: &Theme, rows: u16) -> Vec<Cell> {
        let edges = self.edges(top, rows);
        if theme.is_colorless() {
            return (0..u64::from(rows)).map(|row| Cell::new(&edges, row)).collect();
        }
        let edges = snapped(edges, theme);
        let mut cells: Vec<Cell> = (0..u64::from(rows)).map(|row| Cell::new(&edges, row).parted(theme)).collect();
        for row in 1..cells.len() {
            let (below, cell) = (cells[row - 1], cells[row]);
            if !needs_line(below.highest(), cell.lower, theme) {
                continue;
            }
            if !cell.is_whole() && below.is_whole() && below.line.is_none() {
                cells[row - 1].line = Some(Line::Above);
            } else {
                cells[row] = Cell { line: Some(Line::Below), ..Cell::whole(cell.lower) };
            }
        }
        cells
    }
}

/// Draws columns side by side over `plot`, which is `top` bytes high. Where parts touch whose colours differ too little, a
/// line in the colour of the surface runs between them.
pub(crate) fn areas(stacks: &[Stack], top: Bytes, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let plot = plot.intersection(buf.area);
    let mut before: Vec<Cell> = Vec::new();
    for (x, stack) in (plot.left()..plot.right()).zip(stacks) {
        let mut cells = stack.cells(top, theme, plot.height);
        if !theme.is_colorless() {
            for (cell, left) in cells.iter_mut().zip(&before) {
                let whole = cell.is_whole() && left.is_whole() && cell.line.is_none();
                if whole && needs_line(left.lower, cell.lower, theme) {
                    cell.line = Some(Line::Left);
                }
            }
        }
        for (cell, y) in cells.iter().zip((plot.top()..plot.bottom()).rev()) {
            cell.draw(theme, &mut buf[(x, y)]);
        }
        before = cells;
    }
}

/// Whether a line must run between two parts that touch: neither colours nor glyphs tell them apart.
fn needs_line(a: Ink, b: Ink, theme: &Theme) -> bool {
    a != Ink::NOTHING && b != Ink::NOTHING && a.fill == b.fill && !theme.tells_apart(a.token, b.token)
}

/// Ends of parts moved to the end of a cell where the next part's colour differs too little: a cell has no room for two
/// colours and a line. A part that is left without a row gets one from its neighbour where that has two, or else gives way.
fn snapped(edges: Vec<(u64, Ink)>, theme: &Theme) -> Vec<(u64, Ink)> {
    let mut parts: Vec<(u64, Ink)> = Vec::with_capacity(edges.len());
    for (end, ink) in edges {
        if parts.last().is_none_or(|(below, _)| end > *below) {
            parts.push((end, ink));
        }
    }
    let unclear = |parts: &[(u64, Ink)]| {
        let within = |pair: &[(u64, Ink)]| !pair[0].0.is_multiple_of(8) && needs_line(pair[0].1, pair[1].1, theme);
        parts.windows(2).position(within)
    };
    while let Some(index) = unclear(&parts) {
        let begin = index.checked_sub(1).map_or(0, |below| parts[below].0);
        let (exact, above) = (parts[index].0, parts[index + 1].0);
        let mut end = (exact + 4) / 8 * 8;
        if end <= begin && exact - begin >= THIN && above - begin >= 16 {
            end = begin / 8 * 8 + 8;
        } else if end >= above && above - exact >= THIN && exact / 8 * 8 > begin {
            end = exact / 8 * 8;
        }
        if end <= begin {
            parts.remove(index);
        } else if end >= above {
            parts[index].0 = above;
            parts.remove(index + 1);
        } else {
            parts[index].0 = end;
        }
    }
    parts
}

/// A line between two parts, at an edge of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Below,
    Above,
    Left,
}

impl Line {
    const fn symbol(self) -> &'static str {
        match self {
            Self::Below => "▁",
            Self::Above => "▔",
            Self::Left => "▏",
        }
    }
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    lower: Ink,
    upper: Ink,
    /// How many eighths belong to the lower.
    eighths: usize,
    line: Option<Line>,
}

impl Cell {
    const fn whole(ink: Ink) -> Self {
        Self { lower: ink, upper: ink, eighths: 8, line: None }
    }

    /// The cell in `row` from the bottom. Where three parts meet the thinnest gives way.
    fn new(edges: &[(u64, Ink)], row: u64) -> Self {
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
            [(lower, eighths), (upper, _)] => Self { lower, upper, eighths, line: None },
            [(only, _), ..] => Self::whole(only),
            [] => Self::whole(Ink::NOTHING),
        }
    }

    /// The same, whole where its two colours differ too little.
    fn parted(self, theme: &Theme) -> Self {
        if needs_line(self.lower, self.upper, theme) { Self::whole(self.larger()) } else { self }
    }

    fn is_whole(self) -> bool {
        self.eighths == 8 || self.lower == self.upper
    }

    fn highest(self) -> Ink {
        if self.is_whole() { self.lower } else { self.upper }
    }

    fn larger(self) -> Ink {
        if self.is_whole() || self.eighths >= 4 || self.upper == Ink::NOTHING { self.lower } else { self.upper }
    }

    fn draw(self, theme: &Theme, cell: &mut ratatui::buffer::Cell) {
        if self.lower == Ink::NOTHING {
            return;
        }
        if let Some(line) = self.line {
            let color = theme.color(self.lower.token);
            // The surface of a theme that paints none has no name but this.
            let style = if theme.paints() {
                Style::new().fg(theme.color(Token::Surface)).bg(color)
            } else {
                Style::new().fg(color).bg(Color::Reset).add_modifier(Modifier::REVERSED)
            };
            cell.set_symbol(line.symbol()).set_style(style);
        } else if self.is_whole() || theme.is_colorless() {
            let ink = self.larger();
            cell.set_symbol(ink.fill).set_style(ink.style(theme));
        } else if self.upper == Ink::NOTHING {
            cell.set_symbol(EIGHTHS[self.eighths]).set_style(self.lower.style(theme));
        } else {
            let style = self.lower.style(theme).bg(theme.color(self.upper.token));
            cell.set_symbol(EIGHTHS[self.eighths]).set_style(style);
        }
    }
}

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
        let row = u128::from(bytes.get()) * u128::from(self.rows_per_tick) / u128::from(self.tick.max(1));
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
    use crate::model::Category;
    use crate::tui::theme::{Catalog, ColorTier};
    use crate::units::MIB;

    const LOW: Ink = Ink { token: Token::Allocated, fill: "█" };
    const HIGH: Ink = Ink { token: Token::AllocatedSwing, fill: "▓" };

    fn themes() -> impl Iterator<Item = Theme> {
        let catalog = Catalog::default();
        let names: Vec<String> = catalog.names().map(str::to_owned).collect();
        let tiers = [ColorTier::None, ColorTier::Ansi, ColorTier::Indexed, ColorTier::True];
        let all = names.into_iter().flat_map(move |name| tiers.map(|tier| (name.clone(), tier)));
        all.map(move |(name, tier)| catalog.load(&name, tier).unwrap().0)
    }

    fn stack(parts: &[(u64, Ink)]) -> Stack {
        let mut stack = Stack::default();
        parts.iter().for_each(|(height, ink)| stack.add(Bytes(*height), *ink));
        stack
    }

    fn drawn(parts: &[(u64, Ink)], tier: ColorTier) -> String {
        let (theme, _) = Catalog::default().load("dark", tier).unwrap();
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
        assert_eq!(drawn(&[], ColorTier::True), "    ");
    }

    #[test]
    fn where_three_parts_meet_the_thinnest_gives_way() {
        let thin = Ink { token: Token::Stranded, fill: "▒" };
        let edges = [(3, LOW), (4, thin), (8, HIGH)];
        assert_eq!(Cell::new(&edges, 0), Cell { lower: LOW, upper: HIGH, eighths: 4, line: None });
    }

    /// Whether a person sees where `a` ends: by 3:1, by another letter, or by a line that has 3:1 to the part it is drawn in.
    fn is_told_apart(theme: &Theme, low: Cell, high: Cell) -> bool {
        let (a, b) = (low.highest(), high.lower);
        if a == b || [a, b].contains(&Ink::NOTHING) {
            return true;
        }
        if theme.is_colorless() {
            return a.fill != b.fill;
        }
        let seen = |part: Ink| !theme.paints() || theme.contrast(Token::Surface, part.token).unwrap() >= 3.0;
        theme.contrast(a.token, b.token).is_some_and(|contrast| contrast >= 3.0)
            || (low.line == Some(Line::Above) && seen(a))
            || (high.line == Some(Line::Below) && seen(b))
    }

    #[test]
    fn any_two_categories_that_touch_are_told_apart_in_every_theme() {
        for theme in themes() {
            for low in Category::ALL {
                for high in Category::ALL {
                    for height in 2..=30 {
                        let inks = [low, high].map(|category| crate::tui::legend::ink(category, &theme));
                        let parts = stack(&[(height, inks[0]), (32 - height, inks[1])]);
                        let cells = parts.cells(Bytes(32), &theme, 4);
                        let about =
                            format!("{} {:?}: {low:?} {height} below {high:?}: {cells:?}", theme.name(), theme.tier());
                        assert!(cells.windows(2).all(|pair| is_told_apart(&theme, pair[0], pair[1])), "{about}");
                        assert!(
                            [inks[0], inks[1]]
                                .iter()
                                .all(|ink| cells.iter().any(|c| c.lower == *ink || c.upper == *ink)),
                            "{about}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn whole_stacks_are_told_apart_and_keep_their_height() {
        // Every stack is another one, the same in each run of the test.
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for theme in themes() {
            for _ in 0..500 {
                let inks = Category::ALL.map(|category| crate::tui::legend::ink(category, &theme));
                let parts: Vec<(u64, Ink)> = inks.into_iter().map(|ink| (random(20).saturating_sub(6), ink)).collect();
                let cells = stack(&parts).cells(Bytes(112), &theme, 14);
                let about = format!("{} {:?}: {parts:?}: {cells:?}", theme.name(), theme.tier());
                assert!(cells.windows(2).all(|pair| is_told_apart(&theme, pair[0], pair[1])), "{about}");
                let shared = |cell: &Cell| cell.is_whole() || !needs_line(cell.lower, cell.upper, &theme);
                assert!(theme.is_colorless() || cells.iter().all(shared), "{about}");
                let height: u64 = parts.iter().map(|(height, _)| height).sum();
                let rows = cells.iter().filter(|cell| cell.lower != Ink::NOTHING).count() as u64;
                assert_eq!(rows, height.div_ceil(8), "{about}");
            }
        }
    }

    #[test]
    fn columns_side_by_side_have_a_line_too() {
        let (theme, _) = Catalog::default().load("dark", ColorTier::Ansi).unwrap();
        let inks =
            [Category::Parameter, Category::Activation].map(|category| crate::tui::legend::ink(category, &theme));
        let mut buf = Buffer::empty(Rect::new(0, 0, 2, 1));
        areas(&inks.map(|ink| stack(&[(8, ink)])), Bytes(8), &theme, buf.area, &mut buf);
        assert_eq!((buf[(0, 0)].symbol(), buf[(1, 0)].symbol()), ("█", "▏"));
    }

    #[test]
    fn a_value_at_a_tick_lies_in_the_row_of_the_tick() {
        for rows in [3, 7, 13, 16] {
            let axis = Axis::new(Bytes::mib(400), rows);
            for tick in 0..=Bytes::mib(400).get() / axis.tick {
                let row = u16::try_from(tick).unwrap() * axis.rows_per_tick;
                assert_eq!(axis.row(Bytes(tick * axis.tick), rows), row.min(rows - 1), "{axis:?}");
            }
        }
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
