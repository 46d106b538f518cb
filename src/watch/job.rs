//! Starts a program in order to watch it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::error::WatchError;
use super::place;

/// The files of the package.
const PACKAGE: [(&str, &str); 16] = [
    ("vramlab_watch/__init__.py", include_str!("../../lab/python/vramlab_watch/__init__.py")),
    ("vramlab_watch/_collectives.py", include_str!("../../lab/python/vramlab_watch/_collectives.py")),
    ("vramlab_watch/_complaint.py", include_str!("../../lab/python/vramlab_watch/_complaint.py")),
    ("vramlab_watch/_exchanges.py", include_str!("../../lab/python/vramlab_watch/_exchanges.py")),
    ("vramlab_watch/_kernels.py", include_str!("../../lab/python/vramlab_watch/_kernels.py")),
    ("vramlab_watch/_later.py", include_str!("../../lab/python/vramlab_watch/_later.py")),
    ("vramlab_watch/_reads.py", include_str!("../../lab/python/vramlab_watch/_reads.py")),
    ("vramlab_watch/_recorder.py", include_str!("../../lab/python/vramlab_watch/_recorder.py")),
    ("vramlab_watch/_rules.py", include_str!("../../lab/python/vramlab_watch/_rules.py")),
    ("vramlab_watch/_server.py", include_str!("../../lab/python/vramlab_watch/_server.py")),
    ("vramlab_watch/_shadow.py", include_str!("../../lab/python/vramlab_watch/_shadow.py")),
    ("vramlab_watch/_steps.py", include_str!("../../lab/python/vramlab_watch/_steps.py")),
    ("vramlab_watch/_threads.py", include_str!("../../lab/python/vramlab_watch/_threads.py")),
    ("vramlab_watch/_versions.py", include_str!("../../lab/python/vramlab_watch/_versions.py")),
    ("vramlab_watch/_watch.py", include_str!("../../lab/python/vramlab_watch/_watch.py")),
    ("bootstrap/sitecustomize.py", include_str!("../../lab/python/bootstrap/sitecustomize.py")),
];

/// The variable that tells PyTorch to time NCCL's collectives.
const TIMING: &str = "TORCH_NCCL_ENABLE_TIMING";

/// Which allocations are recorded together with their lines of source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lines {
    /// Allocations of the first steps, and of a few later steps.
    #[default]
    Sampled,
    /// All allocations, which costs a few microseconds for each.
    All,
    /// None.
    None,
}

/// The destination of the program's own output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The terminal, whose keys also interrupt the program.
    Inherit,
    /// A file. The terminal's keys, and the terminal's end, do not reach the program.
    File(PathBuf),
}

/// A program that was started to be watched. It continues when this value is dropped.
#[derive(Debug)]
pub struct Job {
    child: Child,
    folder: PathBuf,
}

impl Job {
    /// Starts `command` with the package on Python's path and with `variables` set.
    ///
    /// # Errors
    /// [`WatchError`] if it can't be started.
    pub fn start(
        command: &[OsString],
        lines: Lines,
        output: &Output,
        variables: Vec<(OsString, OsString)>,
    ) -> Result<Self, WatchError> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(WatchError::Start { program: String::new(), source: io::ErrorKind::InvalidInput.into() });
        };
        let folder = place::folder()?;
        let package = folder.join("package");
        write_package(&package).map_err(|source| WatchError::Folder { path: package.clone(), source })?;
        let mut child = Command::new(program);
        // Makes PyTorch measure each exchange between ranks by two events around it. A value that the user has set
        // remains. On cards that don't exist, nothing is measured.
        let absent = variables.iter().any(|(name, _)| name == "VRAMLAB_CARD");
        if !absent && std::env::var_os(TIMING).is_none() {
            child.env(TIMING, "1");
        }
        child
            .args(arguments)
            .envs(variables)
            .env(place::FOLDER, &folder)
            .env("VRAMLAB_WATCH_PACKAGE", &package)
            .env("PYTHONPATH", python_path(&package.join("bootstrap"), std::env::var_os("PYTHONPATH").as_deref()));
        if lines != Lines::Sampled {
            child.env("VRAMLAB_WATCH_STACKS", if lines == Lines::All { "python" } else { "none" });
        }
        let name = program.to_string_lossy().into_owned();
        if let Output::File(path) = output {
            let file = File::create(path).map_err(|source| WatchError::Folder { path: path.clone(), source })?;
            let both = file.try_clone().map_err(|source| WatchError::Folder { path: path.clone(), source })?;
            child.stdin(Stdio::null()).stdout(file).stderr(both).process_group(0);
        }
        let child = child.spawn().map_err(|source| {
            // Leave nothing behind, except what can't be removed.
            let _ = fs::remove_dir_all(&folder);
            WatchError::Start { program: name, source }
        })?;
        Ok(Self { child, folder })
    }

    /// The folder in which its sockets appear.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status if it has ended; never waits.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // A child whose status can't be read is gone.
        self.child.try_wait().ok().flatten()
    }

    /// Forwards a signal to it, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        // Until it is known to have ended, no other process can have its number.
        if self.ended().is_none()
            && let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
        {
            // If the program now runs as another user, this may not be permitted.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If the system can't tell.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// Python reads the package when it starts, also in programs that this one starts later, so it stays while the program
/// runs.
impl Drop for Job {
    fn drop(&mut self) {
        if self.ended().is_some() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn write_package(folder: &Path) -> io::Result<()> {
    for (name, text) in PACKAGE {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

/// Python's path with one folder prepended.
fn python_path(first: &Path, rest: Option<&OsStr>) -> OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    path
}
