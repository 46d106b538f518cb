//! What keeps a search from going on.

use thiserror::Error;

use crate::session::BuildError;
use crate::train::TrainError;

/// A probe neither fitted nor ran out of memory.
#[derive(Debug, Error)]
pub enum FitError {
    /// The model or its device can't be had.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A step failed for another reason than memory.
    #[error(transparent)]
    Step(#[from] TrainError),
}
