//! Files of one kind by name: the built-in ones, and those of the user's folder, which replace them.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::config_folder::config_folder;
use super::file::FileError;
use super::toml_text::{TomlError, TomlText};

/// The most files that are read from a folder: no person collects more.
const MOST_FILES: usize = 1000;

/// The kind of files in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShelfKind {
    /// Workloads.
    Workloads,
    /// Simulated devices.
    Devices,
    /// Themes.
    Themes,
    /// Lessons.
    Lessons,
}

impl ShelfKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Workloads, Self::Devices, Self::Themes, Self::Lessons];

    /// The name of its folder.
    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Workloads => "workloads",
            Self::Devices => "devices",
            Self::Themes => "themes",
            Self::Lessons => "lessons",
        }
    }

    /// The extension of its files.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Workloads | Self::Devices | Self::Themes => "toml",
            Self::Lessons => "md",
        }
    }

    /// The user's folder, such as `$XDG_CONFIG_HOME/vramlab/themes`, or the same under `~/.config`.
    pub fn user_folder(self, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        Some(config_folder(variable)?.join(self.folder()))
    }
}

/// Why a name has no content.
#[derive(Debug, Error)]
pub enum ShelfError {
    /// There is no such name.
    #[error("there is none of that name")]
    Unknown,
    /// The user's file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content can't be parsed.
    #[error(transparent)]
    Malformed(#[from] TomlError),
}

/// Where a text comes from.
#[derive(Clone, Debug)]
enum TextPlace {
    Here(Cow<'static, str>),
    /// From the user's folder; it is read when it is needed.
    File(PathBuf),
}

/// Texts by name: first the built-in ones, then the user's in order of their names.
#[derive(Clone, Debug)]
pub struct Shelf {
    texts: Vec<(String, TextPlace)>,
    warnings: Vec<String>,
}

impl Shelf {
    /// The built-in texts, and the `.toml` files in `folder`, which replace them.
    #[must_use]
    pub fn new(built_in: &[(&'static str, &'static str)], folder: Option<&Path>) -> Self {
        Self::of_files(built_in, folder, "toml")
    }

    /// The built-in texts, and the files in `folder` with this extension, which replace them.
    #[must_use]
    pub fn of_files(built_in: &[(&'static str, &'static str)], folder: Option<&Path>, extension: &str) -> Self {
        let here = |&(name, text): &(&str, &'static str)| (name.to_owned(), TextPlace::Here(text.into()));
        let mut shelf = Self { texts: built_in.iter().map(here).collect(), warnings: Vec::new() };
        if let Some(folder) = folder {
            shelf.add_folder(folder, extension);
        }
        shelf
    }

    fn add_folder(&mut self, folder: &Path, wanted: &str) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                self.warnings.push(format!("{} can't be read ({error}); correct its permissions", folder.display()));
                return;
            }
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|extension| extension == wanted))
            .take(MOST_FILES + 1)
            .collect();
        if files.len() > MOST_FILES {
            self.warnings.push(format!("{} has more than {MOST_FILES} files; some are left out", folder.display()));
            files.truncate(MOST_FILES);
        }
        files.sort();
        for path in files {
            match path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) {
                Some(name) => self.put(&name, TextPlace::File(path)),
                None => self.warnings.push(format!("the name of {} is no UTF-8 text; rename it", path.display())),
            }
        }
    }

    fn put(&mut self, name: &str, place: TextPlace) {
        match self.texts.iter_mut().find(|(known, _)| known == name) {
            Some((_, present)) => *present = place,
            None => self.texts.push((name.to_owned(), place)),
        }
    }

    /// Adds a text, or replaces the one of this name.
    pub fn insert(&mut self, name: &str, text: &str) {
        self.put(name, TextPlace::Here(text.to_owned().into()));
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|(name, _)| name.as_str())
    }

    /// The files of the user's folder that were left out, and why.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The same, with the texts that `read` can't parse.
    pub fn warnings_of<T, E: Display>(&self, read: impl Fn(&str) -> Result<T, E>) -> Vec<String> {
        let own = self.names().filter(|name| self.is_users_own(name));
        let malformed = own.filter_map(|name| read(name).err()).map(|error| error.to_string());
        self.warnings.iter().cloned().chain(malformed).collect()
    }

    /// Whether the user's folder has a file of this name.
    #[must_use]
    pub fn is_users_own(&self, name: &str) -> bool {
        matches!(self.place(name), Some(TextPlace::File(_)))
    }

    fn place(&self, name: &str) -> Option<&TextPlace> {
        self.texts.iter().find(|(known, _)| known == name).map(|(_, place)| place)
    }

    /// The text of this name.
    ///
    /// # Errors
    /// [`ShelfError::Unknown`], [`ShelfError::File`].
    pub fn text(&self, name: &str) -> Result<TomlText, ShelfError> {
        Ok(match self.place(name).ok_or(ShelfError::Unknown)? {
            TextPlace::Here(text) => TomlText::built_in(text.clone()),
            TextPlace::File(path) => TomlText::read(path)?,
        })
    }

    /// The parsed text of this name.
    ///
    /// # Errors
    /// [`ShelfError`].
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T, ShelfError> {
        Ok(self.text(name)?.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Note {
        words: String,
    }

    const BUILT_IN: [(&str, &str); 2] = [("b", "words = 'built in'"), ("a", "words = 'too'")];

    fn words(shelf: &Shelf, name: &str) -> String {
        shelf.get::<Note>(name).map_or_else(|error| error.to_string(), |note| note.words)
    }

    #[test]
    fn the_users_files_come_last_and_win() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.toml", "words = 'mine'"), ("0.toml", "\n\nwords = 7"), ("c.txt", "words = 'no'")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let shelf = Shelf::new(&BUILT_IN, Some(folder.path()));
        assert_eq!(shelf.names().collect::<Vec<_>>(), ["b", "a", "0"]);
        assert_eq!(["b", "a", "d"].map(|name| words(&shelf, name)), ["mine", "too", "there is none of that name"]);
        assert!(words(&shelf, "0").starts_with("line 3: "), "{}", words(&shelf, "0"));
        assert!(shelf.is_users_own("b") && !shelf.is_users_own("a"));
        assert!(shelf.warnings().is_empty());
    }

    #[test]
    fn a_folder_that_is_missing_is_empty_and_one_that_is_none_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Shelf::new(&BUILT_IN, Some(&folder.path().join("missing"))).warnings().is_empty());
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(Shelf::new(&BUILT_IN, Some(&file)).warnings().len(), 1);
    }

    #[test]
    fn the_users_folder_is_found_by_the_environment() {
        let themes = |set: &[(&str, &str)]| {
            let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            ShelfKind::Themes.user_folder(variable)
        };
        assert_eq!(themes(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]), Some("/x/vramlab/themes".into()));
        assert_eq!(themes(&[("XDG_CONFIG_HOME", ""), ("HOME", "/h")]), Some("/h/.config/vramlab/themes".into()));
        assert_eq!(themes(&[]), None);
    }
}
