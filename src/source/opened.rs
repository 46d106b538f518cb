//! Files of any kind that can be opened.

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

/// Why files are not opened.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is no recording, or one that can't be read from the start.
    #[error(transparent)]
    Recording(RecordingError),
    /// It begins as nothing that is read.
    #[error("it is neither a recording of vramlab nor a PyTorch snapshot; name one of those")]
    Neither,
    /// It is no snapshot that can be looked at.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// Only snapshots and the ranks of one run are looked at together.
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

/// Opens a recording, recordings of the ranks of one run, or PyTorch snapshots: the ranks of one job, or runs to look at together.
/// `-` is the standard input.
/// Where it `follows`, what is written to a recording later comes too.
///
/// # Errors
/// [`FileError`], and which file it is about.
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

/// Which of several files open side by side: the first, with a snapshot all other snapshots, and with a recording of a rank those
/// of the other ranks. And which are compared with it: what is left, and further snapshots too, of which nobody knows whether they
/// are ranks of one job or runs of their own.
#[must_use]
pub fn side_by_side(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    // What comes through a pipe comes once: it can't be looked at before it is read.
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

/// A file whose first bytes were looked at.
struct SniffedFile {
    /// It begins as a snapshot does.
    snapshot: bool,
    source: BufReader<Box<dyn Read + Send>>,
    /// Bytes of it that were read.
    done: Arc<AtomicU64>,
    /// Bytes that it has, where that is known.
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
