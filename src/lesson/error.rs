//! Errors in a lesson's file, with their place.

use thiserror::Error;

/// An error in a lesson's file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct LessonError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong there, and what to do.
    pub reason: String,
}

/// A text, for turning offsets into lines and columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineIndex<'a>(pub &'a str);

impl LineIndex<'_> {
    /// An error at an offset of the text.
    pub fn wrong(self, offset: usize, reason: impl Into<String>) -> LessonError {
        let offset = (0..=offset.min(self.0.len())).rev().find(|at| self.0.is_char_boundary(*at)).unwrap_or(0);
        let before = &self.0[..offset];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        LessonError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason: reason.into(),
        }
    }
}
