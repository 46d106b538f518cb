//! `vramlab lesson check`: finds mistakes in a lesson, and checks that it is true.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use color_eyre::eyre::Result;

use super::place::{place_of, runs_of};
use crate::cli::Status;
use crate::cli::columns::{Column, Paper, Table};
use crate::cli::output::{complain, warn};
use crate::cli::spec::{cards, device, workloads};
use crate::lesson::{Answer, Course, Lesson, LessonStep, Library, MeasuredAnswer, StepText, of_file, play};

/// Arguments of `vramlab lesson check`.
#[derive(Debug, Args)]
pub(super) struct LessonCheckArgs {
    /// Files, or names of lessons [default: all lessons].
    #[arg(value_name = "FILE|NAME")]
    files: Vec<String>,
    /// Also play each lesson on its own device: every check must hold, and exactly one choice must be right.
    #[arg(long)]
    play: bool,
    /// Also play each lesson on this device, and warn if no choice is right there, or several are.
    #[arg(long, value_name = "DEVICE", requires = "play")]
    also: Vec<String>,
}

/// Checks lesson files.
pub(super) fn check_files(library: &Library, args: &LessonCheckArgs) -> Result<Status> {
    let files = if args.files.is_empty() { library.names().map(str::to_owned).collect() } else { args.files.clone() };
    let mut wrong = 0;
    let mut table =
        Table::new([Column::wraps(""), Column::right(""), Column::right(""), Column::left(""), Column::left("")]);
    for file in &files {
        match check(library, file, args) {
            Ok(row) => table.words(row),
            Err(complaints) => {
                wrong += 1;
                complaints.iter().for_each(complain);
            }
        }
    }
    let paper = Paper::terminal();
    table.print(&mut paper.out(), paper)?;
    if wrong > 0 {
        complain(format_args!("{wrong} of {} lessons must be corrected", files.len()));
        return Ok(Status::FAILED);
    }
    Ok(Status::DONE)
}

/// The lines to print for a lesson: what is right, or as the error what is wrong.
fn check(library: &Library, file: &str, args: &LessonCheckArgs) -> Result<Vec<String>, Vec<String>> {
    let told = |error: &dyn std::fmt::Display| vec![format!("{file}: {error}")];
    let lesson = if Path::new(file).exists() { of_file(Path::new(file)) } else { library.lesson(file) };
    let lesson = lesson.map_err(|error| vec![error.to_string()])?;
    let runs = lesson.runs(&workloads(), &cards(), None).map_err(|error| told(&error))?;
    for mark in lesson.unread_marks() {
        warn(format_args!("{file}: the mark {mark} is never used; leave it out, or compare with it: {mark}.reserved"));
    }
    let mut row = vec![
        file.to_owned(),
        format!("{} steps", lesson.steps.len()),
        format!("{} questions", lesson.questions()),
        place_of(runs.first()),
    ];
    if args.play {
        let begun = Instant::now();
        let lesson = Arc::new(lesson);
        for device in &args.also {
            unclear_on(&lesson, device)
                .map_err(|error| told(&error))?
                .iter()
                .for_each(|line| warn(format_args!("{file}: {line}")));
        }
        let first = play(Arc::clone(&lesson), runs.clone(), |_| Answer::Passed).map_err(|error| told(&error))?;
        let untrue: Vec<String> = untrue(&first).map(|untrue| format!("{file}: {untrue}")).collect();
        if !untrue.is_empty() {
            return Err(untrue);
        }
        let mut right = first.all_told().iter().filter_map(|told| told.measured).map(MeasuredAnswer::as_answer);
        let again = play(lesson, runs, |_| right.next().unwrap_or(Answer::Passed)).map_err(|error| told(&error))?;
        let (score, questions) = (again.score(), again.lesson().questions());
        if score.halves as usize != 2 * questions {
            return Err(vec![format!(
                "{file}: played again, other answers are right: {score} of {questions} questions"
            )]);
        }
        row.push(format!("true, {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(row)
}

/// The questions of a lesson that have no right answer on another device, or several.
fn unclear_on(lesson: &Arc<Lesson>, name: &str) -> Result<Vec<String>> {
    let runs = runs_of(lesson, Some(&device(name)?))?;
    let course = play(Arc::clone(lesson), runs, |_| Answer::Passed)?;
    let steps = course.lesson().steps.iter().zip(course.all_told()).enumerate();
    let unclear = steps.filter(|(_, (step, told))| step.question.is_some() && told.measured.is_none());
    let line = |(index, (step, told)): (usize, (&LessonStep, &StepText))| {
        let why = told.untrue.last().map_or("", String::as_str);
        format!("on {name}, step {} ({}): {why}", index + 1, step.title)
    };
    Ok(unclear.map(line).collect())
}

/// What a lesson says that the run did not show, with the step of each.
fn untrue(course: &Course) -> impl Iterator<Item = String> {
    let steps = course.lesson().steps.iter().zip(course.all_told()).enumerate();
    steps.flat_map(|(index, (step, told))| {
        told.untrue.iter().map(move |untrue| format!("step {} ({}): {untrue}", index + 1, step.title))
    })
}
