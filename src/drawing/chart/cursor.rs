//! The cursor's line.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::shown::{CellContent, draw_over, is_braille};
use crate::theme::{Theme, Token};

/// Marks the cursor in the row below a plot, if there is no room for its line above the areas.
const FOOT: &str = "▲";

/// Draws the cursor in column `x` of a plot, as a line from the top down to the areas. If the areas reach the top, a
/// foot in row `below` the plot marks the column. Without such a row, a line in the surface's colour cuts through the
/// areas. Cells in which an area ends are left as they are. If letters tell areas apart, they are reversed instead.
pub fn cursor(plot: Rect, x: u16, below: Option<u16>, theme: &Theme, buf: &mut Buffer) {
    let is_blank =
        |y: u16| buf.cell((plot.x + x, y)).is_some_and(|cell| CellContent::of(cell, theme) == CellContent::Nothing);
    let has_air = plot.height > 0 && is_blank(plot.y);
    let foot = below.filter(|_| !has_air && !theme.is_colorless());
    for y in plot.top()..plot.bottom() {
        let Some(cell) = buf.cell_mut((plot.x + x, y)) else { continue };
        match CellContent::of(cell, theme) {
            // Braille dots too, which show areas or a curve.
            CellContent::Whole(_) if theme.is_colorless() => cell.modifier.insert(Modifier::REVERSED),
            _ if theme.is_colorless() && is_braille(cell.symbol()) => cell.modifier.insert(Modifier::REVERSED),
            CellContent::Whole(_) if has_air || foot.is_some() => {}
            CellContent::Whole(ground) if theme.paints() => slit(cell, ground, theme),
            _ => draw_over(cell, "│", Token::Key, theme),
        }
    }
    if let Some(y) = foot {
        stand(Rect { y, height: 1, ..plot }, x, theme, buf);
    }
}

/// Draws the foot into a row. A word there moves as a whole to the right or to the left. If neither side has room, its
/// letter is reversed instead.
fn stand(row: Rect, x: u16, theme: &Theme, buf: &mut Buffer) {
    let row = row.intersection(buf.area);
    let at = row.x + x;
    if row.is_empty() || at >= row.right() {
        return;
    }
    let symbol = |x: u16, buf: &Buffer| buf[(x, row.y)].symbol().to_owned();
    let is_letter = |x: u16, buf: &Buffer| symbol(x, buf).starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_free = |x: u16, buf: &Buffer| matches!(&*symbol(x, buf), " " | "─");
    if is_letter(at, buf) {
        let begin = (row.x..at).rev().take_while(|x| is_letter(*x, buf)).last().unwrap_or(at);
        let end = (at..row.right()).find(|x| !is_letter(*x, buf)).unwrap_or(row.right());
        let length = end - begin;
        let right = at + 1;
        let left = at.checked_sub(length).filter(|left| *left >= row.x);
        let to = if right + length <= row.right() && (end..right + length).all(|x| is_free(x, buf)) {
            right
        } else if let Some(left) = left.filter(|left| (*left..begin).all(|x| is_free(x, buf))) {
            left
        } else {
            buf[(at, row.y)].set_style(theme.style(Token::Key).add_modifier(Modifier::REVERSED));
            return;
        };
        let word: Vec<Cell> = (begin..end).map(|x| buf[(x, row.y)].clone()).collect();
        // The cells that the word leaves look like those that it takes.
        let ground = if to == right { buf[(end, row.y)].clone() } else { buf[(begin - 1, row.y)].clone() };
        (begin..end).for_each(|x| buf[(x, row.y)] = ground.clone());
        (to..).zip(word).for_each(|(x, letter)| buf[(x, row.y)] = letter);
    }
    buf[(at, row.y)].set_symbol(FOOT).set_style(theme.style(Token::Key));
}

fn slit(cell: &mut Cell, ground: Color, theme: &Theme) {
    cell.modifier.remove(Modifier::REVERSED);
    cell.set_symbol("│").set_fg(theme.color(Token::Surface)).set_bg(ground);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Ink, Stack, areas};
    use crate::theme::{ColorTier, ThemeCatalog};
    use vramlab_allocator::units::Bytes;

    #[test]
    fn the_line_ends_at_areas_or_goes_through_them_where_they_reach_the_top() {
        let tokens = [Token::Allocated, Token::AllocatedSwing, Token::Stranded, Token::Reserved, Token::Allocated];
        for name in ["dark", "light"] {
            let (theme, _) = ThemeCatalog::default().load(name, ColorTier::True).unwrap();
            for height in 1..=13 {
                let mut stack = Stack::default();
                tokens.iter().for_each(|token| stack.add(Bytes(height), Ink { token: *token, fill: "█" }));
                let mut buf = Buffer::empty(Rect::new(0, 0, 3, 8));
                areas(&[stack.clone(), stack.clone(), stack], Bytes(64), &theme, buf.area, &mut buf);
                let plain = buf.clone();
                cursor(buf.area, 1, None, &theme, &mut buf);
                let has_air = CellContent::of(&plain[(1, 0)], &theme) == CellContent::Nothing;
                assert_eq!(has_air, height < 12);
                let (slit, air) = (theme.color(Token::Surface), theme.color(Token::Key));
                for y in 0..8 {
                    let (cell, before) = (&buf[(1, y)], &plain[(1, y)]);
                    match CellContent::of(before, &theme) {
                        CellContent::Nothing => assert_eq!((cell.symbol(), cell.fg), ("│", air), "{height}: {y}"),
                        CellContent::Whole(_) if has_air => assert_eq!(cell, before, "{height}: {y}"),
                        CellContent::Whole(color) => {
                            assert_eq!((cell.symbol(), cell.fg, cell.bg), ("│", slit, color), "{height}: {y}");
                        }
                        CellContent::Shared => assert_eq!(cell, before, "{height}: {y}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_word_below_makes_way_for_the_foot_or_keeps_its_letter() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        for (x, text, row, reversed) in [
            (1, "│backward──", "│▲backward─", false),
            (3, "│forw──────", "│──▲forw───", false),
            (8, "│──forward│", "│forward▲─│", false),
            (3, "│backward──", "│backward──", true),
            (8, "│zero_grad│", "│zero_grad│", true),
            (9, "│backward──", "│backward▲─", false),
        ] {
            let mut buf = Buffer::empty(Rect::new(0, 0, 11, 2));
            let mut stack = Stack::default();
            stack.add(Bytes(8), Ink { token: Token::Allocated, fill: "█" });
            let plot = Rect { height: 1, ..buf.area };
            areas(&vec![stack; 11], Bytes(8), &theme, plot, &mut buf);
            buf.set_string(0, 1, text, theme.style(Token::Dim));
            cursor(plot, x, Some(1), &theme, &mut buf);
            let drawn: String = (0..11).map(|x| buf[(x, 1)].symbol()).collect();
            assert_eq!(buf[(x, 1)].modifier.contains(Modifier::REVERSED), reversed, "{x}");
            assert_eq!(drawn, row, "{x}");
        }
    }

    #[test]
    fn where_areas_reach_the_top_the_foot_stands_below_and_areas_stay_as_they_are() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        for (mib, foot) in [(8, "▲"), (4, " ")] {
            let mut stack = Stack::default();
            stack.add(Bytes(mib), Ink { token: Token::Allocated, fill: "█" });
            let mut buf = Buffer::empty(Rect::new(0, 0, 3, 9));
            let plot = Rect { height: 8, ..buf.area };
            areas(&[stack.clone(), stack.clone(), stack], Bytes(8), &theme, plot, &mut buf);
            let plain = buf.clone();
            cursor(plot, 1, Some(8), &theme, &mut buf);
            assert_eq!(buf[(1, 8)].symbol(), foot);
            let line = (0..8).filter(|y| buf[(1, *y)] != plain[(1, *y)]).count();
            assert_eq!(line as u64, 8 - mib, "a line in the air");
        }
    }
}
