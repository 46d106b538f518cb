//! Why an epoch can't be simulated.

use thiserror::Error;

use crate::session::BuildError;
use crate::train::TrainError;
use crate::whatif::NotRepeated;

/// Why an epoch can't be simulated.
#[derive(Debug, Error)]
pub enum EpochError {
    /// The model can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A step can't run, with any amount of memory.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Steps differ where they should be alike.
    #[error(transparent)]
    NotRepeated(#[from] NotRepeated),
    /// The requests of its steps take more memory than the program reserves for them.
    #[error("its batches have too many different lengths; give fewer --steps, or a part of the file")]
    TooManyLengths,
}
