//! What the list of screens knows of each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::tui::action::Binding;
use crate::tui::copied::Clipping;
use crate::tui::large::Large;
use crate::tui::stage::{FrameLayout, Stage};
use crate::tui::states::Wants;

/// A screen. Header, footer, cursor, help and dialogs belong to none.
pub(crate) struct Screen {
    /// The key that shows it.
    pub key: char,
    /// Its name in the header.
    pub title: &'static str,
    /// Draws it; says what clicks and keys need to know of it.
    pub draw: fn(&Stage<'_>, Rect, &mut Buffer) -> FrameLayout,
    /// What it wants studied of the run.
    pub wants: Wants,
    /// What is selected on it, or what it tells, to be copied.
    pub copied: fn(&Stage<'_>) -> Clipping,
    /// Its figures that an audience should read, the most telling first.
    pub large: &'static [Large],
    /// Keys that act on it alone.
    pub bindings: fn() -> Vec<Binding>,
}
