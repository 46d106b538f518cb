//! Text lines in dialogs.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::user_input::is_safe;

/// True for Ctrl-C, which leaves the program from everywhere.
pub(super) fn leaves(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// Applies a key to a line; returns false if it is not an editing key.
pub(super) fn write(line: &mut String, key: KeyEvent, longest: usize) -> bool {
    match key.code {
        KeyCode::Char(symbol) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
            push(line, symbol, longest);
        }
        KeyCode::Backspace => drop(line.pop()),
        _ => return false,
    }
    true
}

/// Adds a character, if the line stays within `longest` bytes.
pub(super) fn push(line: &mut String, symbol: char, longest: usize) {
    if is_safe(symbol) && line.len() < longest {
        line.push(symbol);
    }
}

/// The last `cells` cells of a line, where the writing goes on.
pub(super) fn end_of(line: &str, cells: usize) -> String {
    line.chars().skip(line.chars().count().saturating_sub(cells)).collect()
}
