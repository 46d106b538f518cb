//! A lesson line by line, without a screen.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use color_eyre::eyre::{Result, WrapErr, eyre};

use crate::cli::output::{stdout, warn};
use crate::guide;
use crate::lesson::{Answer, Course, CourseStage, Form, LessonPlayer, Progress, Worth, letter, measured};
use crate::session::Switch;

/// Columns of the terminal, limited to a readable width.
fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col));
    columns.clamp(40, 100)
}

/// A learner who takes a lesson line by line.
pub(super) struct LineLesson {
    width: usize,
    pub progress: Progress,
    place: Option<PathBuf>,
}

/// How the learner left a lesson.
pub(super) enum LessonExit {
    Over,
    Quit,
    Again,
}

/// What the learner wrote.
enum LearnerLine {
    Text(String),
    Quit,
    Again,
}

impl LineLesson {
    pub fn new(progress: Progress, place: Option<PathBuf>) -> Self {
        Self { width: width(), progress, place }
    }

    /// Takes a lesson to its end, or until the learner leaves.
    pub fn take(&mut self, player: &mut LessonPlayer, place: &str) -> Result<LessonExit> {
        let front = &player.course().lesson().front;
        let title = format!("{}\n{place} · about {} minutes", front.title, front.minutes);
        writeln!(stdout(), "{title}\n")?;
        if !player.course().counts() {
            self.tell(&player.course().elsewhere())?;
        }
        if player.course().resumes() > 0 {
            let (read, steps) = (player.course().resumes(), player.course().lesson().steps.len());
            self.tell(&format!("You have done {read} of {steps} steps and go on after them; r begins again."))?;
        }
        self.tell(player.course().introduction())?;
        loop {
            match player.course().stage() {
                CourseStage::Over => {
                    self.keep(player.course());
                    let course = player.course();
                    if course.lesson().questions() > 0 {
                        writeln!(stdout(), "That was the last step: {} points.", course.score())?;
                    } else {
                        writeln!(stdout(), "That was the last step.")?;
                    }
                    return Ok(LessonExit::Over);
                }
                CourseStage::Asking | CourseStage::Acting => match self.ask(player)? {
                    LearnerLine::Quit => return Ok(LessonExit::Quit),
                    LearnerLine::Again => return Ok(LessonExit::Again),
                    // The learner may try again for a missed goal.
                    LearnerLine::Text(_) if player.course().stage() == CourseStage::Acting => {
                        self.tell_tries(player.course())?
                    }
                    LearnerLine::Text(_) => self.explain(player.course())?,
                },
                CourseStage::Introduction | CourseStage::Explained => {
                    if player.course().stage() == CourseStage::Explained {
                        self.keep(player.course());
                    }
                    match read("Enter goes on, r begins again, q leaves > ")? {
                        LearnerLine::Quit => return Ok(LessonExit::Quit),
                        LearnerLine::Again => return Ok(LessonExit::Again),
                        LearnerLine::Text(_) => {}
                    }
                    player.proceed()?;
                    if player.course().stage() != CourseStage::Over {
                        self.open(player.course())?;
                    }
                }
                CourseStage::Preparing | CourseStage::Trying => {
                    return Err(eyre!("the run does not get to the end of this step; `vramlab lesson check` says why"));
                }
            }
        }
    }

    /// Prints Markdown and an empty line after it.
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
        if course.stage() == CourseStage::Explained {
            self.explain(course)?;
        }
        Ok(())
    }

    /// Asks until the learner answers.
    fn ask(&self, player: &mut LessonPlayer) -> Result<LearnerLine> {
        let course = player.course();
        let (Some(question), Some(asked)) = (&course.step().question, &course.told().question) else {
            return Ok(LearnerLine::Text(String::new()));
        };
        let (form, hint) = (question.form.clone(), asked.hint.clone());
        self.tell(&asked.ask)?;
        for (place, choice) in asked.choices.iter().enumerate() {
            let lines = guide::plain(&guide::lines(choice, self.width.saturating_sub(5)));
            writeln!(stdout(), "  {}. {}", letter(place), lines.trim_end().replace('\n', "\n     "))?;
        }
        if let Form::Goal(goal) = &form {
            let switches: Vec<&str> = goal.allow.iter().map(|switch| switch.word()).collect();
            let left = (goal.tries as usize).saturating_sub(course.told().tries.len());
            self.tell(&format!("Yours: {}. Tries left: {left}.", switches.join(", ")))?;
        }
        let how = match &form {
            Form::Goal(_) => "amp bf16 sets a switch, try tries".to_owned(),
            Form::Choices(choices) => format!("A to {}", letter(choices.len() - 1)),
            Form::Number { unit, .. } => format!("a number {unit}").trim_end().to_owned(),
        };
        let help = if hint.is_some() { ", ? helps" } else { "" };
        let prompt = format!("Your answer ({how}{help}, - passes, q leaves) > ");
        loop {
            let text = match read(&prompt)? {
                LearnerLine::Text(text) => text,
                left => return Ok(left),
            };
            match (text.trim(), &hint) {
                ("", _) => {}
                ("?", Some(hint)) => self.tell(hint)?,
                ("?", None) => self.tell("There is no hint for this one.")?,
                ("-", _) => {
                    player.answer(Answer::Passed)?;
                    return Ok(LearnerLine::Text(text));
                }
                ("try", _) if matches!(form, Form::Goal(_)) => {
                    player.answer(Answer::Tried)?;
                    return Ok(LearnerLine::Text(text));
                }
                (line, _) if matches!(form, Form::Goal(_)) => self.set(player, line)?,
                (answer, _) => match form.read(answer) {
                    Ok(answer) => {
                        player.answer(answer)?;
                        return Ok(LearnerLine::Text(text));
                    }
                    Err(why) => self.tell(&format!("{why}."))?,
                },
            }
        }
    }

    /// Sets a switch for a goal: `amp bf16`, or `set amp bf16`.
    fn set(&self, player: &mut LessonPlayer, line: &str) -> Result<()> {
        let line = line.strip_prefix("set ").unwrap_or(line);
        let (word, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let set = Switch::named(word)
            .ok_or_else(|| format!("there is no switch '{word}'"))
            .and_then(|switch| player.set(switch, value.trim()));
        self.tell(&set.map_or_else(|why| format!("{why}."), |()| format!("{word} is {}.", value.trim())))
    }

    fn tell_tries(&self, course: &Course) -> Result<()> {
        course.told().tries.last().map_or(Ok(()), |last| self.tell(&format!("{}: {}.", last.settings, last.outcome)))
    }

    /// Prints the results.
    fn explain(&self, course: &Course) -> Result<()> {
        let told = course.told();
        if let (Some(question), Some(asked), Some(came_out)) = (&course.step().question, &told.question, told.measured)
        {
            let verdict = match (told.answer, told.worth) {
                (Some(Answer::Passed), _) => "Passed: it is",
                (None, _) | (_, None) => "Measured:",
                (_, Some(Worth::Right)) => "Right: it is",
                (_, Some(Worth::Near)) => "Near, half a point: it is",
                (_, Some(Worth::Wrong)) => "Wrong: it is",
            };
            writeln!(stdout())?;
            match &question.form {
                Form::Goal(goal) if told.answer == Some(Answer::Passed) => {
                    self.tell_tries(course)?;
                    let way: Vec<String> = goal.solution.iter().map(ToString::to_string).collect();
                    self.tell(&format!("One way: `{}`.", way.join("`, `")))?;
                }
                Form::Goal(_) => self.tell(&format!("Measured: {}", measured(&question.form, asked, came_out)))?,
                form => self.tell(&format!("{verdict} {}", measured(form, asked, came_out)))?,
            }
        }
        self.tell(told.reply.as_deref().unwrap_or_default())?;
        for untrue in &told.untrue {
            let what = if course.counts() { "This lesson is not true here" } else { "Not so on this device" };
            self.tell(&format!("{what}: {untrue}."))?;
        }
        self.tell(told.why.as_deref().unwrap_or_default())?;
        self.tell(&told.after)
    }

    /// Saves the learner's progress; prints a failure once.
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

/// Reads a line; end of input means that the learner leaves.
fn read(prompt: &str) -> Result<LearnerLine> {
    let mut out = stdout();
    write!(out, "{prompt}")?;
    out.flush()?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).wrap_err("the standard input can't be read")?;
    if read == 0 || !io::stdin().is_terminal() {
        // A terminal shows the line break that was typed; other output needs one.
        writeln!(out)?;
    }
    Ok(match line.trim() {
        _ if read == 0 => LearnerLine::Quit,
        "q" | "quit" => LearnerLine::Quit,
        "r" | "again" => LearnerLine::Again,
        _ => LearnerLine::Text(line),
    })
}
