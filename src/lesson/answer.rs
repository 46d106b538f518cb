//! An answer, what was measured, and what the answer is worth.

use crate::figures::{Amount, EvaluationError};

/// What the learner expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The sentence at this place, counted from 0.
    Choice(usize),
    /// So much.
    Amount(Amount),
    /// The goal was tried for, with the switches as the learner had set them.
    Tried,
    /// The goal was tried for as the lesson itself would.
    Solution,
    /// Nothing: the question was passed over.
    Passed,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeasuredAnswer {
    /// The sentence at this place is right.
    Choice(usize),
    /// So much.
    Amount(Amount),
    /// The goal was reached, at this cost.
    Reached {
        /// As a share.
        cost: Option<Amount>,
    },
}

impl MeasuredAnswer {
    /// The answer that is right.
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
    /// A point.
    Right,
    /// Half a point: a number that is not far off.
    Near,
    /// Nothing.
    Wrong,
}

impl Worth {
    /// In halves of a point.
    #[must_use]
    pub const fn halves(self) -> u32 {
        match self {
            Self::Right => 2,
            Self::Near => 1,
            Self::Wrong => 0,
        }
    }
}

/// Why nothing can be said to be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// A figure is not known.
    #[error(transparent)]
    Unanswered(#[from] EvaluationError),
    /// No choice is right.
    #[error("none of the choices is right here")]
    None,
    /// Several choices are.
    #[error("choices {} and {} are both right here", .0 + 1, .1 + 1)]
    Several(usize, usize),
    /// The goal was not reached; what was measured instead.
    #[error("not yet: {0}")]
    Missed(String),
    /// A step failed.
    #[error("out of memory: a step failed")]
    OutOfMemory,
}
