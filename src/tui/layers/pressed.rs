//! The response of a layer to a key.

use std::path::PathBuf;
use std::sync::Arc;

use crate::drawing::theme::Theme;
use crate::source::Request;
use crate::tui::palette::{Offer, OnEnter};
use crate::tui::states::Lookup;

/// The response of a layer.
pub(crate) enum LayerResponse {
    /// The key is not for the layer.
    Passed,
    /// The layer took it.
    Taken,
    /// The layer closes.
    Closed,
    /// The layer closes and sends requests.
    Done(Vec<Request>),
    /// The screen uses this theme from now on.
    Wear {
        /// The theme.
        theme: Box<Theme>,
        /// True if the layer closes.
        done: bool,
        /// True if the theme is kept for later starts of the program.
        keep: bool,
    },
    /// The layer scrolls by this many rows, or pages.
    Scroll { by: i32, pages: bool },
    /// Compare with this file.
    Compare(PathBuf),
    /// Complete this path.
    Complete(String),
    /// Copy this text.
    Copy(String),
    /// Filter by this text from now on; the layer may close.
    Filter { of: Lookup, text: Arc<str>, done: bool },
    /// Perform this pick.
    Pick(Box<Offer>),
    /// Press the key that was found.
    Do(OnEnter),
    /// Leave the program.
    Leave,
}
