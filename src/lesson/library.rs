//! The lessons by name: `lab/lessons/*.md`, which are built in, and the user's own, which replace them.

use std::path::Path;

use thiserror::Error;

use super::built_in::BUILT_IN;
use super::error::LessonError;
use super::script::Lesson;
use crate::user_input::{FileError, Shelf, ShelfError, ShelfKind, hint, read_text};

/// Why a lesson can't be loaded.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// There is no such lesson.
    #[error("there is no lesson '{name}'{meant}; `vramlab lesson` lists them")]
    Unknown {
        /// The name.
        name: String,
        /// A similar name that exists, for the message.
        meant: String,
    },
    /// Its file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its file can't be parsed.
    #[error("{name}: {error}")]
    Malformed {
        /// The lesson's name, or its file.
        name: String,
        /// The error, with its place.
        error: LessonError,
    },
}

/// All lessons.
#[derive(Clone, Debug)]
pub struct Library(Shelf);

impl Library {
    /// The built-in lessons, and the `.md` files in `folder`, which replace built-in ones of the same name.
    #[must_use]
    pub fn with_user_lessons(folder: Option<&Path>) -> Self {
        Self(Shelf::of_files(BUILT_IN, folder, ShelfKind::Lessons.extension()))
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// The lesson of this name, or in the file with this path.
    ///
    /// # Errors
    /// [`LibraryError`].
    pub fn lesson(&self, name: &str) -> Result<Lesson, LibraryError> {
        match self.0.text(name) {
            Ok(text) => Lesson::parse(name, text.as_str()).map_err(|error| {
                let name = text.file().map_or_else(|| name.to_owned(), |file| file.display().to_string());
                LibraryError::Malformed { name, error }
            }),
            Err(ShelfError::File(error)) => Err(error.into()),
            Err(_) if is_path(name) => of_file(Path::new(name)),
            Err(_) => Err(LibraryError::Unknown { name: name.to_owned(), meant: hint(name, self.names()) }),
        }
    }

    /// All lessons in their order, and errors for those that can't be read.
    #[must_use]
    pub fn all(&self) -> (Vec<Lesson>, Vec<String>) {
        let mut lessons = Vec::new();
        let mut warnings = self.0.warnings().to_vec();
        for name in self.names() {
            match self.lesson(name) {
                Ok(lesson) => lessons.push(lesson),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        lessons.sort_by(|a, b| (a.front.order, &a.name).cmp(&(b.front.order, &b.name)));
        (lessons, warnings)
    }
}

/// The lesson in a file; its name is the file's name without `.md`.
///
/// # Errors
/// [`LibraryError::File`], [`LibraryError::Malformed`].
pub fn of_file(path: &Path) -> Result<Lesson, LibraryError> {
    let source = read_text(path)?;
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
    Lesson::parse(&name, &source).map_err(|error| LibraryError::Malformed { name: path.display().to_string(), error })
}

fn is_path(name: &str) -> bool {
    name.contains('/')
        || Path::new(name).extension().is_some_and(|extension| extension == ShelfKind::Lessons.extension())
}
