//! Files to look at, whatever they are.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::file::{of_reader, recording};
use super::handle::Source;
use super::snapshot::{OpenError, Opened, is_snapshot, keep};
use crate::allocator::TorchVersion;
use crate::recording::RecordingError;
use crate::snapshot::Snapshot;

/// Why files are not opened.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is no recording, or one that can't be read from the start.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// It is no snapshot that can be looked at.
    #[error(transparent)]
    Snapshot(#[from] OpenError),
    /// Only snapshots are looked at together.
    #[error("it is no PyTorch snapshot, and only those open side by side; open it alone, or use `vramlab compare`")]
    Alone,
}

/// Opens a recording, or PyTorch snapshots: the ranks of one job, or runs to look at together. `-` is the standard input.
/// Where it `follows`, what is written to a recording later comes too.
///
/// # Errors
/// [`FileError`], and which file it is about.
pub fn open(paths: &[PathBuf], follows: bool, torch: Option<TorchVersion>) -> Result<Source, (PathBuf, FileError)> {
    if let [path] = paths {
        return one(path, follows, torch).map_err(|error| (path.clone(), error));
    }
    let mut files = Vec::new();
    for path in paths {
        match look(path) {
            Ok((true, source)) => {
                let snapshot = Snapshot::read(source).map_err(|error| (path.clone(), OpenError::from(error).into()))?;
                files.push(Opened::new(path, snapshot, torch));
            }
            Ok((false, _)) => return Err((path.clone(), FileError::Alone)),
            Err(error) => return Err((path.clone(), error.into())),
        }
    }
    keep(files).map_err(|error| (paths.first().cloned().unwrap_or_default(), error.into()))
}

/// Which of several files open side by side: the first, and with a snapshot all other snapshots. What is left can be compared
/// with them.
#[must_use]
pub fn side_by_side(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let is_piped = |path: &Path| path == Path::new("-");
    let snapshot = |path: &PathBuf| !is_piped(path) && look(path).is_ok_and(|(snapshot, _)| snapshot);
    let Some((first, others)) = paths.split_first() else { return Default::default() };
    let together = snapshot(first);
    let (mut beside, compared): (Vec<_>, Vec<_>) = others.iter().cloned().partition(|path| together && snapshot(path));
    beside.insert(0, first.clone());
    (beside, compared)
}

fn one(path: &Path, follows: bool, torch: Option<TorchVersion>) -> Result<Source, FileError> {
    let (snapshot, source) = look(path)?;
    if snapshot {
        let snapshot = Snapshot::read(source).map_err(OpenError::from)?;
        return Ok(keep(vec![Opened::new(path, snapshot, torch)])?);
    }
    if path == Path::new("-") {
        let name: Arc<str> = "-".into();
        return Ok(of_reader(source, name, false)?);
    }
    Ok(recording(path, follows)?)
}

/// A file, and whether it begins as a snapshot does.
fn look(path: &Path) -> Result<(bool, BufReader<Box<dyn Read + Send>>), RecordingError> {
    let source: Box<dyn Read + Send> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(RecordingError::Unreadable)?)
    };
    let mut source = BufReader::with_capacity(1 << 16, source);
    let snapshot = is_snapshot(source.fill_buf().map_err(RecordingError::Unreadable)?);
    Ok((snapshot, source))
}
