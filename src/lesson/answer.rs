//! An answer, what was measured, and what the answer is worth.

use crate::figures::{Amount, EvaluationError};

/// What the learner expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The choice with this index, counted from 0.
    Choice(usize),
    /// A number.
    Amount(Amount),
    /// A try for the goal, with the switches as the learner has set them.
    Tried,
    /// A try for the goal with the lesson's own solution.
    Solution,
    /// No answer: the learner skipped the question.
    Passed,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeasuredAnswer {
    /// The choice with this index is right.
    Choice(usize),
    /// The measured number.
    Amount(Amount),
    /// The goal was reached, at this cost.
    Reached {
        /// The cost, as a share.
        cost: Option<Amount>,
    },
}

impl MeasuredAnswer {
    /// The right answer.
    #[must_use]
    pub const fn as_answer(self) -> Answer {
        match self {
            Self::Choice(place) => Answer::Choice(place),
            Self::Amount(amount) => Answer::Amount(amount),
            Self::Reached { .. } => Answer::Solution,
        }
    }
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// One point.
    Right,
    /// Half a point: a number that is not far off.
    Near,
    /// No point.
    Wrong,
}

impl Worth {
    /// The worth in halves of a point.
    #[must_use]
    pub const fn halves(self) -> u32 {
        match self {
            Self::Right => 2,
            Self::Near => 1,
            Self::Wrong => 0,
        }
    }
}

/// Why no answer can be called right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// A figure is unknown.
    #[error(transparent)]
    Unanswered(#[from] EvaluationError),
    /// No choice is right.
    #[error("none of the choices is right here")]
    None,
    /// Several choices are right.
    #[error("choices {} and {} are both right here", .0 + 1, .1 + 1)]
    Several(usize, usize),
    /// The goal was not reached; what was measured instead.
    #[error("not yet: {0}")]
    Missed(String),
    /// A step failed.
    #[error("out of memory: a step failed")]
    OutOfMemory,
}
