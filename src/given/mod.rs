//! What is taken of numbers, files and text that people give, and how their text is shown.

mod file;
mod number;
mod safe;
mod shelf;

pub use file::{FileError, LARGEST_FILE, open_file, read_text};
pub use number::{OutOfBounds, Within};
pub use safe::{SafeWriter, is_safe, safe};
pub use shelf::{Kind, Malformed, Shelf, ShelfError};
