//! What may be seen beside an open question: a picture without figures, which the answer is not read from.

use serde::Deserialize;

/// A picture beside a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sketch {
    /// The shape of the step that ran last, by category, without an axis.
    Step,
    /// How blocks lie in segments: the same for every run.
    Segments,
}
