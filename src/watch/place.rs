//! The places of watched programs: sockets in folders that only their owner can open.
//!
//! A folder outlives a viewer that is killed, because the viewer's program continues and still reads the folder. Its
//! name tells its owner ([`Owner`]), so that a later start knows which folders are no longer needed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::error::WatchError;
use super::owner::Owner;

/// The environment variable that tells a program, and the programs that it starts, their folder.
pub(super) const FOLDER: &str = "VRAMLAB_WATCH_DIR";

/// The folder of all watched programs of this user.
fn base() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let runtime = runtime.map_or_else(
        || std::env::temp_dir().join(format!("vramlab-{}", rustix::process::getuid().as_raw())),
        PathBuf::from,
    );
    runtime.join("vramlab-watch")
}

/// Creates a folder for the socket of another program, which only this user can open.
///
/// # Errors
/// [`WatchError`] if it can't be created.
pub fn folder() -> Result<PathBuf, WatchError> {
    let path = base().join(Owner::this().to_string());
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

/// Removes folders left behind by killed processes: those of viewers that are gone together with their programs, and
/// those of programs without a viewer. What can't be removed stays.
pub fn sweep() {
    for folder in fs::read_dir(base()).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        if let Ok(program) = name.parse() {
            // A program that imports the package itself has only its socket in the folder.
            if !is_alive(program) && listening_in(&folder).is_empty() {
                let _ = fs::remove_dir(&folder);
            }
        } else if name.parse().is_ok_and(|owner: Owner| owner.is_gone()) && !is_used(&folder) {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// True if a process was started with this folder, by a viewer or by a program that the viewer started.
fn is_used(folder: &Path) -> bool {
    let wanted = [FOLDER.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    // Other users' processes can't be read, and don't use this user's folders.
    let environments = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|process| {
        process.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read(process.path().join("environ")).ok()
    });
    environments.into_iter().any(|variables| variables.split(|byte| *byte == 0).any(|variable| variable == wanted))
}

/// True if there is a process of this number.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// The sockets of all of this user's programs that can be watched, with their processes. Sockets of killed programs are
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
    let mut found = sockets_in(folder);
    // Connecting would disturb a living process, so only a seemingly dead one is connected to. In a container its
    // number may differ.
    found.retain(|(pid, socket)| is_alive(*pid) || connect(socket).is_ok());
    found
}

/// True if `process` is `ancestor` or one of its descendants.
#[must_use]
pub fn descends(process: u32, ancestor: u32) -> bool {
    /// No chain of processes is longer.
    const LONGEST: usize = 64;
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain anything.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok().filter(|pid| *pid > 1)
    };
    std::iter::successors(Some(process), parent).take(LONGEST).any(|pid| pid == ancestor)
}

/// True if a process, or one that it started, has loaded PyTorch; `None` if the system does not tell.
#[must_use]
pub fn has_loaded_torch(process: u32) -> Option<bool> {
    let all = fs::read_dir("/proc").ok()?.flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut known = None;
    for one in all.filter(|one| descends(*one, process)) {
        // Another user's process may be unreadable.
        let Ok(maps) = fs::read_to_string(format!("/proc/{one}/maps")) else { continue };
        if maps.lines().any(|line| line.ends_with("/libc10.so")) {
            return Some(true);
        }
        known = Some(false);
    }
    known
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

/// Connects to a program. The socket of a program that is gone is removed.
///
/// # Errors
/// If no program listens, or if it belongs to another user.
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
