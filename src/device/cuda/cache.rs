//! Files kept on disk between starts: machine code, and choices that were timed.

use std::fs;
use std::path::{Path, PathBuf};

/// The cache folder; `None` if the environment names no home.
pub(super) fn cache_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?.join("vramlab"))
}

/// Writes a cache file completely or not at all. If the folder can't be written, only time at the next start is lost.
pub(super) fn keep(path: &Path, bytes: &[u8]) {
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&partial, bytes));
    if written.and_then(|()| fs::rename(&partial, path)).is_err() {
        let _ = fs::remove_file(&partial);
    }
}
