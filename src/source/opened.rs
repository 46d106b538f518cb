//! Opens files of any kind.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use super::counted::MeteredReader;
use super::file::{of_reader, recording};
use super::handle::Source;
use super::opening;
use super::rank_files;
use super::snapshot::{OpenError, OpenSnapshot, is_snapshot, keep};
use vramlab_allocator::TorchVersion;
use vramlab_recording::RecordingError;
use vramlab_snapshot::Snapshot;

/// Why files can't be opened.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is not a recording, or can't be read from the start.
    #[error(transparent)]
    Recording(RecordingError),
    /// Its first bytes match no known kind of file.
    #[error("it is neither a recording of vramlab nor a PyTorch snapshot; name one of those")]
    Neither,
    /// It is a snapshot, but can't be opened.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// Only snapshots, or the ranks of one run, open together.
    #[error(
        "it is neither a PyTorch snapshot nor a recording of a rank, and only those open side by side; open it alone, or use \
         `vramlab compare`"
    )]
    Alone,
    /// It is still being written.
    #[error("recordings of several ranks open once they are whole; leave --follow out, or open one")]
    Grows,
}

impl From<RecordingError> for FileError {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::NoRecording => Self::Neither,
            error => Self::Recording(error),
        }
    }
}

/// Opens a recording, recordings of the ranks of one run, or PyTorch snapshots: the ranks of one job, or runs to view
/// together. `-` is the standard input. If it `follows`, later additions to a recording are shown too.
///
/// # Errors
/// [`FileError`], and the file that it is about.
pub fn open(paths: &[PathBuf], follows: bool, torch: Option<TorchVersion>) -> Result<Source, (PathBuf, FileError)> {
    if let [path] = paths {
        return one(path, follows, torch).map_err(|error| (path.clone(), error));
    }
    let first = paths.first().map(|path| (path, look(path).map(|looked| looked.snapshot)));
    if let Some((path, Ok(false))) = first {
        if follows {
            return Err((path.clone(), FileError::Grows));
        }
        let (_, strangers) = rank_files::belonging(path, &paths[1..]);
        return match strangers.into_iter().next() {
            Some(stranger) => Err((stranger, FileError::Alone)),
            None => rank_files::open(paths).map_err(|(path, error)| (path, error.into())),
        };
    }
    let mut files = Vec::new();
    for path in paths {
        match look(path) {
            Ok(SniffedFile { snapshot: true, source, .. }) => {
                let snapshot = Snapshot::read(source).map_err(|error| (path.clone(), OpenError::from(error).into()))?;
                files.push(OpenSnapshot::new(path, snapshot, torch));
            }
            Ok(_) => return Err((path.clone(), FileError::Alone)),
            Err(error) => return Err((path.clone(), error.into())),
        }
    }
    keep(files).map_err(|error| (paths.first().cloned().unwrap_or_default(), error.into()))
}

/// Divides several files into those that open together and those that are compared with them. The first file opens with
/// all other snapshots if it is a snapshot, or with the recordings of the other ranks if it is a recording of a rank.
/// All other files are compared, and further snapshots too, because nobody knows whether they are ranks of one job or
/// runs of their own.
#[must_use]
pub fn side_by_side(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    // A pipe can be read only once, so it can't be examined first.
    let snapshot = |path: &PathBuf| path.is_file() && look(path).is_ok_and(|looked| looked.snapshot);
    let Some((first, others)) = paths.split_first() else { return Default::default() };
    if first.is_file() && look(first).is_ok_and(|looked| !looked.snapshot) {
        let (mut beside, compared) = rank_files::belonging(first, others);
        beside.insert(0, first.clone());
        return (beside, compared);
    }
    let together = snapshot(first);
    let mut beside: Vec<PathBuf> = others.iter().filter(|path| together && snapshot(path)).cloned().collect();
    beside.insert(0, first.clone());
    (beside, others.to_vec())
}

fn one(path: &Path, follows: bool, torch: Option<TorchVersion>) -> Result<Source, FileError> {
    let SniffedFile { snapshot, source, done, length } = look(path)?;
    if snapshot {
        let part = move || length.map(|length| done.load(Ordering::Relaxed) as f64 / length as f64);
        return Ok(opening::open(path, source, part, torch)?);
    }
    if path == Path::new("-") {
        let name: Arc<str> = "-".into();
        return Ok(of_reader(source, name, false)?);
    }
    Ok(recording(path, follows)?)
}

/// A file whose first bytes were examined.
struct SniffedFile {
    /// True if it begins like a snapshot.
    snapshot: bool,
    source: BufReader<Box<dyn Read + Send>>,
    /// The number of bytes read so far.
    done: Arc<AtomicU64>,
    /// The length in bytes, if known.
    length: Option<u64>,
}

fn look(path: &Path) -> Result<SniffedFile, RecordingError> {
    let done = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&done);
    let each = move |bytes| {
        count.fetch_add(bytes, Ordering::Relaxed);
    };
    let (source, length): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
        (Box::new(MeteredReader { source: io::stdin(), each }), None)
    } else {
        let source = File::open(path).map_err(RecordingError::Unreadable)?;
        let length = source.metadata().ok().filter(|data| data.is_file() && data.len() > 0).map(|data| data.len());
        (Box::new(MeteredReader { source, each }), length)
    };
    let mut source = BufReader::with_capacity(1 << 16, source);
    let snapshot = is_snapshot(source.fill_buf().map_err(RecordingError::Unreadable)?);
    Ok(SniffedFile { snapshot, source, done, length })
}
