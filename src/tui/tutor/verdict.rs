//! The result of a lesson's step in a word.

use ratatui::text::Span;

use crate::drawing::pane::span;
use crate::drawing::theme::{Theme, Token};
use crate::lesson::{Answer, StepText, Worth};

/// The word in its colour; empty if nothing was asked.
pub(super) fn came_out(theme: &Theme, told: &StepText) -> Vec<Span<'static>> {
    let (token, word) = match (told.answer, told.worth) {
        (Some(Answer::Passed), _) => (Token::Dim, "passed"),
        (_, Some(Worth::Right)) => (Token::Ok, "✓ right"),
        (_, Some(Worth::Near)) => (Token::Warn, "½ near"),
        (_, Some(Worth::Wrong)) => (Token::Danger, "✗ wrong"),
        (_, None) => return Vec::new(),
    };
    vec![span(theme, token, word)]
}
