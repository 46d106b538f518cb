//! `vramlab lesson`: lists lessons, takes one line by line, checks files, prints sheets.

mod check;
mod place;
mod taking;

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use check::{LessonCheckArgs, check_files};
use clap::{Args, Subcommand};
use color_eyre::eyre::{Result, WrapErr};
use place::{place_of, runs_of};
use serde_json::json;
use taking::{LessonExit, LineLesson};

use super::output::{stdout, warn};
use super::screen::ScreenArgs;
use super::spec::{device, user_folder};
use super::{Status, Usage, config, lab, record};
use crate::figures;
use crate::lesson::{
    Answer, Course, Lesson, LessonPlayer, LessonRuns, Library, LibraryError, Progress, Score, Sheet, play, sheet,
};
use crate::model::{Event, EventKind};
use crate::session::{DeviceChoice, Listener, Speed};
use crate::source::{self, Recorder, Request};
use crate::tui::{self, Lecture};
use crate::user_input::ShelfKind;

/// Arguments of `vramlab lesson`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct LessonArgs {
    #[command(subcommand)]
    command: Option<Commands>,
    /// The lesson to take: its name, or a file. Without one, all lessons are listed.
    #[arg(value_name = "NAME|FILE")]
    name: Option<String>,
    /// Take the lesson on another device: cpu, a GPU (cuda:0), or another card (sim:t4). What the lesson says may not be
    /// true there.
    #[arg(long, value_name = "DEVICE", requires = "name")]
    device: Option<String>,
    /// Take the lesson line by line, without a screen; works with a screen reader.
    #[arg(long, requires = "name")]
    plain: bool,
    #[command(flatten)]
    screen: ScreenArgs,
    /// The learner's name, shown to those who follow the recording [default: the user's name].
    #[arg(long = "as", value_name = "NAME", requires = "name")]
    learner: Option<String>,
    /// Write a recording to this file: `vramlab class` follows it, `vramlab open` plays it.
    #[arg(long, value_name = "FILE", requires = "name")]
    record: Option<PathBuf>,
    /// Print a worksheet in Markdown, of one lesson or of all.
    #[arg(long, value_name = "NAME|all", conflicts_with = "name")]
    export: Option<String>,
    /// Include the measured answers and the explanations in the worksheet.
    #[arg(long, requires = "export")]
    answers: bool,
    /// Forget all progress.
    #[arg(long, conflicts_with_all = ["name", "export"])]
    reset: bool,
    /// List the lessons as JSON.
    #[arg(long, conflicts_with_all = ["name", "export", "reset"])]
    json: bool,
    /// List the figures that a lesson's conditions may name, in Markdown.
    #[arg(long, conflicts_with_all = ["name", "export", "reset", "json"])]
    figures: bool,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Check lesson files: mistakes with line and column; exit code 1 if there are any.
    Check(LessonCheckArgs),
}

/// The lessons, including the user's own.
fn library() -> Library {
    Library::with_user_lessons(user_folder(ShelfKind::Lessons).as_deref())
}

/// Lists, takes, checks or prints lessons.
pub(super) fn run(args: &LessonArgs) -> Result<Status> {
    match (&args.command, &args.name, &args.export) {
        (Some(Commands::Check(check)), ..) => check_files(&library(), check),
        (None, Some(name), _) => take(args, name),
        (None, None, Some(which)) => export(which, if args.answers { Sheet::Answers } else { Sheet::Questions }),
        (None, None, None) if args.reset => reset(),
        (None, None, None) if args.figures => {
            write!(stdout(), "{}", figures::list())?;
            Ok(Status::DONE)
        }
        (None, None, None) => list(args.json),
    }
}

fn progress_place() -> Option<PathBuf> {
    Progress::place(|name| std::env::var_os(name))
}

fn load_progress() -> Progress {
    let (progress, told) = progress_place().map(|path| Progress::load(&path)).unwrap_or_default();
    told.iter().for_each(warn);
    progress
}

fn reset() -> Result<Status> {
    if let Some(path) = progress_place() {
        Progress::default().save(&path)?;
    }
    writeln!(stdout(), "No lesson was taken so far.")?;
    Ok(Status::DONE)
}

fn list(as_json: bool) -> Result<Status> {
    let (lessons, warnings) = library().all();
    let progress = load_progress();
    if as_json {
        let row = |lesson: &Lesson| {
            let (front, mark) = (&lesson.front, progress.of(&lesson.name));
            json!({
                "name": lesson.name, "title": front.title, "summary": front.summary, "minutes": front.minutes,
                "workload": front.workload(), "device": front.device(), "steps": lesson.steps.len(),
                "questions": lesson.questions(),
                "taken": mark.map(|mark| json!({
                    "steps": mark.steps, "finished": mark.finished, "points": f64::from(mark.score.halves) / 2.0,
                    "answered": mark.score.of,
                })),
            })
        };
        let lessons: Vec<_> = lessons.iter().map(row).collect();
        writeln!(stdout(), "{}", json!({ "lessons": lessons, "warnings": warnings }))?;
        return Ok(Status::DONE);
    }
    let mut out = stdout();
    if lessons.is_empty() {
        writeln!(out, "There are no lessons; lab/README.md explains how to write one.")?;
    }
    let name = lessons.iter().map(|lesson| lesson.name.chars().count()).max().unwrap_or(0);
    for (number, lesson) in (1..).zip(&lessons) {
        let taken = match progress.of(&lesson.name) {
            None => String::new(),
            Some(mark) if mark.finished => format!(" · {}", mark.score),
            Some(mark) => format!(" · at step {} of {}", mark.steps + 1, lesson.steps.len()),
        };
        let front = &lesson.front;
        writeln!(out, "{number:>3}  {:name$}  {} · {} min{taken}", lesson.name, front.title, front.minutes)?;
    }
    if !lessons.is_empty() {
        writeln!(out, "\n`vramlab lesson NAME` takes one; a number does too.")?;
    }
    warnings.iter().for_each(warn);
    Ok(Status::DONE)
}

/// Finds the lesson by name, by its number in the list, or by file.
fn lesson(name: &str) -> Result<Lesson> {
    let library = library();
    if let Some(place) = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
        let (lessons, _) = library.all();
        let count = lessons.len();
        let none = || Usage(format!("there is no lesson {name}; there are {count}, and `vramlab lesson` lists them"));
        return Ok(lessons.into_iter().nth(place).ok_or_else(none)?);
    }
    library.lesson(name).map_err(|error| match error {
        LibraryError::Unknown { .. } => Usage(error.to_string()).into(),
        other => other.into(),
    })
}

fn learner(given: Option<&str>) -> String {
    let of = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    given.map(str::to_owned).or_else(|| of("USER")).or_else(|| of("LOGNAME")).unwrap_or_else(|| "learner".to_owned())
}

/// A recording that a run's listener writes; it is complete once finished.
type SharedRecorder = Rc<RefCell<Option<Recorder>>>;

fn listener(recorder: &SharedRecorder) -> Listener {
    let recorder = Rc::clone(recorder);
    Box::new(move |event: &Event| {
        if let Some(recorder) = recorder.borrow_mut().as_mut() {
            recorder.push(event);
            if matches!(event.kind, EventKind::Lesson(_)) {
                recorder.close_frame();
            }
        }
    })
}

fn take(args: &LessonArgs, name: &str) -> Result<Status> {
    let lesson = Arc::new(lesson(name)?);
    let other = args.device.as_deref().map(device).transpose()?;
    let runs = runs_of(&lesson, other.as_ref())?;
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if !args.plain && !dumb && io::stdin().is_terminal() && io::stdout().is_terminal() {
        return show(args, lesson, runs, other.as_ref());
    }
    let recorder: SharedRecorder = Rc::default();
    *recorder.borrow_mut() = args.record.as_deref().map(record::create).transpose()?;
    let mut taking = LineLesson::new(load_progress(), progress_place());
    let mut player = begin(&lesson, &runs, args, &recorder, taking.progress.resumes(&lesson.name))?;
    while matches!(taking.take(&mut player, &place_of(runs.first()))?, LessonExit::Again) {
        player = begin(&lesson, &runs, args, &recorder, Default::default())?;
    }
    drop(player);
    if let Some(recorder) = recorder.borrow_mut().take() {
        recorder.finish()?;
    }
    Ok(Status::DONE)
}

/// Takes a lesson on the screen.
fn show(args: &LessonArgs, lesson: Arc<Lesson>, runs: LessonRuns, other: Option<&DeviceChoice>) -> Result<Status> {
    let settings = config::settings();
    let runs = runs.paced(Speed::Watchable);
    let mut options = args.screen.options(&settings, tui::OpeningCommand::default())?;
    let learner = learner(args.learner.as_deref()).as_str().into();
    if let Some(path) = &args.record {
        record::refuse_existing(path)?;
    }
    let source = source::live(runs.first().clone()).wrap_err("can't start a thread")?;
    if let Some(path) = args.record.clone() {
        source.request(Request::Record(path));
    }
    let resumes = load_progress().resumes(&lesson.name);
    let following = following(&lesson, other);
    options.lesson = Some(Lecture { lesson, runs, learner, keep, resumes, following });
    lab::stay(source, options)
}

/// The lessons after this one in the list; empty for a file that is not in the list.
fn following(lesson: &Lesson, other: Option<&DeviceChoice>) -> Vec<(Arc<Lesson>, LessonRuns)> {
    let (lessons, _) = library().all();
    let Some(place) = lessons.iter().position(|known| known.name == lesson.name) else { return Vec::new() };
    let ready = |lesson: Lesson| {
        let runs = runs_of(&lesson, other).ok()?.paced(Speed::Watchable);
        Some((Arc::new(lesson), runs))
    };
    lessons.into_iter().skip(place + 1).filter_map(ready).collect()
}

/// Saves the learner's progress; returns a sentence if that fails.
fn keep(course: &Course) -> Option<String> {
    let path = progress_place()?;
    let (mut progress, told) = Progress::load(&path);
    progress.note(course);
    progress.save(&path).err().map(|error| error.to_string()).or(told)
}

fn begin(
    lesson: &Arc<Lesson>,
    runs: &LessonRuns,
    args: &LessonArgs,
    recorder: &SharedRecorder,
    resumes: (usize, Score),
) -> Result<LessonPlayer> {
    let hears = recorder.borrow().is_some().then(|| listener(recorder));
    let learner = learner(args.learner.as_deref());
    Ok(LessonPlayer::resume(Arc::clone(lesson), runs.clone(), &learner, hears, resumes)?)
}

fn export(which: &str, kind: Sheet) -> Result<Status> {
    let lessons = if which == "all" {
        let (lessons, warnings) = library().all();
        warnings.iter().for_each(warn);
        lessons
    } else {
        vec![lesson(which)?]
    };
    for (place, lesson) in lessons.into_iter().enumerate() {
        if place > 0 {
            // Markdown has no page break; printers and converters understand this element.
            writeln!(stdout(), "<div style=\"page-break-after: always\"></div>\n")?;
        }
        let runs = runs_of(&lesson, None)?;
        let place = place_of(runs.first());
        let course = play(Arc::new(lesson), runs, |_| Answer::Passed)?;
        write!(stdout(), "{}", sheet(&course, kind, &place))?;
    }
    Ok(Status::DONE)
}
