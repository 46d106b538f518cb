//! What a step of a course has shown and asked, and its outcome.

use super::answer::{Answer, MeasuredAnswer, Worth};

/// What a step has shown so far, and its outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepText {
    /// What was shown first, in Markdown.
    pub prose: String,
    /// The question, where there is one.
    pub question: Option<QuestionText>,
    /// The answer.
    pub answer: Option<Answer>,
    /// Tries for a goal so far.
    pub tries: Vec<Try>,
    /// What came out, where that is clear.
    pub measured: Option<MeasuredAnswer>,
    /// What the answer was worth; none where nothing was asked, or nothing is right here.
    pub worth: Option<Worth>,
    /// What is said to an answer that was wrong, in Markdown.
    pub reply: Option<String>,
    /// Why, in Markdown.
    pub why: Option<String>,
    /// What was shown at the end, in Markdown.
    pub after: String,
    /// What the lesson says and the run does not show.
    pub untrue: Vec<String>,
}

/// A question with its figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionText {
    /// The question.
    pub ask: String,
    /// What can be chosen; empty where a number is asked for.
    pub choices: Vec<String>,
    /// A help.
    pub hint: Option<String>,
}

/// A try for a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// Switches that stood otherwise than when the goal was set, with their values.
    pub settings: String,
    /// What came of it.
    pub outcome: String,
}
