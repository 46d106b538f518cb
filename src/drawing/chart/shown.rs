//! Reads back what a cell of a plot shows, so that lines drawn over areas leave the areas as they are.

use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

use crate::theme::{Theme, Token};

/// Glyphs for parts of a cell, from the bottom.
pub const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// A grid line at the lower edge of its cell, for a tick whose value is there.
pub(super) const GRID: &str = "▁";
/// A grid line in the middle of its cell.
pub(super) const GRID_MIDDLE: &str = "─";

/// The content of a plot's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellContent {
    /// Nothing, or a grid line.
    Nothing,
    /// One part alone, with its colour.
    Whole(Color),
    /// More than one thing: an area's end, or something drawn over an area.
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
            // A line between two parts is drawn within the upper part.
            GRID if cell.modifier.contains(Modifier::REVERSED) => Self::Whole(cell.fg),
            GRID if !bare && theme.is_ground(cell.fg) => Self::Whole(cell.bg),
            _ => Self::Shared,
        }
    }
}

pub(super) fn is_grid(cell: &Cell, theme: &Theme) -> bool {
    !cell.modifier.contains(Modifier::REVERSED) && cell.fg == theme.color(Token::Border)
}

/// True if a symbol is made of braille dots.
pub(super) fn is_braille(symbol: &str) -> bool {
    symbol.chars().next().is_some_and(|symbol| ('\u{2800}'..='\u{28ff}').contains(&symbol))
}

/// The eighth in which the lower of a cell's two parts ends, or a part below blank space; `None` for symbols drawn over areas.
pub(super) fn end_of(cell: &Cell) -> Option<usize> {
    EIGHTHS[1..8].iter().position(|symbol| *symbol == cell.symbol()).map(|place| place + 1)
}

/// Draws a symbol in the colour of `token` on a background of the cell's content. A shared cell stays as it is.
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
