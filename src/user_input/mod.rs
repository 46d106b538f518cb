//! Numbers, files and texts from users: what is accepted, and how their text is shown.

mod config_folder;
mod file;
mod near;
mod number;
mod safe;
mod shelf;
mod shell;
mod toml_text;

pub use config_folder::config_folder;
pub use file::{FileError, LARGEST_FILE, open_file, read_text};
pub use near::hint;
pub use number::{OutOfBounds, Within};
pub use safe::{SafeWriter, is_safe, safe};
pub use shelf::{Shelf, ShelfError, ShelfKind};
pub use shell::command_line;
pub use toml_text::{TextPosition, TomlError, TomlText};
