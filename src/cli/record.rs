//! Where a recording goes: never in the place of a file that is there.

use std::path::Path;

use eyre::{Result, WrapErr};

use super::Usage;
use crate::source::Recorder;

/// Refuses a file that is there.
///
/// # Errors
/// [`Usage`].
pub(super) fn refuse_existing(path: &Path) -> Result<()> {
    if path.exists() {
        return Err(Usage(format!("{} is there already; give --record another name", path.display())).into());
    }
    Ok(())
}

/// Begins a recording at `path`; `-` is the standard output.
///
/// # Errors
/// [`Usage`] for a file that is there, others for a place that can't be written to.
pub(super) fn create(path: &Path) -> Result<Recorder> {
    if path != Path::new("-") {
        refuse_existing(path)?;
    }
    Recorder::create(path).wrap_err_with(|| format!("{} can't be recorded to", path.display()))
}
