//! A bar of a row, to an eighth of a cell.

use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::drawing::theme::{Theme, Token};

/// A bar that fills `share` of `cells`.
pub(super) fn bar(share: f64, cells: u16, theme: &Theme, token: Token) -> Vec<Span<'static>> {
    let style = Style::new().fg(theme.color(token));
    let (whole, rest) = length(share, 1.0, cells);
    // Reversed blanks show full cells in one byte each, where a block character takes three: a screen of bars has hundreds.
    vec![Span::styled(" ".repeat(whole), style.add_modifier(Modifier::REVERSED)), Span::styled(rest, style)]
}

/// A bar of `cells` at `full`: its number of whole cells, and its end to an eighth of a cell.
fn length(value: f64, full: f64, cells: u16) -> (usize, &'static str) {
    if full <= 0.0 || value <= 0.0 {
        return (0, "");
    }
    let eighths = ((value / full).min(1.0) * f64::from(cells) * 8.0).round() as usize;
    (eighths / 8, ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share_of_the_most() {
        assert_eq!(length(5.0, 10.0, 4), (2, ""));
        assert_eq!(length(10.0, 10.0, 4), (4, ""));
        assert_eq!(length(1.0, 16.0, 4), (0, "▎"));
        assert_eq!(length(20.0, 10.0, 2), (2, ""), "no longer than its room");
        assert_eq!((length(0.0, 10.0, 4), length(3.0, 0.0, 4)), ((0, ""), (0, "")));
    }
}
