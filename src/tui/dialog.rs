//! What keys ask for while a dialog is open.

/// What a key asks of the dialog on top. Where text is written, characters are text even where they are bound to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialogAction {
    /// Take what is written or chosen, and close.
    Apply,
    /// Leave it as it was, and close.
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
    /// Search what is shown.
    Search,
    /// Its other part.
    Part,
    /// Take away what is written.
    Clear,
}

impl DialogAction {
    /// The word by which settings name it.
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
