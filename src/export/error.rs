//! The errors of exports.

use std::io;

use thiserror::Error;

use crate::recording::RecordingError;

/// Why an export failed.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The events can't be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The system refuses to write.
    #[error("the export can't be written; make room, or give --out another place")]
    Unwritable(#[from] io::Error),
    /// A file of that name exists.
    #[error("it is there already; give --out another name, or --force to replace it")]
    Exists,
}
