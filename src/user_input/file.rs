//! Opens and reads a user's files, so that no file can hang the program or fill its memory.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

/// The largest file that is read, in bytes: a hundred times as large as needed.
pub const LARGEST_FILE: u64 = 1 << 20;

/// Why a file is not read.
#[derive(Debug, Error)]
pub enum FileError {
    /// The system refuses to read it.
    #[error("{} can't be read ({reason}); correct or remove it", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// It is a folder, a pipe or a device.
    #[error("{} is no regular file; use a text file, or leave it out", .path.display())]
    Irregular {
        /// Its path.
        path: PathBuf,
    },
    /// It is larger than [`LARGEST_FILE`].
    #[error("{} is larger than 1 MiB; shorten it, or leave it out", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is not UTF-8.
    #[error("{} is no UTF-8 text; save it as UTF-8, or leave it out", .path.display())]
    NoText {
        /// The file.
        path: PathBuf,
    },
}

/// Opens a regular file for reading, and returns its metadata. Opening never waits, even for a pipe.
///
/// # Errors
/// [`FileError`].
pub fn open_file(path: &Path) -> Result<(File, Metadata), FileError> {
    let unreadable = |reason| FileError::Unreadable { path: path.to_owned(), reason };
    let regular = |metadata: Metadata| {
        if metadata.is_file() { Ok(metadata) } else { Err(FileError::Irregular { path: path.to_owned() }) }
    };
    // Opening a device can have effects, so the file's type is checked before. It may change in between, so it is
    // checked afterwards, too.
    regular(fs::metadata(path).map_err(unreadable)?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let metadata = regular(file.metadata().map_err(unreadable)?)?;
    Ok((file, metadata))
}

/// The text of a regular file of at most [`LARGEST_FILE`] bytes.
///
/// # Errors
/// [`FileError`].
pub fn read_text(path: &Path) -> Result<String, FileError> {
    let (file, _) = open_file(path)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed shows that a file is too large, or is growing.
    let read = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes);
    let len = read.map_err(|reason| FileError::Unreadable { path: path.to_owned(), reason })?;
    if len as u64 > LARGEST_FILE {
        return Err(FileError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|_| FileError::NoText { path: path.to_owned() })
}
