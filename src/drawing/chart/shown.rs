//! What a cell of a plot shows, read back from it, so that what is drawn over areas leaves them as they are.

use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

use crate::theme::{Theme, Token};

/// Parts of a cell, from the bottom.
pub const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// A grid line: at the lower edge of its cell, where the value of its tick stands.
pub(super) const GRID: &str = "▁";
/// The same where the value is that of its middle.
pub(super) const GRID_MIDDLE: &str = "─";

/// What a cell of a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellContent {
    /// Nothing, or a grid line.
    Nothing,
    /// One part alone, in its colour.
    Whole(Color),
    /// More than one thing: the end of a part, or something drawn over it.
    Shared,
}

impl CellContent {
    pub(super) fn of(cell: &Cell, theme: &Theme) -> Self {
        let symbol = cell.symbol();
        let bare = theme.is_ground(cell.bg);
        if symbol == " " && bare || matches!(symbol, GRID | GRID_MIDDLE) && bare && is_grid(cell, theme) {
            return Self::Nothing;
        }
        if theme.is_colorless() {
            let overlay = symbol == GRID || is_braille(symbol) || symbol == "│";
            return if overlay { Self::Shared } else { Self::Whole(Color::Reset) };
        }
        match symbol {
            "█" => Self::Whole(cell.fg),
            // A line between two parts lies within the upper one.
            GRID if cell.modifier.contains(Modifier::REVERSED) => Self::Whole(cell.fg),
            GRID if !bare && theme.is_ground(cell.fg) => Self::Whole(cell.bg),
            _ => Self::Shared,
        }
    }
}

pub(super) fn is_grid(cell: &Cell, theme: &Theme) -> bool {
    !cell.modifier.contains(Modifier::REVERSED) && cell.fg == theme.color(Token::Border)
}

/// Whether a symbol is made of braille dots.
pub(super) fn is_braille(symbol: &str) -> bool {
    symbol.chars().next().is_some_and(|symbol| ('\u{2800}'..='\u{28ff}').contains(&symbol))
}

/// The eighth in which the lower of two parts ends that share a cell, or a part below what is blank; `None` of what is drawn over areas.
pub(super) fn end_of(cell: &Cell) -> Option<usize> {
    EIGHTHS[1..8].iter().position(|symbol| *symbol == cell.symbol()).map(|place| place + 1)
}

/// Draws a symbol in the colour of `token`, and leaves what the cell shows as its ground. What is shared stays as it is.
pub(super) fn draw_over(cell: &mut Cell, symbol: &str, token: Token, theme: &Theme) {
    match CellContent::of(cell, theme) {
        CellContent::Nothing => {
            cell.set_symbol(symbol).set_style(theme.style(token));
        }
        CellContent::Whole(ground) => {
            let seen = theme.reads_on(token, ground);
            let ink = if seen || !theme.paints() { theme.color(token) } else { theme.color(Token::Surface) };
            cell.modifier.remove(Modifier::REVERSED);
            cell.set_symbol(symbol).set_style(theme.style(token)).set_fg(ink);
            if ground != Color::Reset {
                cell.set_bg(ground);
            }
        }
        CellContent::Shared => {}
    }
}
