//! Where watched programs are found: sockets in folders that only their owner can open.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::error::WatchError;

/// The folder of all watched programs of this user.
fn base() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let runtime = runtime.map_or_else(
        || std::env::temp_dir().join(format!("vramlab-{}", rustix::process::getuid().as_raw())),
        PathBuf::from,
    );
    runtime.join("vramlab-watch")
}

/// A folder for the socket of one more program, which only this user can open.
///
/// # Errors
/// [`WatchError`], where there can be none.
pub fn folder() -> Result<PathBuf, WatchError> {
    let path = base().join(std::process::id().to_string());
    let failed = |source| WatchError::Folder { path: path.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
    // In a shared folder another user may have created the parent first.
    for folder in [path.parent(), Some(&path)].into_iter().flatten() {
        let metadata = fs::symlink_metadata(folder).map_err(failed)?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
            return Err(WatchError::Foreign { path: folder.to_owned() });
        }
    }
    Ok(path)
}

/// The sockets of all programs of this user that can be watched, with their processes. What programs left behind that were killed is
/// removed.
#[must_use]
pub fn sockets() -> Vec<(u32, PathBuf)> {
    let folders = fs::read_dir(base()).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = folders.flat_map(|folder| listening_in(&folder)).collect();
    found.sort();
    found
}

/// The sockets in one folder with a listening program, by process.
#[must_use]
pub fn listening_in(folder: &Path) -> Vec<(u32, PathBuf)> {
    // A living process is not disturbed: only one that seems dead is connected to. In a container its number may be another.
    let alive = |pid: u32| {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    };
    let mut found = sockets_in(folder);
    found.retain(|(pid, socket)| alive(*pid) || connect(socket).is_ok());
    found
}

/// Whether `process` is `ancestor`, or was started by it, or by what it started.
#[must_use]
pub fn descends(process: u32, ancestor: u32) -> bool {
    /// No chain of processes is so long.
    const LONGEST: usize = 64;
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid > 1)
    };
    std::iter::successors(Some(process), parent).take(LONGEST).any(|pid| pid == ancestor)
}

/// The sockets in one folder, by process.
#[must_use]
pub fn sockets_in(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .filter_map(|entry| {
            let path = entry.path();
            let pid = path.file_stem()?.to_str()?.parse().ok()?;
            Some((pid, path))
        })
        .collect();
    found.sort();
    found
}

/// Connects to a program. The socket of one that is gone is removed.
///
/// # Errors
/// If no program listens, or it is another user's.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).inspect_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            // What can't be removed stays.
            let _ = fs::remove_file(path);
        }
    })?;
    if fs::symlink_metadata(path)?.uid() != rustix::process::getuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(stream)
}
