//! What the colours of a map mean, in as many lines as it takes.

use ratatui::text::Span;

use crate::tui::figures::Unit;
use crate::tui::pane::span;
use crate::tui::theme::{Theme, Token};
use crate::units::Bytes;

/// A mark, what it stands for, and how much that is.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub mark: Span<'static>,
    pub label: String,
    pub bytes: Bytes,
}

/// The entries in lines of `width` cells; with their bytes where those have a unit.
pub(crate) fn lines(entries: Vec<Entry>, unit: Option<Unit>, theme: &Theme, width: usize) -> Vec<Vec<Span<'static>>> {
    let mut lines: Vec<Vec<Span<'static>>> = vec![Vec::new()];
    let mut used = 0;
    let count = entries.len();
    for (index, Entry { mark, label, bytes }) in entries.into_iter().enumerate() {
        let mut entry = vec![mark, span(theme, Token::Dim, format!(" {label} "))];
        if let Some(unit) = unit {
            entry.push(span(theme, Token::Text, format!("{:>5} ", unit.figure(bytes))));
            if index + 1 == count {
                entry.push(span(theme, Token::Dim, unit.name()));
            }
        }
        let cells: usize = entry.iter().map(Span::width).sum();
        let air = usize::from(used > 0 && unit.is_some());
        // The last space of a line may fall off.
        if used + air + cells > width + 1 && used > 0 {
            lines.push(Vec::new());
            used = 0;
        } else if air > 0 {
            entry.insert(0, Span::raw(" "));
        }
        used += entry.iter().map(Span::width).sum::<usize>();
        if let Some(line) = lines.last_mut() {
            line.extend(entry);
        }
    }
    lines
}
