//! Why there is no stand-in GPU.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why there is no stand-in GPU.
#[derive(Debug, Error)]
pub enum StandInError {
    /// This build has no stand-in.
    #[error(
        "this vramlab has no stand-in GPU: it is built on Linux for x86-64 and aarch64. Use one there, or run the program on a GPU."
    )]
    NotBuilt,
    /// The loader can't be told the library's path.
    #[error(
        "nothing can be loaded from {folder}: its name has a space or a colon. Set XDG_RUNTIME_DIR to a folder without."
    )]
    Unloadable {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder can't be written.
    #[error("{path} can't be written ({source}). Set XDG_RUNTIME_DIR to a folder of your own.")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
