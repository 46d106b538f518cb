//! The answer to a step, in words for a teacher.

use super::answer::{Answer, MeasuredAnswer, Worth};
use super::plain::{letter, measured};
use super::question::Form;
use super::told::StepText;
use crate::model::LessonAnswer;

/// The answer to the step with this number and title; `None` if it has no answer yet.
pub(super) fn answered(told: &StepText, step: u32, title: &str, form: &Form) -> Option<LessonAnswer> {
    let asked = told.question.as_ref()?;
    let said = match told.answer? {
        Answer::Choice(place) => format!("{}. {}", letter(place), asked.choices.get(place)?),
        Answer::Amount(amount) => measured(form, asked, MeasuredAnswer::Amount(amount)),
        Answer::Tried => told.tries.last().map(|last| last.settings.clone()).unwrap_or_default(),
        Answer::Passed | Answer::Solution => "passed".to_owned(),
    };
    Some(LessonAnswer { step, title: title.into(), said: said.into(), halves: told.worth.map(Worth::halves) })
}
