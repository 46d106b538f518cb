//! Why the screen can no longer be shown.

use std::io;

use thiserror::Error;

use crate::drawing::theme::ThemeError;

/// Why the screen can no longer be shown.
#[derive(Debug, Error)]
pub enum TuiError {
    /// The theme can't be loaded.
    #[error(transparent)]
    Theme(#[from] ThemeError),
    /// The terminal failed.
    #[error("the terminal does not answer ({0}); run in a terminal, or use `vramlab run` for plain output")]
    Terminal(#[source] io::Error),
    /// Signals can't be watched.
    #[error("signals can't be watched ({0}); free some threads and try again")]
    Signals(#[source] io::Error),
}
