//! The actions of keys while a dialog is open.

/// An action for the dialog on top. While text is written, characters are text even if they are bound to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogAction {
    /// Confirm the text or choice, and close.
    Apply,
    /// Discard the changes, and close.
    Cancel,
    /// The next line or entry.
    Next,
    /// The line or entry before.
    Previous,
    /// The next page.
    PageDown,
    /// The page before.
    PageUp,
    /// The first line or entry.
    First,
    /// The last line or entry.
    Last,
    /// Search the dialog.
    Search,
    /// Switch to the dialog's other part.
    Part,
    /// Clear the text.
    Clear,
}

impl DialogAction {
    /// The word for it in settings.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Apply => "dialog-apply",
            Self::Cancel => "dialog-cancel",
            Self::Next => "dialog-next",
            Self::Previous => "dialog-previous",
            Self::PageDown => "dialog-page-down",
            Self::PageUp => "dialog-page-up",
            Self::First => "dialog-first",
            Self::Last => "dialog-last",
            Self::Search => "dialog-search",
            Self::Part => "dialog-part",
            Self::Clear => "dialog-clear",
        }
    }
}
