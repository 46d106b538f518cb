//! Creates recordings, and never overwrites a file.

use std::path::Path;

use color_eyre::eyre::{Result, WrapErr};

use super::Usage;
use crate::source::Recorder;

/// Refuses a path at which a file exists.
///
/// # Errors
/// [`Usage`].
pub(super) fn refuse_existing(path: &Path) -> Result<()> {
    if path.exists() {
        return Err(Usage(format!("{} is there already; give --record another name", path.display())).into());
    }
    Ok(())
}

/// Starts a recording at `path`; `-` is standard output.
///
/// # Errors
/// [`Usage`] if the file exists; other errors if it can't be written.
pub(super) fn create(path: &Path) -> Result<Recorder> {
    if path != Path::new("-") {
        refuse_existing(path)?;
    }
    Recorder::create(path).wrap_err_with(|| format!("{} can't be recorded to", path.display()))
}
