//! Errors that end a search.

use thiserror::Error;

use crate::session::BuildError;
use crate::train::TrainError;

/// A probe neither fit nor ran out of memory.
#[derive(Debug, Error)]
pub enum FitError {
    /// The model can't be built, or its device can't be used.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A step failed for a reason other than memory.
    #[error(transparent)]
    Step(#[from] TrainError),
}
