//! The parts of a document.

use crate::source::Curve;

/// One part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its title.
    Title(String),
    /// Begins a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A list.
    Items(Vec<String>),
    /// A table; its first line names the columns.
    Table(Vec<Vec<String>>),
    /// Something to paste.
    Code(String),
    /// Memory over time, for who can draw.
    Curve(Curve),
}
