//! Text that is written into a dialog.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::user_input::is_safe;

/// Ctrl-C: it leaves the program from everywhere.
pub(super) fn leaves(key: KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

/// What a key does to a line that is being written; false where it is no text.
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

/// Adds a character, where a line of so many bytes may have it.
pub(super) fn push(line: &mut String, symbol: char, longest: usize) {
    if is_safe(symbol) && line.len() < longest {
        line.push(symbol);
    }
}

/// The end of a line that has so many cells: it is what is being written.
pub(super) fn end_of(line: &str, cells: usize) -> String {
    line.chars().skip(line.chars().count().saturating_sub(cells)).collect()
}
