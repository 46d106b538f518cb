//! Why a workload can't be loaded.

use thiserror::Error;

use vramlab_train::TrainError;
use vramlab_user_input::{FileError, TomlError};

/// Why a workload can't be loaded.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// No file has the name.
    #[error("there is no workload '{name}'; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file can't be parsed.
    #[error("the workload file {name}.toml is not understood ({reason}); correct or remove it")]
    Malformed {
        /// The file's name.
        name: String,
        /// The error, with its place.
        reason: TomlError,
    },
    /// The sizes make no model.
    #[error(transparent)]
    Sizes(#[from] TrainError),
    /// The model and the data don't fit together.
    #[error("{0}")]
    Data(String),
}
