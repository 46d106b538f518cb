//! Why a snapshot file can't be read.

use std::io;

use thiserror::Error;

use super::pickle::PickleError;

/// A snapshot that can't be read.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file can't be opened.
    #[error("{0}. Check the path.")]
    // The message tells the cause already, so that it is no source as well.
    Open(io::Error),
    /// It is no pickle, or damaged.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// It is a pickle of something else.
    #[error("the pickle {0}. Pass a file written by torch.cuda.memory._dump_snapshot().")]
    Shape(String),
    /// It is compressed in a way that is not read.
    #[error("it is a {name} file, which is not read. {remedy}")]
    Compressed {
        /// The format.
        name: &'static str,
        /// What to do, as a sentence.
        remedy: &'static str,
    },
    /// Its compression asks for too much memory.
    #[error("its xz dictionary takes {0} bytes. Compress it again with xz -9 or lower.")]
    Dictionary(u64),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        Self::Open(error)
    }
}
