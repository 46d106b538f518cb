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
pub(super) enum Shown {
    /// Nothing, or a grid line.
    Nothing,
    /// One part alone, in its colour.
    Whole(Color),
    /// More than one thing: the end of a part, or something drawn over it.
    Shared,
}

impl Shown {
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

/// The colour of the larger of two parts that share a cell, or what is blank above one; `None` of what is drawn over areas.
pub(super) fn larger_part(cell: &Cell) -> Option<Color> {
    let eighths = EIGHTHS[1..8].iter().position(|symbol| *symbol == cell.symbol())? + 1;
    Some(if eighths >= 4 { cell.fg } else { cell.bg })
}

/// Gives a cell that two parts share to the larger of them.
pub(super) fn give_to_larger(cell: &mut Cell, theme: &Theme) {
    let Some(color) = larger_part(cell).filter(|_| Shown::of(cell, theme) == Shown::Shared) else { return };
    if theme.is_ground(color) {
        cell.set_symbol(" ").set_bg(color);
    } else {
        cell.set_symbol("█").set_fg(color);
    }
}

/// Draws a symbol in the colour of `token`, and leaves what the cell shows as its ground. What is shared stays as it is.
pub(super) fn draw_over(cell: &mut Cell, symbol: &str, token: Token, theme: &Theme) {
    match Shown::of(cell, theme) {
        Shown::Nothing => {
            cell.set_symbol(symbol).set_style(theme.style(token));
        }
        Shown::Whole(ground) => {
            let seen = theme.reads_on(token, ground);
            let ink = if seen || !theme.paints() { theme.color(token) } else { theme.color(Token::Surface) };
            cell.modifier.remove(Modifier::REVERSED);
            cell.set_symbol(symbol).set_style(theme.style(token)).set_fg(ink);
            if ground != Color::Reset {
                cell.set_bg(ground);
            }
        }
        Shown::Shared => {}
    }
}
