//! Three nested heights without colour, in dots of braille: all dots up to the middle height, except for a blank row
//! above the lowest height, and one dot in four above the middle height. All three are visible even in few rows, to a
//! quarter of a row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;

/// Dots of a row of a cell: left, right, from the bottom up.
const ROWS: [[u8; 2]; 4] = [[0x40, 0x80], [0x04, 0x20], [0x02, 0x10], [0x01, 0x08]];

/// The marks of the three heights in legends: a cell in which the lowest height ends, and whole cells of the others.
pub const MARKS: [&str; 3] = ["⣛", "⣿", "⡐"];

/// The three heights in rows of dots. A height above zero has at least one row; otherwise the nearest row counts.
fn heights(levels: [Bytes; 3], top: Bytes, dots: u64) -> [u64; 3] {
    let (top, mut below) = (u128::from(top.get().max(1)), 0);
    levels.map(|bytes| {
        let scaled = (u128::from(bytes.get()) * u128::from(dots) + top / 2) / top;
        let least = u64::from(bytes > Bytes::ZERO);
        below = u64::try_from(scaled).unwrap_or(dots).max(least).min(dots).max(below);
        below
    })
}

/// Draws columns side by side over `plot`, which is `top` bytes high. Each column has three heights in ascending order.
pub fn levels(columns: &[[Bytes; 3]], top: Bytes, theme: &Theme, plot: Rect, buf: &mut Buffer) {
    let plot = plot.intersection(buf.area);
    for (x, column) in (plot.left()..plot.right()).zip(columns) {
        let [low, middle, high] = heights(*column, top, u64::from(plot.height) * ROWS.len() as u64);
        // The gap above the lowest height needs a row of its own and a filled row above it.
        let gap = Some(low).filter(|low| *low > 0 && low + 1 < middle);
        for (y, first) in (plot.top()..plot.bottom()).rev().zip((0u64..).step_by(ROWS.len())) {
            let dots = (first..).zip(ROWS).fold(0, |dots, (row, sides)| {
                let seen = match row {
                    _ if Some(row) == gap => 0,
                    _ if row < middle => sides[0] | sides[1],
                    _ if row < high && row % 2 == 0 => sides[(row / 2 % 2) as usize],
                    // The highest height has a visible end.
                    _ if row + 1 == high => sides[(row / 2 % 2) as usize],
                    _ => 0,
                };
                dots | seen
            });
            if let Some(symbol) = char::from_u32(0x2800 + u32::from(dots)).filter(|_| dots > 0) {
                buf[(x, y)].set_char(symbol).set_style(theme.style(Token::Text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::theme::{ColorTier, ThemeCatalog};

    /// The level of each row of dots from the bottom, read from the frame; blank rows are left out.
    fn seen(levels: [u64; 3], top: u64, rows: u16) -> [u64; 3] {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::None).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 1, rows));
        super::levels(&[levels.map(Bytes)], Bytes(top), &theme, buf.area, &mut buf);
        let dots = |row: u64| {
            let symbol = buf[(0, rows - 1 - (row / 4) as u16)].symbol().chars().next().unwrap();
            let all = if symbol == ' ' { 0 } else { u32::from(symbol) as u8 };
            ROWS[(row % 4) as usize].iter().filter(|dot| all & **dot != 0).count()
        };
        let all: Vec<usize> = (0..u64::from(rows) * 4).map(dots).collect();
        let full = |from: usize| from + all[from..].iter().take_while(|dots| **dots == 2).count();
        let low = full(0);
        // A blank row, and more full rows above it.
        let middle = if all.get(low) == Some(&0) && all.get(low + 1) == Some(&2) { full(low + 1) } else { low };
        let high = all.iter().rposition(|dots| *dots > 0).map_or(0, |row| row + 1);
        [low, middle, high].map(|row| row as u64)
    }

    proptest! {
        #[test]
        fn each_height_is_read_to_a_row_of_dots(
            floor in 0u64..1 << 33, more in 1u64..1 << 33, beyond in 1u64..1 << 33, room in 0u64..1 << 32, rows in 1u16..40,
        ) {
            let levels = [floor, floor + more, floor + more + beyond];
            let top = levels[2] + room;
            let read = seen(levels, top, rows);
            let dots = f64::from(rows) * 4.0;
            for (read, bytes) in read.into_iter().zip(levels) {
                let exact = bytes as f64 / top as f64 * dots;
                // Each height above zero has a row; close heights have no blank row between them.
                prop_assert!((read as f64 - exact).abs() <= 2.0, "{read} for {exact}: {levels:?} of {top} in {rows}");
            }
        }
    }

    #[test]
    fn floor_peak_and_reserved_are_seen_in_two_rows() {
        assert_eq!(seen([146, 2284, 2500], 2500, 2), [1, 7, 8]);
        assert_eq!(seen([146, 2284, 2500], 2500, 3), [1, 11, 12]);
        assert_eq!(seen([1, 599, 2500], 2500, 3), [1, 3, 12]);
    }

    #[test]
    fn the_lowest_ends_with_a_blank_row_and_the_highest_is_sparse() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::None).unwrap();
        let mut buf = Buffer::empty(Rect::new(0, 0, 1, 3));
        levels(&[[4, 8, 12].map(Bytes)], Bytes(12), &theme, buf.area, &mut buf);
        assert_eq!([2, 1, 0].map(|y| buf[(0, y)].symbol()), ["⣿", "⠿", "⡘"]);
    }
}
