//! An entry in the list of screens.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::Binding;
use crate::tui::copied::Clipping;
use crate::tui::large::Large;
use crate::tui::stage::{FrameLayout, Stage};
use crate::tui::states::Wants;

/// A screen. Header, footer, cursor, help and dialogs belong to no screen.
pub(crate) struct Screen {
    /// The key that shows it.
    pub key: char,
    /// Its name in the header.
    pub title: &'static str,
    /// Draws the screen, and returns its layout for clicks and keys.
    pub draw: fn(&Stage<'_>, Rect, &mut Buffer) -> FrameLayout,
    /// The study that it wants of the run.
    pub wants: Wants,
    /// The text to copy: its selection, or its content.
    pub copied: fn(&Stage<'_>) -> Clipping,
    /// Its figures for an audience, the most important first.
    pub large: &'static [Large],
    /// Keys that act on it alone.
    pub bindings: fn() -> Vec<Binding>,
}
