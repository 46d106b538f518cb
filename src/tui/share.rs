//! A bar by category, to an eighth of a cell: a row's share of a whole, and its categories.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::drawing::legend;
use crate::drawing::pane::put;
use crate::drawing::theme::{Theme, Token};
use crate::model::Category;
use crate::units::Bytes;

const EIGHTHS: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// Draws `parts` of `whole` as a bar; the whole fills `area`. A cell shows two parts: of more, the smallest are hidden,
/// but never blank space.
pub(crate) fn draw(parts: &[Bytes; Category::ALL.len()], whole: Bytes, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let (full, whole) = (u128::from(area.width) * 8, u128::from(whole.get().max(1)));
    let mut sum = 0u128;
    let ends = parts.map(|bytes| {
        sum += u128::from(bytes.get());
        ((sum * full + whole / 2) / whole).min(full)
    });
    for x in 0..area.width {
        let (from, to) = (u128::from(x) * 8, u128::from(x) * 8 + 8);
        let mut begin = 0;
        let inside = Category::ALL.into_iter().zip(ends).map(|(category, end)| {
            let eighths = end.clamp(from, to) - begin.max(from).min(to);
            begin = end;
            (category, eighths as usize)
        });
        let mut shown: Vec<(Category, usize)> = inside.filter(|(_, eighths)| *eighths > 0).collect();
        let filled: usize = shown.iter().map(|(_, eighths)| eighths).sum();
        let most = if filled < 8 { 1 } else { 2 };
        while shown.len() > most {
            let least = shown.iter().enumerate().min_by_key(|(_, (_, eighths))| *eighths).map_or(0, |(place, _)| place);
            shown.remove(least);
        }
        let Some(&(first, eighths)) = shown.first() else { break };
        let cell = &mut buf[(area.x + x, area.y)];
        if theme.is_colorless() {
            // A letter can't fill part of a cell.
            if filled >= 4 {
                let most =
                    shown.iter().rev().max_by_key(|(_, eighths)| *eighths).map_or(first, |(category, _)| *category);
                cell.set_symbol(legend::category_letter(most));
            }
            continue;
        }
        let style = Style::new().fg(theme.color(first.into()));
        match shown.get(1) {
            Some((second, _)) => {
                cell.set_symbol(EIGHTHS[eighths.min(8)]).set_style(style.bg(theme.color((*second).into())));
            }
            None => {
                cell.set_symbol(EIGHTHS[filled]).set_style(style);
            }
        }
    }
}

/// Draws `part` of `whole` as a bar in one colour; the whole fills `area`. A value above zero is always visible.
pub(crate) fn draw_plain(part: u64, whole: u64, token: Token, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let eighths = (u128::from(part) * u128::from(area.width) * 8).div_ceil(u128::from(whole.max(1))) as usize;
    let rest = if eighths.is_multiple_of(8) { "" } else { EIGHTHS[eighths % 8] };
    let text = format!("{}{rest}", "█".repeat(eighths / 8));
    put(area, 0, vec![Span::styled(text, Style::new().fg(theme.color(token)))], buf);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};

    proptest! {
        #[test]
        fn a_bar_is_as_long_as_its_bytes_and_so_are_its_parts(
            parts in prop::collection::vec(prop_oneof![Just(0u64), 1u64..1 << 32], 9), room in 0u64..1 << 34, width in 1u16..60,
        ) {
            let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
            let bytes: [Bytes; 9] = std::array::from_fn(|place| Bytes(parts[place]));
            let sum: u64 = parts.iter().sum();
            let whole = (sum + room).max(1);
            let mut buf = Buffer::empty(Rect::new(0, 0, width, 1));
            draw(&bytes, Bytes(whole), &theme, buf.area, &mut buf);
            let mut drawn = [0usize; 9];
            for cell in buf.content() {
                let eighths = EIGHTHS.iter().position(|glyph| *glyph == cell.symbol()).unwrap();
                for (place, category) in Category::ALL.into_iter().enumerate() {
                    let color = theme.color(category.into());
                    drawn[place] += if eighths > 0 && cell.fg == color { eighths } else { 0 };
                    drawn[place] += if cell.bg == color { 8 - eighths } else { 0 };
                }
            }
            let exact = |bytes: u64| bytes as f64 / whole as f64 * f64::from(width) * 8.0;
            let all: usize = drawn.iter().sum();
            prop_assert!((all as f64 - exact(sum)).abs() <= 1.0, "{all} for {}", exact(sum));
            for (drawn, bytes) in drawn.into_iter().zip(parts) {
                // Within a cell at each end.
                prop_assert!((drawn as f64 - exact(bytes)).abs() <= 14.0, "{drawn} for {}", exact(bytes));
            }
        }
    }

    #[test]
    fn rows_that_differ_have_bars_that_differ() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let bar = |hundredths: u64| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 5, 1));
            let mut parts = [Bytes::ZERO; 9];
            parts[Category::Activation as usize] = Bytes(hundredths);
            draw(&parts, Bytes(397), &theme, buf.area, &mut buf);
            buf.content().iter().map(|cell| cell.symbol()).collect::<String>()
        };
        let bars = [397, 307, 225, 117, 94, 57, 46].map(bar);
        assert!(bars.windows(2).all(|pair| pair[0] != pair[1]), "{bars:?}");
    }
}
