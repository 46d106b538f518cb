//! Pictures that may be shown beside an open question: they have no figures and don't reveal the answer.

use serde::Deserialize;

/// A picture beside a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sketch {
    /// The shape of the last step by category, without an axis.
    Step,
    /// How blocks lie in segments; the picture is the same for every run.
    Segments,
}
