//! Why there is no such workload.

use thiserror::Error;

use vramlab_train::TrainError;
use vramlab_user_input::{FileError, TomlError};

/// Why there is no such workload.
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
    /// A file is not read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file does not parse.
    #[error("the workload file {name}.toml is not understood ({reason}); correct or remove it")]
    Malformed {
        /// The file's name.
        name: String,
        /// Where, and why.
        reason: TomlError,
    },
    /// The sizes make no model.
    #[error(transparent)]
    Sizes(#[from] TrainError),
    /// The model and the data do not go together.
    #[error("{0}")]
    Data(String),
}
