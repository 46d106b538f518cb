//! The line of the cursor.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::shown::{Shown, draw_over, is_braille};
use crate::theme::{Theme, Token};

/// Draws a line from top to bottom of column `x` of a plot. Areas keep their colours and ends behind it: where two of them share a
/// cell the line is interrupted, and where letters tell them apart they are reversed.
pub fn cursor(plot: Rect, x: u16, theme: &Theme, buf: &mut Buffer) {
    for y in plot.top()..plot.bottom() {
        let Some(cell) = buf.cell_mut((plot.x + x, y)) else { continue };
        // Dots too, which are areas or a curve.
        if theme.is_colorless() && (matches!(Shown::of(cell, theme), Shown::Whole(_)) || is_braille(cell.symbol())) {
            cell.modifier.insert(Modifier::REVERSED);
        } else {
            draw_over(cell, "│", Token::Key, theme);
        }
    }
}
