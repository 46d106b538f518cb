//! The screens: each is a file (or a folder of panes) and one line of the list.

pub(crate) mod lab;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::action::Binding;
use super::stage::{Layout, Stage};

/// A screen. Header, footer, cursor, help and dialogs belong to none.
pub(crate) struct Screen {
    /// The key that shows it.
    pub key: char,
    /// Its name in the header.
    pub title: &'static str,
    /// Draws it; says what clicks and keys need to know of it.
    pub draw: fn(&Stage<'_>, Rect, &mut Buffer) -> Layout,
    /// Keys that act on it alone.
    pub bindings: fn() -> Vec<Binding>,
}

/// Every screen, in the order of its tabs.
pub(crate) const SCREENS: &[Screen] = &[lab::SCREEN];
