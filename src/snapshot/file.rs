//! Opening a snapshot file, plain or compressed. The first bytes tell which.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::compression::{Compression, Decompressed};
use super::error::SnapshotError;
use super::pickle::Plain;
use super::read::{self, Listener};
use super::types::Snapshot;

impl Snapshot {
    /// Reads a snapshot file: a pickle of protocol 0 to 5, plain or compressed with gzip, xz or zstd. Never executes anything.
    ///
    /// # Errors
    /// [`SnapshotError`] says what is wrong with the file, and where.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        // The pickle reader has a buffer of its own; this one only looks at the first bytes.
        Self::read(BufReader::with_capacity(1 << 16, File::open(path)?))
    }

    /// Reads a snapshot, plain or compressed with gzip, xz or zstd, from any source.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub fn read(mut source: impl BufRead) -> Result<Self, SnapshotError> {
        read(&mut source, None)
    }

    /// Like [`Snapshot::read`]. The `listener` hears of what has been read while the rest is still to come.
    ///
    /// # Errors
    /// As [`Snapshot::open`].
    pub fn read_aloud(mut source: impl BufRead, listener: &mut dyn Listener) -> Result<Self, SnapshotError> {
        read(&mut source, Some(listener))
    }
}

fn read(source: &mut dyn BufRead, listener: Option<&mut dyn Listener>) -> Result<Snapshot, SnapshotError> {
    let head = source.fill_buf()?;
    match Compression::of(head) {
        Compression::None => read::snapshot(&mut Plain(source), listener),
        Compression::Xz => read::snapshot(&mut Decompressed::xz(source), listener),
        Compression::Gzip => read::snapshot(&mut Decompressed::gzip(source), listener),
        Compression::Zstd => read::snapshot(&mut Decompressed::zstd(source)?, listener),
        Compression::Other(format) => Err(SnapshotError::Compressed { name: format.name, remedy: format.remedy }),
    }
}
