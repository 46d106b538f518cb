//! Installs the library where a program finds it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::card::{Cards, described};
use super::error::StandInError;

/// An environment variable for the program.
pub type Variable = (OsString, OsString);

/// The libraries by file name: the stand-in, and a cuBLASLt for cuDNN, which opens it by name.
#[cfg(standin)]
const LIBRARIES: [(&str, &[u8]); 3] = [
    (MAIN, include_bytes!(concat!(env!("OUT_DIR"), "/libstandin.so"))),
    ("libcublasLt.so.13", include_bytes!(concat!(env!("OUT_DIR"), "/libcublasLt.so.13"))),
    ("libcublasLt.so.12", include_bytes!(concat!(env!("OUT_DIR"), "/libcublasLt.so.12"))),
];
#[cfg(not(standin))]
const LIBRARIES: [(&str, &[u8]); 0] = [];

/// The file name of the stand-in.
const MAIN: &str = "libvramlab-standin.so";
/// The names under which programs open it: those of the driver's library and of NVML. Triton makes a linker search for
/// the second one.
const LINKS: [&str; 3] = ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];

/// Writes everything into `folder`, and returns the environment variables with which a program finds it. Each process
/// of the program writes its counts to `folder`, too.
///
/// # Errors
/// [`StandInError`], if this build has no stand-in or the folder can't be written.
pub fn install(folder: &Path, cards: &Cards) -> Result<Vec<Variable>, StandInError> {
    if LIBRARIES.is_empty() {
        return Err(StandInError::NotBuilt);
    }
    if folder.to_string_lossy().contains(|symbol: char| symbol == ':' || symbol.is_whitespace()) {
        return Err(StandInError::Unloadable { folder: folder.to_owned() });
    }
    let card = folder.join("card.txt");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StandInError::Folder { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut preloaded = OsString::new();
    for (name, bytes) in LIBRARIES {
        let path = folder.join(name);
        write_new(&path, bytes).map_err(failed(&path))?;
        preloaded.push(if preloaded.is_empty() { "" } else { ":" });
        preloaded.push(path);
    }
    for name in LINKS {
        let path = folder.join(name);
        match std::os::unix::fs::symlink(MAIN, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&path)(error)),
            _ => {}
        }
    }
    fs::write(&card, described(cards, folder)).map_err(failed(&card))?;
    Ok(vec![
        ("VRAMLAB_CARD".into(), card.into()),
        ("LD_PRELOAD".into(), before("LD_PRELOAD", preloaded)),
        ("LD_LIBRARY_PATH".into(), before("LD_LIBRARY_PATH", folder.into())),
    ])
}

/// Replaces a file by a new one: processes that have mapped the old file keep it unchanged.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::write(path, bytes),
    }
}

/// Puts `first` before the current value of a path variable.
fn before(name: &str, first: OsString) -> OsString {
    let mut value = first;
    if let Some(rest) = std::env::var_os(name).filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

/// The files in the folder whose names have this ending: those of a program's processes.
pub(super) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    found.sort();
    found
}
