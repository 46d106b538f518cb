//! Findings, remedies and autopsies in the words of the command line.

use crate::export::Words;
use crate::model::Remedy;
use crate::{session, tui};

/// How findings and autopsies are worded on the command line.
pub(super) const WORDS: Words = Words { flag, autopsy: |view| tui::autopsy_lines(view, usize::MAX, flag) };

/// The command line's flag for a remedy.
pub(super) fn flag(remedy: &Remedy) -> String {
    session::in_flags(remedy)
}
