//! Where somebody who takes a lesson is, as the stream tells it: a class is followed by it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Where somebody who takes a lesson is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonNote {
    /// Who.
    pub learner: Arc<str>,
    /// The lesson, by its name.
    pub lesson: Arc<str>,
    /// Its title.
    pub title: Arc<str>,
    /// The step, counted from 1; 0 before the first.
    pub step: u32,
    /// How many there are.
    pub steps: u32,
    /// What the learner does.
    pub doing: LessonPart,
    /// Halves of points so far.
    pub halves: u32,
    /// Questions answered so far.
    pub answered: u32,
    /// Questions there are.
    pub questions: u32,
}

/// What somebody who takes a lesson does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonPart {
    /// Reads.
    Reading,
    /// Thinks about a question.
    Asked,
    /// Is through.
    Over,
}

impl LessonPart {
    /// The word for it in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Asked => "asked",
            Self::Over => "finished",
        }
    }
}
