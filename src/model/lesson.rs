//! How far a learner is in a lesson, as the stream says it: a class is followed by it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How far a learner is in a lesson.
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
    /// Answers so far.
    pub answers: Vec<LessonAnswer>,
    /// Seconds that the learner has been where they are, as far as that was told.
    pub seconds: u32,
}

/// A learner's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonAnswer {
    /// The step, counted from 1.
    pub step: u32,
    /// Its title.
    pub title: Arc<str>,
    /// What was answered, in words.
    pub said: Arc<str>,
    /// Halves of points that it was worth; none where it did not count, or is not measured yet.
    pub halves: Option<u32>,
}

/// What a learner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonPart {
    /// Reads.
    Reading,
    /// Thinks about a question.
    Asked,
    /// Is through.
    Over,
    /// Tries to reach a goal.
    Acting,
}

impl LessonPart {
    /// The word for it in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Asked => "asked",
            Self::Over => "finished",
            Self::Acting => "at work",
        }
    }
}
