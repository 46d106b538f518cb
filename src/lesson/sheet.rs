//! A lesson as a sheet of Markdown to print.

use std::fmt::Write;

use super::course::{Course, Told};
use super::plain::{letter, measured};
use super::question::Form;
use super::step::Step;
use crate::figures::Scale;

/// What a sheet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sheet {
    /// Texts and questions, with room to write.
    Questions,
    /// The same, and what was measured and why.
    Answers,
}

/// The sheet of a course that was played to its end; `where_it_ran` says on what.
#[must_use]
pub fn sheet(course: &Course, sheet: Sheet, where_it_ran: &str) -> String {
    let lesson = course.lesson();
    let front = &lesson.front;
    let mut out = format!("# {}\n\n{}\n\n", front.title, front.summary);
    let minutes = front.minutes;
    push(&mut out, &format!("About {minutes} minutes · {where_it_ran} · `vramlab lesson {}`", lesson.name));
    if sheet == Sheet::Questions {
        push(&mut out, "Name: ______________________________");
    }
    push(&mut out, course.introduction());
    for (index, (step, told)) in lesson.steps.iter().zip(course.all_told()).enumerate() {
        push(&mut out, &format!("## {}. {}", index + 1, step.title));
        push(&mut out, &told.prose);
        tell_question(&mut out, step, told, sheet);
        if sheet == Sheet::Answers || told.question.is_none() {
            push(&mut out, told.why.as_deref().unwrap_or_default());
            push(&mut out, &told.after);
        } else {
            push(&mut out, "What came out: ______________________________");
            push(&mut out, "Why: ____________________________________________________________");
        }
    }
    out
}

fn push(out: &mut String, paragraph: &str) {
    if !paragraph.is_empty() {
        out.push_str(paragraph);
        out.push_str("\n\n");
    }
}

fn tell_question(out: &mut String, step: &Step, told: &Told, sheet: Sheet) {
    let (Some(question), Some(asked)) = (&step.question, &told.question) else { return };
    push(out, &format!("**{}**", asked.ask));
    match &question.form {
        Form::Choices(_) => {
            for (place, choice) in asked.choices.iter().enumerate() {
                // Writing to a text never fails.
                let _ = writeln!(out, "- [ ] {}. {choice}", letter(place));
            }
            out.push('\n');
        }
        Form::Number { unit, .. } => {
            let unit = if *unit == Scale::ONE { String::new() } else { format!(" {unit}") };
            push(out, &format!("I expect: ______________{unit}"));
        }
    }
    if sheet == Sheet::Answers
        && let Some(came_out) = told.measured
    {
        push(out, &format!("Measured: {}", measured(&question.form, asked, came_out)));
    }
}
