//! Mistakes on the command line that clap can't detect.

use thiserror::Error;

/// The command line requests something impossible; exit code 2. The text is one sentence that says what is wrong and
/// one that says what would be right.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Usage(pub String);
