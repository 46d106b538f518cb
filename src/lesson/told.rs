//! What a step of a course has shown and asked, and its outcome.

use super::answer::{Answer, MeasuredAnswer, Worth};

/// What a step has shown so far, and its outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepText {
    /// The text that was shown first, in Markdown.
    pub prose: String,
    /// The question, if there is one.
    pub question: Option<QuestionText>,
    /// The answer.
    pub answer: Option<Answer>,
    /// The tries for a goal so far.
    pub tries: Vec<Try>,
    /// What was measured, if that is clear.
    pub measured: Option<MeasuredAnswer>,
    /// The answer's worth; `None` if there was no question, or no answer is right here.
    pub worth: Option<Worth>,
    /// The reply to a wrong answer, in Markdown.
    pub reply: Option<String>,
    /// The explanation, in Markdown.
    pub why: Option<String>,
    /// The text at the end, in Markdown.
    pub after: String,
    /// Statements of the lesson that the run contradicts.
    pub untrue: Vec<String>,
}

/// A question, with its figures filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionText {
    /// The question's text.
    pub ask: String,
    /// The choices; empty if the answer is a number.
    pub choices: Vec<String>,
    /// The hint.
    pub hint: Option<String>,
}

/// A try for a goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// Switches that have changed since the goal was set, with their values.
    pub settings: String,
    /// The outcome.
    pub outcome: String,
}
