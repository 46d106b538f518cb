//! A learner's progress in a lesson, as the stream reports it, so that a class can be followed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A learner's progress in a lesson.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonNote {
    /// The learner's name.
    pub learner: Arc<str>,
    /// The lesson's name.
    pub lesson: Arc<str>,
    /// The lesson's title.
    pub title: Arc<str>,
    /// The step, counted from 1; 0 before the first.
    pub step: u32,
    /// The number of steps.
    pub steps: u32,
    /// What the learner is doing.
    pub doing: LessonPart,
    /// Half points so far.
    pub halves: u32,
    /// Questions answered so far.
    pub answered: u32,
    /// The number of questions.
    pub questions: u32,
    /// Answers so far.
    pub answers: Vec<LessonAnswer>,
    /// Seconds that the learner has been at this step, if reported.
    pub seconds: u32,
}

/// A learner's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonAnswer {
    /// The step, counted from 1.
    pub step: u32,
    /// The step's title.
    pub title: Arc<str>,
    /// The answer in words.
    pub said: Arc<str>,
    /// Half points for the answer; `None` if it did not count, or is not measured yet.
    pub halves: Option<u32>,
}

/// What a learner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonPart {
    /// Reading.
    Reading,
    /// Thinking about a question.
    Asked,
    /// Finished.
    Over,
    /// Trying to reach a goal.
    Acting,
}

impl LessonPart {
    /// The word in tables.
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
