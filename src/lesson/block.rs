//! TOML inside a lesson's file: it is parsed on its own, and errors name the place in the file.

use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::error::{LessonError, LineIndex};
use crate::user_input::TomlText;

/// A piece of TOML, with its place in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    source: &'a str,
    start: usize,
    end: usize,
}

/// A text from the file, with its place.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(super) struct SourceText(Spanned<String>);

impl SourceText {
    /// The TOML's text.
    pub fn text(&self) -> &str {
        self.0.get_ref()
    }
}

impl<'a> Block<'a> {
    pub const fn new(source: &'a str, range: &Range<usize>) -> Self {
        Self { source, start: range.start, end: range.end }
    }

    fn text(&self) -> &'a str {
        &self.source[self.start..self.end]
    }

    /// Parses the block.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, LessonError> {
        let text = TomlText::built_in(self.text().to_owned().into());
        text.parse().map_err(|malformed| {
            let before = self.source[..self.start].matches('\n').count();
            LessonError {
                line: before + malformed.line(),
                column: malformed.column(),
                reason: malformed.reason().to_owned(),
            }
        })
    }

    /// An error about the whole block.
    pub fn wrong(&self, reason: impl Into<String>) -> LessonError {
        LineIndex(self.source).wrong(self.start, reason)
    }

    /// An error about a text, at an offset within the text's value.
    pub fn wrong_at(&self, written: &SourceText, offset: usize, reason: impl Into<String>) -> LessonError {
        let span = written.0.span();
        let raw = self.text().get(span.clone()).unwrap_or_default();
        LineIndex(self.source).wrong(self.start + span.start + within_quotes(raw, offset), reason)
    }

    /// An error at an offset within the block.
    pub fn wrong_behind(&self, offset: usize, reason: impl Into<String>) -> LessonError {
        LineIndex(self.source).wrong(self.start + offset, reason)
    }

    /// The offset in the file of an offset in the block.
    pub const fn offset_behind(&self, offset: usize) -> usize {
        self.start + offset
    }

    /// The offset in the file where a text begins.
    pub fn offset(&self, written: &SourceText) -> usize {
        self.start + written.0.span().start
    }
}

/// The offset within a quoted TOML string of an offset within its value.
fn within_quotes(raw: &str, offset: usize) -> usize {
    let delimiter = if raw.starts_with("\"\"\"") || raw.starts_with("'''") { 3 } else { 1 };
    let Some(inside) = raw.get(delimiter..) else { return 0 };
    let mut at = delimiter;
    if delimiter == 3 {
        // The line end after the opening quotes is not part of the text.
        at += ["\r\n", "\n"].into_iter().find(|end| inside.starts_with(end)).map_or(0, str::len);
    }
    let escapes = raw.starts_with('"');
    let mut said = 0;
    loop {
        let rest = &raw[at..];
        let Some(symbol) = rest.chars().next() else { break };
        let (written, means) = match (symbol, rest.chars().nth(1)) {
            ('\\', Some('u')) if escapes => (6, 1),
            ('\\', Some('U')) if escapes => (10, 1),
            ('\\', Some(next)) if escapes && next.is_whitespace() => (rest.len() - rest[1..].trim_start().len(), 0),
            ('\\', Some(next)) if escapes => (1 + next.len_utf8(), 1),
            _ => (symbol.len_utf8(), symbol.len_utf8()),
        };
        // An escaped line end adds nothing to the value: the offset belongs to what follows it.
        if said >= offset && means > 0 {
            break;
        }
        at += written.min(rest.len());
        if !raw.is_char_boundary(at) {
            break;
        }
        said += means;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Note {
        words: SourceText,
    }

    fn place(source: &str, offset: usize) -> (usize, usize) {
        let start = source.find("words").unwrap();
        let block = Block::new(source, &(start..source.len()));
        let note: Note = block.parse().unwrap();
        let error = block.wrong_at(&note.words, offset, "x");
        (error.line, error.column)
    }

    #[test]
    fn a_byte_of_a_text_is_found_in_the_file() {
        assert_eq!(place("a\nb\nwords = \"one two\"", 4), (3, 14));
        assert_eq!(place("a\nb\nwords = 'é two'", 3), (3, 12));
        assert_eq!(place("words = \"a\\n\\\"b\"", 3), (1, 15));
        assert_eq!(place("words = \"\"\"\none\n two\"\"\"", 5), (3, 2));
        assert_eq!(place("words = \"\"\"\\\n   one \\\n  two\"\"\"", 4), (3, 3));
        assert_eq!(place("words = '''one\ntwo'''", 4), (2, 1));
        assert_eq!(place("words = 'one'", 99), (1, 14));
    }

    #[test]
    fn what_is_no_toml_is_told_with_the_files_line() {
        let source = "a\nb\nwrods = 1";
        let error = Block::new(source, &(4..source.len())).parse::<Note>().unwrap_err();
        assert_eq!((error.line, error.column), (3, 1));
        assert!(error.reason.contains("did you mean \"words\"?"), "{error}");
    }
}
