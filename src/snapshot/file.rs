//! Opening a snapshot file: plain or xz-compressed, told apart by its first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use thiserror::Error;

use super::compression::{self, Packing, Unpacked};
use super::pickle::{PickleError, Plain};
use super::{Snapshot, read};

/// A dictionary may take this much memory: four times what `xz -9` uses.
const MAX_DICTIONARY: u64 = 256 << 20;

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

impl Snapshot {
    /// Reads a snapshot file: a pickle of protocol 0 to 5, plain or compressed with xz. Executes nothing.
    ///
    /// # Errors
    /// [`SnapshotError`] says what is wrong with the file, and where.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        // The pickle reader has a buffer of its own; this one only looks at the first bytes.
        Self::read(BufReader::with_capacity(1 << 16, File::open(path)?))
    }

    /// Reads a snapshot, plain or compressed with xz, from any source.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub fn read(mut source: impl BufRead) -> Result<Self, SnapshotError> {
        let head = source.fill_buf()?;
        match Packing::of(head) {
            Packing::None => read::snapshot(Plain(source)),
            Packing::Xz => match compression::first_dictionary(head).filter(|size| *size > MAX_DICTIONARY) {
                Some(dictionary) => Err(SnapshotError::Dictionary(dictionary)),
                None => read::snapshot(Unpacked::new(source)),
            },
            Packing::Other(format) => Err(SnapshotError::Compressed { name: format.name, remedy: format.remedy }),
        }
    }
}
