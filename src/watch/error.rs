//! Why a program can't be watched.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use vramlab_snapshot::SnapshotError;

/// Why a program can't be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The program can't be started.
    #[error("{program} can't be started ({source}). Check its name, and that it can be run.")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The folder of the socket can't be used.
    #[error("{path} can't be used ({source}). Set XDG_RUNTIME_DIR to a folder of your own.")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder of the socket belongs to another user.
    #[error("{path} belongs to somebody else. Set XDG_RUNTIME_DIR to a folder of your own.")]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// The connection broke.
    #[error("the connection to the program broke ({0})")]
    Broken(#[source] io::Error),
    /// The program sent a message that no watched program sends.
    #[error("the program says something unknown ({0}). Is its vramlab_watch of the same version?")]
    Unknown(String),
    /// The program's message about its memory can't be read.
    #[error("what the program says of its memory can't be read: {0}")]
    Snapshot(#[from] SnapshotError),
}
