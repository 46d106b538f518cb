//! What a key does while a dialog is open.

use std::path::PathBuf;
use std::sync::Arc;

use crate::drawing::theme::Theme;
use crate::source::Request;
use crate::tui::palette::{Offer, OnEnter};
use crate::tui::states::Lookup;

/// What a key did.
pub(crate) enum LayerResponse {
    /// It is not for the layer.
    Passed,
    /// The layer took it.
    Taken,
    /// The layer is done with.
    Closed,
    /// And asks for something.
    Done(Vec<Request>),
    /// The screen is to wear this theme; the layer may be done with.
    Wear {
        /// The theme.
        theme: Box<Theme>,
        /// The layer closes.
        done: bool,
        /// It is to be worn from now on, whenever the program starts.
        keep: bool,
    },
    /// What is shown scrolls by so many rows, or pages.
    Scroll { by: i32, pages: bool },
    /// This file is to be compared.
    Compare(PathBuf),
    /// A path begins so: what may follow?
    Complete(String),
    /// This text is to be copied.
    Copy(String),
    /// Something else is looked for from now on; the layer may be done with.
    Filter { of: Lookup, text: Arc<str>, done: bool },
    /// This was found, and is to be done.
    Pick(Box<Offer>),
    /// The key that was found is pressed.
    Do(OnEnter),
    /// Leave the program.
    Leave,
}
