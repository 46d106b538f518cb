//! The parts of a document.

use crate::cli::columns::{Table, Tone};
use crate::source::Curve;

/// One part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DocumentPart {
    /// The document's title.
    Title(String),
    /// A heading, which starts a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph that says whether something is in order; a terminal shows it in a colour.
    Verdict(Tone, String),
    /// A list.
    Items(Vec<String>),
    /// A table.
    Table(Table),
    /// Something to paste.
    Code(String),
    /// Memory over time, for formats that can draw.
    Curve(Curve),
}
