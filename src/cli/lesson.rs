//! `vramlab lesson`: lists lessons, takes one line by line, checks files, prints sheets.

use std::cell::RefCell;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand};
use color_eyre::eyre::{Result, WrapErr, eyre};
use serde_json::json;

use super::output::{complain, stdout, warn};
use super::screen::ScreenArgs;
use super::spec::{cards, device, user_folder, workloads};
use super::{Status, Usage, config, lab, record, table};
use crate::figures;
use crate::given::Kind;
use crate::guide;
use crate::lesson::{
    Answer, Course, Form, Lesson, Library, LibraryError, Measured, Player, Progress, Runs, Sheet, Stage, Worth, letter,
    measured, of_file, play, sheet,
};
use crate::model::{Event, EventKind};
use crate::session::{Command, DeviceChoice, LabSpec, Listener, Speed};
use crate::source::{self, Recorder, Request};
use crate::tui::{self, Lecture};

/// Arguments of `vramlab lesson`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct LessonArgs {
    #[command(subcommand)]
    command: Option<Commands>,
    /// The lesson to take: its name, or a file. Without one, all lessons are listed.
    #[arg(value_name = "NAME|FILE")]
    name: Option<String>,
    /// Take it on another device: cpu, a GPU (cuda:0), or another card (sim:t4). What the lesson says need not hold there.
    #[arg(long, value_name = "DEVICE", requires = "name")]
    device: Option<String>,
    /// Take it line by line, without a screen: also for readers that speak.
    #[arg(long, requires = "name")]
    plain: bool,
    #[command(flatten)]
    screen: ScreenArgs,
    /// Who takes it, for whoever follows the recording [default: the user's name].
    #[arg(long = "as", value_name = "NAME", requires = "name")]
    learner: Option<String>,
    /// Write a recording to this file: `vramlab class` follows it, `vramlab open` plays it.
    #[arg(long, value_name = "FILE", requires = "name")]
    record: Option<PathBuf>,
    /// Print a sheet in Markdown: of one lesson, or of all.
    #[arg(long, value_name = "NAME|all", conflicts_with = "name")]
    export: Option<String>,
    /// With what was measured, and why.
    #[arg(long, requires = "export")]
    answers: bool,
    /// Forget what was taken so far.
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
    /// Check files of lessons: what is wrong is told with line and column; exit code 1 where something is.
    Check(CheckArgs),
}

/// Arguments of `vramlab lesson check`.
#[derive(Debug, Args)]
struct CheckArgs {
    /// Files, or names of lessons [default: all lessons there are].
    #[arg(value_name = "FILE|NAME")]
    files: Vec<String>,
    /// Play each one too, where its figures hold: every check must hold and exactly one choice be right.
    #[arg(long)]
    play: bool,
}

/// The lessons, the user's own included.
fn library() -> Library {
    Library::with_user_lessons(user_folder(Kind::Lessons).as_deref())
}

/// Lists, takes, checks or prints lessons.
pub(super) fn run(args: &LessonArgs) -> Result<Status> {
    match (&args.command, &args.name, &args.export) {
        (Some(Commands::Check(check)), ..) => check_files(check),
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
        writeln!(out, "There are no lessons; lab/README.md tells how to write one.")?;
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

/// The lesson that a name, a number of the list, or a file stands for.
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

/// What a lesson runs.
fn runs_of(lesson: &Lesson, other: Option<&DeviceChoice>) -> Result<Runs> {
    lesson.runs(&workloads(), &cards(), other).map_err(|error| eyre!("{}: {error}", lesson.name))
}

/// On what a run runs, in words.
fn place_of(spec: &LabSpec) -> String {
    match &spec.device {
        DeviceChoice::Cpu => format!("{} on cpu", spec.workload.name),
        DeviceChoice::Cuda(ordinal) => format!("{} on cuda:{ordinal}", spec.workload.name),
        DeviceChoice::Sim(card) => format!("{} on sim:{} (simulated)", spec.workload.name, card.name),
    }
}

fn learner(given: Option<&str>) -> String {
    let of = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    given.map(str::to_owned).or_else(|| of("USER")).or_else(|| of("LOGNAME")).unwrap_or_else(|| "learner".to_owned())
}

/// A recording that a run's listener writes; whole once it is finished.
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
        return show(args, lesson, runs);
    }
    let recorder: SharedRecorder = Rc::default();
    *recorder.borrow_mut() = args.record.as_deref().map(record::create).transpose()?;
    let mut taking = Taking { width: width(), progress: load_progress(), place: progress_place() };
    let mut player = begin(&lesson, &runs, args, &recorder)?;
    while matches!(taking.take(&mut player, &place_of(runs.first()))?, Left::Again) {
        player = begin(&lesson, &runs, args, &recorder)?;
    }
    drop(player);
    if let Some(recorder) = recorder.borrow_mut().take() {
        recorder.finish()?;
    }
    Ok(Status::DONE)
}

/// Takes a lesson on the screen.
fn show(args: &LessonArgs, lesson: Arc<Lesson>, runs: Runs) -> Result<Status> {
    let settings = config::settings();
    let runs = runs.paced(Speed::Watchable);
    let mut options = args.screen.options(&settings, tui::Origin::default())?;
    let learner = learner(args.learner.as_deref()).as_str().into();
    if let Some(path) = &args.record {
        record::refuse_existing(path)?;
    }
    let source = source::live(runs.first().clone()).wrap_err("the system gives no threads")?;
    // It rests before its first step until the lesson wants one.
    source.request(Request::Lab(Command::Train(0)));
    if let Some(path) = args.record.clone() {
        source.request(Request::Record(path));
    }
    options.lesson = Some(Lecture { lesson, runs, learner, keep });
    lab::stay(source, options)
}

/// Keeps how far somebody is; a sentence where that can't be.
fn keep(course: &Course) -> Option<String> {
    let path = progress_place()?;
    let (mut progress, told) = Progress::load(&path);
    progress.note(course);
    progress.save(&path).err().map(|error| error.to_string()).or(told)
}

fn begin(lesson: &Arc<Lesson>, runs: &Runs, args: &LessonArgs, recorder: &SharedRecorder) -> Result<Player> {
    let hears = recorder.borrow().is_some().then(|| listener(recorder));
    Ok(Player::begin(Arc::clone(lesson), runs.clone(), &learner(args.learner.as_deref()), hears)?)
}

/// Columns of the terminal, within what reads well.
fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col));
    columns.clamp(40, 100)
}

/// Somebody who takes a lesson line by line.
struct Taking {
    width: usize,
    progress: Progress,
    place: Option<PathBuf>,
}

/// How somebody left a lesson.
enum Left {
    Over,
    Quit,
    Again,
}

/// What somebody wrote.
enum Line {
    Text(String),
    Quit,
    Again,
}

impl Taking {
    fn take(&mut self, player: &mut Player, place: &str) -> Result<Left> {
        let front = &player.course().lesson().front;
        let title = format!("{}\n{place} · about {} minutes", front.title, front.minutes);
        writeln!(stdout(), "{title}\n")?;
        if !player.course().counts() {
            let text = format!(
                "This lesson's figures hold on {}; here they may differ, and what it says need not be so.",
                front.device()
            );
            self.tell(&text)?;
        }
        self.tell(player.course().introduction())?;
        loop {
            match player.course().stage() {
                Stage::Over => {
                    self.keep(player.course());
                    let course = player.course();
                    if course.lesson().questions() > 0 {
                        writeln!(stdout(), "That was the last step: {} points.", course.score())?;
                    } else {
                        writeln!(stdout(), "That was the last step.")?;
                    }
                    return Ok(Left::Over);
                }
                Stage::Asking => match self.ask(player)? {
                    Line::Quit => return Ok(Left::Quit),
                    Line::Again => return Ok(Left::Again),
                    Line::Text(_) => self.explain(player.course())?,
                },
                Stage::Introduction | Stage::Explained => {
                    if player.course().stage() == Stage::Explained {
                        self.keep(player.course());
                    }
                    match read("Enter goes on, r begins again, q leaves > ")? {
                        Line::Quit => return Ok(Left::Quit),
                        Line::Again => return Ok(Left::Again),
                        Line::Text(_) => {}
                    }
                    player.proceed()?;
                    if player.course().stage() != Stage::Over {
                        self.open(player.course())?;
                    }
                }
                Stage::Preparing | Stage::Trying => {
                    return Err(eyre!(
                        "the run does not get to the end of this step; `vramlab lesson check` tells why"
                    ));
                }
            }
        }
    }

    /// Prints Markdown and an empty line behind it.
    fn tell(&self, markdown: &str) -> Result<()> {
        if !markdown.trim().is_empty() {
            writeln!(stdout(), "{}", guide::plain(&guide::lines(markdown, self.width)))?;
        }
        Ok(())
    }

    /// Begins a step.
    fn open(&self, course: &Course) -> Result<()> {
        let heading = format!("{} of {}: {}", course.place() + 1, course.lesson().steps.len(), course.step().title);
        writeln!(stdout(), "\n== {heading}\n")?;
        self.tell(&course.told().prose)?;
        if course.stage() == Stage::Explained {
            self.explain(course)?;
        }
        Ok(())
    }

    /// Asks until there is an answer.
    fn ask(&self, player: &mut Player) -> Result<Line> {
        let course = player.course();
        let (Some(question), Some(asked)) = (&course.step().question, &course.told().question) else {
            return Ok(Line::Text(String::new()));
        };
        let (form, hint) = (question.form.clone(), asked.hint.clone());
        self.tell(&asked.ask)?;
        for (place, choice) in asked.choices.iter().enumerate() {
            let lines = guide::plain(&guide::lines(choice, self.width.saturating_sub(5)));
            writeln!(stdout(), "  {}. {}", letter(place), lines.trim_end().replace('\n', "\n     "))?;
        }
        let how = match &form {
            Form::Choices(choices) => format!("A to {}", letter(choices.len() - 1)),
            Form::Number { unit, .. } => format!("a number {unit}").trim_end().to_owned(),
        };
        let help = if hint.is_some() { ", ? helps" } else { "" };
        let prompt = format!("Your answer ({how}{help}, - passes, q leaves) > ");
        loop {
            let text = match read(&prompt)? {
                Line::Text(text) => text,
                left => return Ok(left),
            };
            match (text.trim(), &hint) {
                ("", _) => {}
                ("?", Some(hint)) => self.tell(hint)?,
                ("?", None) => self.tell("There is no hint for this one.")?,
                ("-", _) => {
                    player.answer(Answer::Passed)?;
                    return Ok(Line::Text(text));
                }
                (answer, _) => match form.read(answer) {
                    Ok(answer) => {
                        player.answer(answer)?;
                        return Ok(Line::Text(text));
                    }
                    Err(why) => self.tell(&format!("{why}."))?,
                },
            }
        }
    }

    /// Says what came out.
    fn explain(&self, course: &Course) -> Result<()> {
        let told = course.told();
        if let (Some(question), Some(asked), Some(came_out)) = (&course.step().question, &told.question, told.measured)
        {
            let verdict = match (told.answer, told.worth) {
                (Some(Answer::Passed) | None, _) | (_, None) => "",
                (_, Some(Worth::Right)) => "Right. ",
                (_, Some(Worth::Near)) => "Near: half a point. ",
                (_, Some(Worth::Wrong)) => "Not so. ",
            };
            writeln!(stdout())?;
            self.tell(&format!("{verdict}Measured: {}", measured(&question.form, asked, came_out)))?;
        }
        for untrue in &told.untrue {
            let what = if course.counts() { "This lesson is not true here" } else { "Not so on this device" };
            self.tell(&format!("{what}: {untrue}."))?;
        }
        self.tell(told.why.as_deref().unwrap_or_default())?;
        self.tell(&told.after)
    }

    /// Keeps how far somebody is; that it can't be kept is told once.
    fn keep(&mut self, course: &Course) {
        self.progress.note(course);
        if let Some(path) = &self.place
            && let Err(error) = self.progress.save(path)
        {
            warn(error);
            self.place = None;
        }
    }
}

/// Reads a line; without one more, somebody has left.
fn read(prompt: &str) -> Result<Line> {
    let mut out = stdout();
    write!(out, "{prompt}")?;
    out.flush()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).wrap_err("the standard input can't be read")?;
    if read == 0 || !io::stdin().is_terminal() {
        // What a terminal shows of the keys stands in no other output.
        writeln!(out)?;
    }
    Ok(match line.trim() {
        _ if read == 0 => Line::Quit,
        "q" | "quit" => Line::Quit,
        "r" | "again" => Line::Again,
        _ => Line::Text(line),
    })
}

fn export(which: &str, kind: Sheet) -> Result<Status> {
    let lessons = if which == "all" {
        let (lessons, warnings) = library().all();
        warnings.iter().for_each(warn);
        lessons
    } else {
        vec![lesson(which)?]
    };
    for lesson in lessons {
        let runs = runs_of(&lesson, None)?;
        let place = place_of(runs.first());
        let course = play(Arc::new(lesson), runs, |_| Answer::Passed)?;
        write!(stdout(), "{}", sheet(&course, kind, &place))?;
    }
    Ok(Status::DONE)
}

fn check_files(args: &CheckArgs) -> Result<Status> {
    let library = library();
    let files = if args.files.is_empty() { library.names().map(str::to_owned).collect() } else { args.files.clone() };
    let mut wrong = 0;
    let mut rows = Vec::new();
    for file in &files {
        match check(&library, file, args.play) {
            Ok(row) => rows.push(row),
            Err(complaints) => {
                wrong += 1;
                complaints.iter().for_each(complain);
            }
        }
    }
    table::print(&mut stdout(), &rows)?;
    if wrong > 0 {
        complain(format_args!("{wrong} of {} lessons must be corrected", files.len()));
        return Ok(Status::FAILED);
    }
    Ok(Status::DONE)
}

/// A line of the table of what is right, else what is wrong.
fn check(library: &Library, file: &str, playing: bool) -> Result<Vec<String>, Vec<String>> {
    let told = |error: &dyn std::fmt::Display| vec![format!("{file}: {error}")];
    let lesson = if Path::new(file).exists() { of_file(Path::new(file)) } else { library.lesson(file) };
    let lesson = lesson.map_err(|error| vec![error.to_string()])?;
    let runs = lesson.runs(&workloads(), &cards(), None).map_err(|error| told(&error))?;
    let mut row = vec![
        file.to_owned(),
        format!("{} steps", lesson.steps.len()),
        format!("{} questions", lesson.questions()),
        place_of(runs.first()),
    ];
    if playing {
        let begun = Instant::now();
        let lesson = Arc::new(lesson);
        let first = play(Arc::clone(&lesson), runs.clone(), |_| Answer::Passed).map_err(|error| told(&error))?;
        let untrue: Vec<String> = untrue(&first).map(|untrue| format!("{file}: {untrue}")).collect();
        if !untrue.is_empty() {
            return Err(untrue);
        }
        let mut right = first.all_told().iter().filter_map(|told| told.measured).map(Measured::as_answer);
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

/// What a lesson says and the run did not show, each with its step.
fn untrue(course: &Course) -> impl Iterator<Item = String> {
    let steps = course.lesson().steps.iter().zip(course.all_told()).enumerate();
    steps.flat_map(|(index, (step, told))| {
        told.untrue.iter().map(move |untrue| format!("step {} ({}): {untrue}", index + 1, step.title))
    })
}
