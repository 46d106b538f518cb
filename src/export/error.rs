//! What can be wrong with an export.

use std::io;

use thiserror::Error;

use crate::recording::RecordingError;

/// Why an export ended before its end.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The events can't be read on.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The system refuses to write on.
    #[error("the export can't be written; make room, or give --out another place")]
    Unwritable(#[from] io::Error),
    /// There is a file of that name.
    #[error("it is there already; give --out another name, or --force to replace it")]
    Exists,
}
