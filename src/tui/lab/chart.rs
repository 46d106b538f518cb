//! The area of the memory chart: allocated, its swing, stranded and the rest of reserved, stacked per column in
//! eighths of a cell.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::model::Column;
use crate::tui::theme::{Theme, Token};

/// What a part of a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Allocated all through the column.
    Allocated,
    /// Allocated at some moment of it.
    Swing,
    /// Held, free, and in wholly free segments (or pending).
    Reserved,
    /// Held, free, and inside a segment that something holds.
    Stranded,
    /// Not held.
    Nothing,
}

impl Layer {
    /// Its colour.
    pub(crate) const fn token(self) -> Token {
        match self {
            Self::Allocated => Token::Allocated,
            Self::Swing => Token::AllocatedSwing,
            Self::Reserved => Token::Reserved,
            Self::Stranded => Token::Stranded,
            Self::Nothing => Token::Surface,
        }
    }

    /// What fills a cell of it. Where tones are visible they tell layers apart; elsewhere density does.
    pub(crate) fn fill(self, theme: &Theme) -> &'static str {
        match self {
            Self::Nothing => " ",
            _ if theme.paints() => "█",
            Self::Allocated => "█",
            Self::Swing => "▓",
            Self::Stranded => "▒",
            Self::Reserved => "░",
        }
    }
}

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Tops of a column's layers in eighths of a cell, from the bottom up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stack([(u64, Layer); 4]);

impl Stack {
    fn new(column: &Column, top: u64, rows: u16) -> Self {
        let full = u64::from(rows) * 8;
        let eighths = |bytes: u64| {
            let scaled = (u128::from(bytes) * u128::from(full) + u128::from(top) / 2) / u128::from(top.max(1));
            // Something is never drawn as nothing.
            u64::try_from(scaled).unwrap_or(full).min(full).max(u64::from(bytes > 0))
        };
        let low = eighths(column.allocated_min.get());
        let high = eighths(column.allocated_max.get()).max(low);
        let reserved = eighths(column.reserved_max.get()).max(high);
        let unstranded = eighths(column.reserved_max.saturating_sub(column.stranded_max).get()).max(high);
        Self([
            (low, Layer::Allocated),
            (high, Layer::Swing),
            (unstranded, Layer::Reserved),
            (reserved, Layer::Stranded),
        ])
    }

    fn layer(&self, eighth: u64) -> Layer {
        self.0.iter().find(|(top, _)| eighth < *top).map_or(Layer::Nothing, |&(_, layer)| layer)
    }

    /// The two layers that a cell shows, and how many eighths belong to the lower. A cell where three meet gives the
    /// thinnest to its neighbour.
    fn cell(&self, row: u64) -> (Layer, Layer, usize) {
        let parts: [Layer; 8] = std::array::from_fn(|eighth| self.layer(row * 8 + eighth as u64));
        let mut runs: Vec<(Layer, usize)> = Vec::with_capacity(3);
        for part in parts {
            match runs.last_mut() {
                Some((layer, length)) if *layer == part => *length += 1,
                _ => runs.push((part, 1)),
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
            [] => (Layer::Nothing, Layer::Nothing, 8),
        }
    }
}

/// Draws `columns` from the left edge of `area`, `top` bytes high; nothing where there is none.
pub(crate) fn draw(columns: &[Option<Column>], top: u64, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    for (x, column) in area.columns().zip(columns) {
        let Some(column) = column else { continue };
        let stack = Stack::new(column, top, area.height);
        for (row, position) in x.positions().rev_rows().enumerate() {
            let (lower, upper, eighths) = stack.cell(row as u64);
            if lower == Layer::Nothing {
                break;
            }
            draw_cell(lower, upper, eighths, theme, position, buf);
        }
    }
}

fn draw_cell(lower: Layer, upper: Layer, eighths: usize, theme: &Theme, position: (u16, u16), buf: &mut Buffer) {
    let cell = &mut buf[position];
    if lower == upper || eighths == 8 {
        cell.set_symbol(lower.fill(theme)).set_style(Style::new().fg(theme.color(lower.token())));
    } else if theme.paints() {
        let style = Style::new().fg(theme.color(lower.token())).bg(theme.color(upper.token()));
        cell.set_symbol(EIGHTHS[eighths.min(8)]).set_style(style);
    } else if lower == Layer::Allocated && upper == Layer::Nothing {
        cell.set_symbol(EIGHTHS[eighths.min(8)]).set_style(Style::new().fg(theme.color(lower.token())));
    } else {
        let layer = if eighths >= 4 { lower } else { upper };
        cell.set_symbol(layer.fill(theme)).set_style(Style::new().fg(theme.color(layer.token())));
    }
}

/// The positions of a column of cells from the bottom up.
trait FromBottom {
    fn rev_rows(self) -> std::vec::IntoIter<(u16, u16)>;
}

impl FromBottom for ratatui::layout::Positions {
    fn rev_rows(self) -> std::vec::IntoIter<(u16, u16)> {
        let mut positions: Vec<(u16, u16)> = self.map(|position| (position.x, position.y)).collect();
        positions.reverse();
        positions.into_iter()
    }
}

/// The height of an axis that holds `largest`: a power of two or one and a half of one, so that its quarters are round.
pub(crate) fn axis_top(largest: u64) -> u64 {
    let mut top = 1u64 << 20;
    loop {
        if top >= largest {
            return top;
        }
        let half_more = top.saturating_add(top / 2);
        if half_more >= largest {
            return half_more;
        }
        top = top.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::{Catalog, ColorTier};
    use crate::units::Bytes;

    fn column(low: u64, high: u64, stranded: u64, reserved: u64) -> Column {
        Column {
            allocated_min: Bytes(low),
            allocated_max: Bytes(high),
            reserved_min: Bytes(reserved),
            reserved_max: Bytes(reserved),
            stranded_max: Bytes(stranded),
            ..Column::default()
        }
    }

    fn drawn(columns: &[Column], theme: &str, tier: ColorTier) -> Buffer {
        let (theme, _) = Catalog::default().load(theme, tier).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 4, 4));
        let columns: Vec<Option<Column>> = columns.iter().copied().map(Some).collect();
        draw(&columns, 32, &theme, buf.area, &mut buf);
        buf
    }

    #[test]
    fn layers_stack_in_eighths() {
        let buf = drawn(&[column(12, 12, 0, 20), column(0, 32, 0, 32), column(1, 1, 0, 1)], "dark", ColorTier::True);
        let text: Vec<String> =
            (0..4).map(|y| (0..4).map(|x| buf[(x, y)].symbol().to_owned()).collect::<String>()).collect();
        assert_eq!(text, [" █  ", "▄█  ", "▄█  ", "██▁ "]);
        let (theme, _) = Catalog::default().load("dark", ColorTier::True).unwrap();
        assert_eq!(buf[(0, 2)].fg, theme.color(Token::Allocated), "the lower half of the cell is allocated");
        assert_eq!(buf[(0, 2)].bg, theme.color(Token::Reserved), "the upper half is held");
        assert_eq!(buf[(0, 1)].bg, theme.color(Token::Surface));
        assert_eq!(buf[(1, 0)].fg, theme.color(Token::AllocatedSwing));
    }

    #[test]
    fn without_tones_densities_tell_layers_apart() {
        let buf = drawn(&[column(8, 16, 8, 32)], "dark", ColorTier::None);
        let text: Vec<&str> = (0..4).map(|y| buf[(0, y)].symbol()).collect();
        assert_eq!(text, ["▒", "░", "▓", "█"]);
    }

    #[test]
    fn where_three_layers_meet_the_thinnest_gives_way() {
        let stack = Stack::new(&column(3, 4, 0, 8), 8, 1);
        assert_eq!(stack.cell(0), (Layer::Allocated, Layer::Reserved, 4));
    }

    #[test]
    fn axes_have_round_quarters() {
        for (largest, top) in [(0, 1 << 20), (81 << 20, 96 << 20), (96 << 20, 96 << 20), (100 << 20, 128 << 20)] {
            assert_eq!(axis_top(largest), top);
        }
        assert_eq!(axis_top(u64::MAX), u64::MAX);
    }
}
