//! Opening a snapshot file: plain or xz-compressed, told apart by its first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use lzma_rust2::XzReader;
use thiserror::Error;

use super::pickle::PickleError;
use super::{Snapshot, read};

const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// A decompressed snapshot may be this long: forty times the largest that we heard of.
const MAX_DECOMPRESSED: u64 = 32 << 30;
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
        if !head.starts_with(&XZ_MAGIC) {
            return read::snapshot(source);
        }
        if let Some(dictionary) = first_dictionary(head).filter(|size| *size > MAX_DICTIONARY) {
            return Err(SnapshotError::Dictionary(dictionary));
        }
        read::snapshot(XzReader::new(source, true).take(MAX_DECOMPRESSED))
    }
}

/// The dictionary size that the first block of an xz file asks for, if `head` reaches that far.
fn first_dictionary(head: &[u8]) -> Option<u64> {
    const STREAM_HEADER: usize = 12;
    const LZMA2: u8 = 0x21;
    let header_size = (usize::from(*head.get(STREAM_HEADER)?) + 1) * 4;
    let header = head.get(STREAM_HEADER..STREAM_HEADER + header_size)?;
    let flags = *header.get(1)?;
    let mut rest = header.get(2..)?;
    // Sizes of the block, if they are given, stand before the filters.
    for given in [0x40, 0x80] {
        if flags & given != 0 {
            variable_length(&mut rest)?;
        }
    }
    for _ in 0..=(flags & 3) {
        let filter = variable_length(&mut rest)?;
        let length = usize::try_from(variable_length(&mut rest)?).ok()?;
        let (properties, after) = rest.split_at_checked(length)?;
        if filter == u64::from(LZMA2) {
            let bits = u32::from(*properties.first()?);
            return Some(u64::from(2 | (bits & 1)).checked_shl(bits / 2 + 11).unwrap_or(u64::MAX));
        }
        rest = after;
    }
    None
}

/// xz's variable-length integers: seven bits a byte, lowest first.
fn variable_length(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}
