//! A lesson as a worksheet in Markdown, to print.

use std::fmt::Write;

use super::course::Course;
use super::plain::{letter, measured};
use super::question::Form;
use crate::figures::{Scale, Template};

/// The contents of a worksheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sheet {
    /// Texts and questions, with room to write.
    Questions,
    /// The same, with the measured answers and their explanations.
    Answers,
}

/// The worksheet of a course that was played to its end; `where_it_ran` names the device. On a sheet of questions, a
/// figure that would reveal an earlier answer becomes a line to write on.
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
    let mut asked_before = false;
    for (index, (step, told)) in lesson.steps.iter().zip(course.all_told()).enumerate() {
        push(&mut out, &format!("## {}. {}", index + 1, step.title));
        let hides = sheet == Sheet::Questions && asked_before;
        let shown = |template: &Template, filled: &str| if hides { template.to_write_on() } else { filled.to_owned() };
        push(&mut out, &shown(&step.prose, &told.prose));
        if let (Some(question), Some(asked)) = (&step.question, &told.question) {
            let choices: Vec<String> = match &question.form {
                Form::Choices(choices) => {
                    choices.iter().zip(&asked.choices).map(|(choice, filled)| shown(&choice.text, filled)).collect()
                }
                Form::Number { .. } | Form::Goal(_) => Vec::new(),
            };
            push(&mut out, &format!("**{}**", shown(&question.ask, &asked.ask)));
            answers(&mut out, &question.form, &choices);
            if let (Sheet::Answers, Some(came_out)) = (sheet, told.measured) {
                push(&mut out, &format!("Measured: {}", measured(&question.form, asked, came_out)));
            }
        }
        if sheet == Sheet::Answers || told.question.is_none() {
            push(&mut out, told.why.as_deref().unwrap_or_default());
            push(&mut out, &shown(&step.after, &told.after));
        } else {
            push(&mut out, "What came out: ______________________________");
            push(&mut out, "Why: ____________________________________________________________");
        }
        asked_before |= told.question.is_some();
    }
    out
}

fn push(out: &mut String, paragraph: &str) {
    if !paragraph.is_empty() {
        out.push_str(paragraph);
        out.push_str("\n\n");
    }
}

/// Room for an answer.
fn answers(out: &mut String, form: &Form, choices: &[String]) {
    match form {
        Form::Choices(_) => {
            for (place, choice) in choices.iter().enumerate() {
                // Writing to a `String` never fails.
                let _ = writeln!(out, "- [ ] {}. {choice}", letter(place));
            }
            out.push('\n');
        }
        Form::Number { unit, .. } => {
            let unit = if *unit == Scale::ONE { String::new() } else { format!(" {unit}") };
            push(out, &format!("I expect: ______________{unit}"));
        }
        Form::Goal(goal) => {
            let switches: Vec<&str> = goal.allow.iter().map(|switch| switch.word()).collect();
            push(out, &format!("You may set: `{}`", switches.join("`, `")));
            for number in 1..=goal.tries {
                push(out, &format!("Try {number}: ______________________________ gave ______________"));
            }
        }
    }
}
