//! TOML that a user wrote, with the place of everything in it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::file::{FileError, read_text};
use super::near;

/// An error in a TOML text: it can't be parsed, or its values are impossible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct TomlError {
    line: usize,
    column: usize,
    reason: String,
}

impl TomlError {
    /// The line, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The column in it, in characters, counted from 1.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.column
    }

    /// What is wrong.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// A text, and the file that it comes from.
#[derive(Clone, Debug)]
pub struct TomlText {
    text: Cow<'static, str>,
    file: Option<PathBuf>,
}

impl TomlText {
    /// A built-in text.
    #[must_use]
    pub const fn built_in(text: Cow<'static, str>) -> Self {
        Self { text, file: None }
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Ok(Self { text: read_text(path)?.into(), file: Some(path.to_owned()) })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The file that it comes from.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Parses the text.
    ///
    /// # Errors
    /// [`TomlError`].
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, TomlError> {
        toml::from_str(&self.text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let start = self.failing_table::<T>(start, error.message()).unwrap_or(start);
            let reason = in_words(&error.message().lines().collect::<Vec<_>>().join(" "));
            let place = self.place(self.named(start, &reason).unwrap_or(start));
            let hint = meant(&reason).unwrap_or_default();
            TomlError { line: place.line, column: place.column, reason: reason + &hint }
        })
    }

    /// Finds the table that an error is about, among several tables of one name, the first of which begins at `start`.
    /// Parsing the text up to the end of that table gives the error; up to the end of an earlier table it does not.
    fn failing_table<T: DeserializeOwned>(&self, start: usize, message: &str) -> Option<usize> {
        /// More tables are not searched: each one means parsing the text up to its end.
        const MOST: usize = 200;
        let rest = self.text.get(start..).filter(|rest| rest.starts_with("[["))?;
        let heads = rest.match_indices("\n[").map(|(at, _)| start + at + 1).take(MOST);
        let mut begun = start;
        for end in heads.chain([self.text.len()]) {
            let is_wrong = |text: &str| toml::from_str::<T>(text).err().is_some_and(|error| error.message() == message);
            if self.text.get(..end).is_some_and(is_wrong) {
                return Some(begun);
            }
            begun = end;
        }
        None
    }

    /// The offset of the key or value that an error names, in the table that begins at `start`. If a table's kind
    /// decides which keys it may have, only the table's beginning is known.
    fn named(&self, start: usize, reason: &str) -> Option<usize> {
        let field = reason.split_once("unknown field `").map(|(_, rest)| (rest, false));
        let (rest, is_value) = field.or_else(|| Some((reason.split_once("unknown variant `")?.1, true)))?;
        let (name, _) = rest.split_once('`')?;
        let mut at = start;
        for (index, line) in self.text.get(start..)?.split_inclusive('\n').enumerate() {
            if index > 0 && line.starts_with('[') {
                return None;
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            if !is_value && key.trim().trim_matches(['"', '\'']) == name {
                return Some(at + key.find(|c: char| !c.is_whitespace()).unwrap_or(0));
            }
            if let Some(within) = value.find(name).filter(|_| is_value) {
                // The opening quote.
                return Some(at + key.len() + within);
            }
            at += line.len();
        }
        None
    }

    /// The place of the first key, or of the first table head such as `[sizes]`, with this name.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<TextPosition> {
        self.nth_place_of(name, 0)
    }

    /// The same for a later one: `[[layers]]` can occur any number of times.
    #[must_use]
    pub fn nth_place_of(&self, name: &str, nth: usize) -> Option<TextPosition> {
        let is_named = |line: &str| line.split_once('=').map_or(line, |(key, _)| key).trim() == name;
        let line = self.text.lines().enumerate().filter(|(_, line)| is_named(line)).nth(nth)?.0 + 1;
        Some(TextPosition { file: self.file.clone(), line, column: 1 })
    }

    /// An error within the string at `span`, at the offset `within` of its value. If the string has escapes, the error
    /// is placed at the string's beginning.
    #[must_use]
    pub fn malformed(&self, span: Range<usize>, within: usize, reason: impl Into<String>) -> TomlError {
        let written = self.text.get(span.clone()).unwrap_or_default();
        let opening = match written {
            _ if written.contains('\\') => None,
            _ if written.starts_with("\"\"\"\n") || written.starts_with("'''\n") => Some(4),
            _ if written.starts_with("\"\"\"") || written.starts_with("'''") => Some(3),
            _ if written.starts_with(['"', '\'']) => Some(1),
            _ => None,
        };
        let place = self.place(span.start + opening.map_or(0, |opening| opening + within));
        TomlError { line: place.line, column: place.column, reason: reason.into() }
    }

    /// The place of the byte at `offset`.
    #[must_use]
    pub fn place(&self, offset: usize) -> TextPosition {
        let before = self.text.get(..offset).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        TextPosition {
            file: self.file.clone(),
            line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// A place in a text: `FILE, line 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPosition {
    file: Option<PathBuf>,
    line: usize,
    column: usize,
}

impl TextPosition {
    /// The line, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}, ", file.display())?;
        }
        write!(f, "line {}", self.line)
    }
}

/// The sentence without Rust's names of number types.
fn in_words(reason: &str) -> String {
    ["u8", "u16", "u32", "u64", "usize"]
        .iter()
        .fold(reason.to_owned(), |reason, kind| reason.replace(&format!("expected {kind}"), "expected a whole number"))
}

/// If a name does not exist: the most similar one of those that serde lists.
fn meant(reason: &str) -> Option<String> {
    let (_, words) = reason.split_once("unknown field `").or_else(|| reason.split_once("unknown variant `"))?;
    let mut quoted = words.split('`').step_by(2);
    let word = quoted.next()?;
    let known = words.split('`').skip(2).step_by(2);
    Some(near::hint(word, known)).filter(|hint| !hint.is_empty())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct StyledNote {
        words: Option<String>,
        theme: Option<String>,
    }

    fn refused(text: &'static str) -> TomlError {
        TomlText::built_in(text.into()).parse::<StyledNote>().unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        let wrong = refused("words = 'a'\ntheme = 7\n");
        assert_eq!((wrong.line(), wrong.column()), (2, 9));
        let wrong =
            TomlText::built_in("a = 1.5".into()).parse::<std::collections::BTreeMap<String, u32>>().unwrap_err();
        assert!(wrong.reason().ends_with("expected a whole number"), "{wrong}");
        let wrong = refused("words = 'é' theme");
        assert_eq!(wrong.line(), 1);
        assert!(wrong.column() > 11, "columns are characters: {wrong:?}");
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    enum Shape {
        Circle { radius: u32 },
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct Shapes {
        shapes: Vec<Shape>,
    }

    #[test]
    fn what_is_wrong_in_a_table_of_some_kind_is_told_where_it_stands() {
        let wrong = |text: &'static str| TomlText::built_in(text.into()).parse::<Shapes>().unwrap_err();
        let first = "[[shapes]]\nkind = 'circle'\nradius = 3\n\n";
        let field =
            format!("{first}[[shapes]]\nkind = 'circle'\nradius = 4\n  colour = 'red'\n\n[[shapes]]\ncolour = 1\n");
        let field = wrong(field.leak());
        assert_eq!((field.line(), field.column()), (8, 3), "{field}");
        let variant = wrong(format!("{first}[[shapes]]\nradius = 4\nkind = 'square'\n").leak());
        assert_eq!((variant.line(), variant.column()), (7, 8), "{variant}");
        // A missing key has no place.
        assert_eq!(wrong(format!("{first}[[shapes]]\nkind = 'circle'\n").leak()).line(), 5);
    }

    #[test]
    fn keys_and_tables_are_found() {
        let text = TomlText::built_in("a = 1\n[sizes]\n aa = 2\n[[layers]]\n[[layers]]\n".into());
        let line = |name: &str| text.place_of(name).map(|place| place.line());
        assert_eq!([line("a"), line("aa"), line("[sizes]"), line("b")], [Some(1), Some(3), Some(2), None]);
        assert_eq!(text.nth_place_of("[[layers]]", 1).map(|place| place.line()), Some(5));
    }

    #[test]
    fn what_is_wrong_within_a_string_is_told_where_it_stands() {
        for (source, within, place) in [
            ("words = 'é x'", 3, (1, 12)),
            ("words = \"\"\"\none\ntwo\"\"\"", 4, (3, 1)),
            ("words = \"a \\\"b\\\"\"", 3, (1, 9)),
        ] {
            let text = TomlText::built_in(source.into());
            let wrong = text.malformed(8..source.len(), within, "no");
            assert_eq!((wrong.line(), wrong.column(), wrong.reason()), (place.0, place.1, "no"), "{source}");
        }
    }

    #[test]
    fn a_name_that_is_none_comes_with_the_nearest_one() {
        let wrong = refused("\n them = 'a'");
        assert_eq!((wrong.line(), wrong.column()), (2, 2));
        assert!(wrong.reason().ends_with(" (did you mean \"theme\"?)"), "{wrong}");
        assert!(!refused("colour = 'a'").reason().contains("did you mean"));
    }
}
