//! `vramlab class`: follows the recordings of a class and shows who is at which step of which lesson.

mod answers;
mod pupil;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use answers::Answers;
use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;
use pupil::{Place, Pupil};
use serde_json::{Value, json};

use super::Status;
use super::columns::{Column, Paper, Table, Tone};
use super::output::stdout;
use crate::drawing::figures::counted;
use crate::drawing::pane::wrap;

/// Width of a line in cells when the output is no terminal.
const EVERYTHING: usize = 240;
/// Time between two checks of the files.
const PAUSE: Duration = Duration::from_millis(500);

/// Arguments of `vramlab class`.
#[derive(Debug, Args)]
pub(super) struct ClassArgs {
    /// Recordings written by `vramlab lesson NAME --record FILE`, or folders of them. The command waits for files that
    /// don't exist yet.
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<PathBuf>,
    /// Print the table once instead of following.
    #[arg(long)]
    once: bool,
    /// Print JSON once.
    #[arg(long)]
    json: bool,
    /// Print how many gave each answer to each question.
    #[arg(long)]
    answers: bool,
    /// The order of the learners.
    #[arg(long, value_enum, default_value_t)]
    sort: ClassOrder,
}

/// The order of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ClassOrder {
    /// By the names of the files.
    #[default]
    Who,
    /// The earliest step first.
    Step,
    /// The longest at a step first.
    Waiting,
}

/// Prints the progress of a class.
pub(super) fn run(args: &ClassArgs) -> Result<Status> {
    let mut class = Class::default();
    class.look(&args.files);
    if args.json {
        let row = |(path, pupil): (&PathBuf, &Pupil)| pupil.json(path, &class.who(path, pupil));
        let rows: Vec<Value> = class.sorted(args.sort).into_iter().map(row).collect();
        writeln!(stdout(), "{}", json!({ "class": rows, "answers": class.answers().json() }))?;
        return Ok(Status::DONE);
    }
    let terminal = io::stdout().is_terminal();
    let mut printed = None;
    loop {
        // Output that goes to no terminal gets all columns.
        let paper = Paper::stdout();
        let paper = if terminal { paper } else { Paper { width: EVERYTHING, ..paper } };
        let mut lines = class.lines(args.sort, paper);
        if class.pupils.is_empty() {
            lines = vec![nobody(&args.files, args.once)];
        }
        if args.answers {
            lines.extend(class.answers().lines());
        }
        if printed.as_ref() != Some(&lines) {
            if terminal && !args.once {
                // The table is redrawn in place.
                let mut out = io::stdout().lock();
                out.write_all(b"\x1b[H\x1b[J")?;
                out.flush()?;
            } else if printed.is_some() {
                writeln!(stdout())?;
            }
            let mut out = paper.out();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            out.flush()?;
            printed = Some(lines);
        }
        if args.once {
            return Ok(Status::DONE);
        }
        thread::sleep(PAUSE);
        class.look(&args.files);
    }
}

/// All recordings, by path.
#[derive(Default)]
struct Class {
    pupils: BTreeMap<PathBuf, Pupil>,
}

impl Class {
    /// Reads what was written since the last check.
    fn look(&mut self, given: &[PathBuf]) {
        for path in given.iter().flat_map(|path| recordings(path)) {
            self.pupils.entry(path.clone()).or_default().read(&path);
        }
    }

    fn sorted(&self, order: ClassOrder) -> Vec<(&PathBuf, &Pupil)> {
        let mut pupils: Vec<_> = self.pupils.iter().collect();
        match order {
            ClassOrder::Who => {}
            ClassOrder::Step => pupils.sort_by_key(|(_, pupil)| pupil.note().map_or(0, |note| note.step)),
            ClassOrder::Waiting => pupils.sort_by_key(|(_, pupil)| std::cmp::Reverse(pupil.waits())),
        }
        pupils
    }

    fn answers(&self) -> Answers {
        Answers::of(self.pupils.values().filter_map(Pupil::note))
    }

    /// One table for each lesson in use, below the lesson's title and the count of learners at each step.
    fn lines(&self, order: ClassOrder, paper: Paper) -> Vec<String> {
        let sorted = self.sorted(order);
        let mut lessons: Vec<Option<&str>> = Vec::new();
        for (_, pupil) in &sorted {
            if !lessons.contains(&pupil.title()) {
                lessons.push(pupil.title());
            }
        }
        // Learners without a lesson stand last.
        lessons.sort_by_key(|title| title.is_none());
        let mut lines = Vec::new();
        for title in lessons {
            let of_lesson: Vec<_> = sorted.iter().filter(|(_, pupil)| pupil.title() == title).collect();
            let sum = standing(of_lesson.iter().map(|(_, pupil)| *pupil));
            let head = format!("{}: {sum}", title.unwrap_or("No lesson yet"));
            lines.extend(Some(String::new()).filter(|_| !lines.is_empty()));
            lines.extend(wrap(&head, paper.width).iter().map(|line| paper.toned(line, Tone::Strong)));
            let mut table = Table::new(COLUMNS);
            of_lesson.into_iter().for_each(|(path, pupil)| table.row(pupil.row(&self.who(path, pupil))));
            lines.extend(table.lines(paper));
        }
        if self.pupils.values().filter_map(Pupil::note).any(|note| note.questions > 0) {
            lines.extend(wrap(ANSWER_MARKS, paper.width).iter().map(|line| paper.toned(line, Tone::Dim)));
        }
        lines
    }

    /// A learner's name, or the file's name if several learners share one.
    fn who(&self, path: &Path, pupil: &Pupil) -> String {
        let named = |name: &str| self.pupils.values().filter(|other| other.learner() == Some(name)).count();
        let learner = pupil.learner().filter(|name| named(name) == 1);
        let file = || path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        learner.map_or_else(file, str::to_owned)
    }
}

/// Says how many learners there are, and how many are at each step.
fn standing<'a>(pupils: impl Iterator<Item = &'a Pupil> + Clone) -> String {
    let mut at: BTreeMap<Place, u64> = BTreeMap::new();
    pupils.clone().filter_map(Pupil::place).for_each(|place| *at.entry(place).or_default() += 1);
    let told: Vec<String> = at.iter().map(|(place, count)| format!("{count} {place}")).collect();
    let all = counted(pupils.count() as u64, "learner");
    if told.is_empty() { all } else { format!("{all}, {}", told.join(", ")) }
}

/// Says that there is no recording yet, and where one is expected.
fn nobody(given: &[PathBuf], once: bool) -> String {
    let place = |path: &PathBuf| if path.is_dir() { path.join("*.vram") } else { path.clone() };
    let places: Vec<String> = given.iter().map(|path| place(path).display().to_string()).collect();
    let waits = if once { "nobody yet: there is no" } else { "nobody yet: waiting for" };
    format!("{waits} {}", places.join(", "))
}

/// What the marks of answers mean.
const ANSWER_MARKS: &str = "● right, ◐ near, ○ wrong, – not counted or not measured yet, · to come or passed";

/// The columns of a learner's row; where there is no room, the memory columns go first.
const COLUMNS: [Column; 10] = [
    Column::left("who"),
    Column::left("step"),
    Column::right("there").spare(1),
    Column::left("answers"),
    Column::right("points"),
    Column::right("seen").spare(2),
    Column::left("run").spare(3),
    Column::right("steps").spare(4),
    Column::right("allocated").spare(5),
    Column::right("reserved").spare(6),
];

/// The recordings that a path stands for: those inside it, if it is a folder.
fn recordings(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let is_recording = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "vram");
    entries.flatten().map(|entry| entry.path()).filter(is_recording).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::columns::Cell;

    #[test]
    fn a_narrow_terminal_loses_columns_before_titles_and_no_line_is_broken() {
        let mut table = Table::new(COLUMNS);
        let row = [
            "Ada",
            "3 of 5, asked",
            "40 s",
            "●○··",
            "1 of 2",
            "2 s ago",
            "running, simulated",
            "6",
            "1.46 GiB",
            "12.38 GiB",
        ];
        table.row(row.map(Cell::from).into());
        let heads = |width| {
            let lines = table.lines(Paper { width, colors: false });
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            lines[0].split_whitespace().count()
        };
        let heads = [200, 110, 80, 60].map(heads);
        assert!(heads[0] == COLUMNS.len() && heads.is_sorted_by(|wide, narrow| wide >= narrow), "{heads:?}");
        assert!(heads[3] >= 4, "who, which step, answers and points stay: {heads:?}");
    }
}
