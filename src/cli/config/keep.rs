//! Changes one setting in the settings file and leaves the rest of the file as it is.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::file::Config;
use crate::user_input::{FileError, TomlText, read_text};

/// Why a setting was not saved; the file is unchanged.
#[derive(Debug, Error)]
pub(super) enum KeepError {
    /// The file can't be read.
    #[error(transparent)]
    Read(#[from] FileError),
    /// The file's content can't be parsed.
    #[error("{0} has mistakes and is left as it is; `vramlab config` says which, correct them first")]
    Malformed(PathBuf),
    /// The line of the setting can't be identified.
    #[error("{0} sets the theme in a form that is not edited here; write theme = \"{1}\" into it")]
    Unusual(PathBuf, String),
    /// The file can't be written.
    #[error("{path} can't be written ({reason}); look at its permissions")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error from the system.
        reason: io::Error,
    },
}

/// Sets the theme in `file`: changes its line or adds one. If there is no file, creates it with the content `new`.
///
/// # Errors
/// [`KeepError`]: the file is unchanged.
pub(super) fn theme(file: &Path, name: &str, new: fn() -> String) -> Result<(), KeepError> {
    let text = match read_text(file) {
        Ok(text) => text,
        Err(FileError::Unreadable { reason, .. }) if reason.kind() == io::ErrorKind::NotFound => new(),
        Err(error) => return Err(error.into()),
    };
    let parsed = |text: &str| TomlText::built_in(text.to_owned().into()).parse::<Config>();
    let before = parsed(&text).map_err(|_| KeepError::Malformed(file.to_owned()))?;
    let text = with_theme(&text, name);
    // The new text must give this theme and otherwise the settings from before; if not, the file has a form that this
    // code can't edit.
    let wanted = Config { theme: Some(name.to_owned()), ..before };
    if parsed(&text).ok() != Some(wanted) {
        return Err(KeepError::Unusual(file.to_owned(), name.to_owned()));
    }
    write(file, &text).map_err(|reason| KeepError::Write { path: file.to_owned(), reason })
}

/// Returns the text with the theme's line changed: the line that sets the theme, else the line that documents it, else
/// a new line at the top.
fn with_theme(text: &str, name: &str) -> String {
    // Only lines before the first table are top-level settings.
    let end = text.lines().position(|line| line.trim_start().starts_with('[')).unwrap_or(usize::MAX);
    let sets =
        |line: &str| line.trim_start().strip_prefix("theme").is_some_and(|rest| rest.trim_start().starts_with('='));
    let documents = |line: &str| line.strip_prefix("# ").is_some_and(sets);
    let find = |is: &dyn Fn(&str) -> bool| text.lines().take(end).position(is);
    let setting = format!("theme = {name:?}");
    let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let Some(place) = find(&sets).or_else(|| find(&documents)) else { return format!("{setting}{ending}{text}") };
    let mut out = String::with_capacity(text.len() + setting.len());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index == place {
            out.push_str(&setting);
            // A comment after the value is kept.
            if sets(line)
                && let Some(comment) = line.find(" #")
            {
                out.push_str(&line[comment..]);
            } else {
                out.push_str(ending);
            }
        } else {
            out.push_str(line);
        }
    }
    out
}

/// Writes a new file and renames it over the old one, so that a whole file exists at every moment.
fn write(file: &Path, text: &str) -> io::Result<()> {
    // A symbolic link stays a link.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("toml.{}", std::process::id()));
    let written = (|| {
        let mut new = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        if let Ok(old) = fs::metadata(&file) {
            new.set_permissions(old.permissions())?;
        }
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&beside, &file)
    })();
    if written.is_err() {
        // The temporary file may not exist.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(text: &str) -> Result<String, KeepError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs::write(&file, text).unwrap();
        let result = theme(&file, "nord", || unreachable!("there is a file"));
        let after = fs::read_to_string(&file).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        result.map(|()| after.clone()).inspect_err(|_| assert_eq!(after, text, "the file is as it was"))
    }

    #[test]
    fn one_line_is_changed_and_all_else_stays() {
        for (before, after) in [
            ("theme = 'dark' # mine\nmouse = true\n", "theme = \"nord\" # mine\nmouse = true\n"),
            ("# theme = \"auto\"\nframes=5\n[keys]\nop = 'x'\n", "theme = \"nord\"\nframes=5\n[keys]\nop = 'x'\n"),
            ("mouse = true\r\n", "theme = \"nord\"\r\nmouse = true\r\n"),
            ("", "theme = \"nord\"\n"),
            ("# no # theme here\n[keys]\ntheme = 'f5'", "theme = \"nord\"\n# no # theme here\n[keys]\ntheme = 'f5'"),
        ] {
            assert_eq!(kept(before).unwrap(), after);
        }
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_alone() {
        assert!(matches!(kept("theme = "), Err(KeepError::Malformed(_))));
        assert!(matches!(kept("thme = 'nord'"), Err(KeepError::Malformed(_))), "a mistake is a person's to correct");
        assert!(matches!(kept("theme = \"\"\"\ndark\"\"\"\n"), Err(KeepError::Unusual(..))));
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(theme(folder.path(), "nord", String::new), Err(KeepError::Read(_))), "a folder is no file");
    }

    #[test]
    fn where_there_is_no_file_one_is_made_and_a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("vramlab").join("config.toml");
        theme(&file, "nord", || "# theme = \"auto\"\n# mouse = true\n".to_owned()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "theme = \"nord\"\n# mouse = true\n");
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        theme(&link, "light", String::new).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&file).unwrap().starts_with("theme = \"light\"\n"));
    }
}
