//! Why a snapshot file can't be read.

use std::io;

use thiserror::Error;

use super::pickle::PickleError;

/// Why a snapshot can't be read.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file can't be opened.
    #[error("{0}. Check the path.")]
    // The message includes the cause, so the cause is not reported as a source as well.
    Open(io::Error),
    /// The file is not a pickle, or is damaged.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// The pickle holds something else.
    #[error("the pickle {0}. Pass a file written by torch.cuda.memory._dump_snapshot().")]
    Shape(String),
    /// The file is compressed in a format that is not read.
    #[error("it is a {name} file, which is not read. {remedy}")]
    Compressed {
        /// The format.
        name: &'static str,
        /// What the user can do, as a sentence.
        remedy: &'static str,
    },
    /// The compression needs too much memory: bytes of its dictionary.
    #[error("its xz dictionary takes {0} bytes. Compress it again with xz -9 or lower.")]
    Dictionary(u64),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Open(error)
    }
}
