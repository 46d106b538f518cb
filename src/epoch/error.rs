//! Why an epoch is not simulated.

use thiserror::Error;

use crate::session::BuildError;
use crate::train::TrainError;
use crate::whatif::NotRepeated;

/// Why an epoch is not simulated.
#[derive(Debug, Error)]
pub enum EpochError {
    /// The model can't be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A step can't be run, with any memory.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Steps are not alike.
    #[error(transparent)]
    NotRepeated(#[from] NotRepeated),
    /// What its steps ask for takes more memory than is taken for it.
    #[error("its batches have too many different lengths; give fewer --steps, or a part of the file")]
    TooManyLengths,
}
