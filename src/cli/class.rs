//! `vramlab class`: follows the recordings of a class, who is at which step of which lesson.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::Status;
use super::output::stdout;
use super::table;
use crate::lesson::Score;
use crate::model::{DeviceKind, Lab, LessonNote, LessonPart, Ranks, RunState};
use crate::recording::{Frame, Next, Reader, RecordingError};
use crate::tui;
use crate::units::DeviceIndex;

/// Between two looks at the files.
const PAUSE: Duration = Duration::from_millis(500);

/// Arguments of `vramlab class`.
#[derive(Debug, Args)]
pub(super) struct ClassArgs {
    /// Recordings, as `vramlab lesson NAME --record FILE` writes them, or folders of them. Files that are not there yet are
    /// waited for.
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<PathBuf>,
    /// Print how all stand once, instead of following them.
    #[arg(long)]
    once: bool,
    /// Print JSON, once.
    #[arg(long)]
    json: bool,
}

/// Prints how a class stands.
pub(super) fn run(args: &ClassArgs) -> Result<Status> {
    let mut class = Class::default();
    class.look(&args.files);
    if args.json {
        let rows: Vec<Value> = class.pupils.iter().map(|(path, pupil)| pupil.json(path)).collect();
        writeln!(stdout(), "{}", json!({ "class": rows }))?;
        return Ok(Status::DONE);
    }
    let terminal = io::stdout().is_terminal();
    let mut printed = None;
    loop {
        let lines = fitting(&class.lines(), terminal.then(width));
        if printed.as_ref() != Some(&lines) {
            if terminal && !args.once {
                // The table stays where it is.
                let mut out = io::stdout().lock();
                out.write_all(b"\x1b[H\x1b[J")?;
                out.flush()?;
            } else if printed.is_some() {
                writeln!(stdout())?;
            }
            table::print(&mut stdout(), &lines)?;
            stdout().flush()?;
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
    /// Reads what was written since the last look.
    fn look(&mut self, given: &[PathBuf]) {
        for path in given.iter().flat_map(|path| recordings(path)) {
            self.pupils.entry(path.clone()).or_default().read(&path);
        }
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let mut lines = vec![table::line(["who", "lesson", "step", "points", "run", "steps", "allocated", "reserved"])];
        lines.extend(self.pupils.iter().map(|(path, pupil)| pupil.line(path)));
        lines
    }
}

/// Columns of the terminal.
fn width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(80, |size| usize::from(size.ws_col)).max(20)
}

/// Columns that are left out first where a line has no room for all, by their headings; then lessons are cut.
const GIVE_WAY: [&str; 4] = ["reserved", "allocated", "steps", "run"];
/// The fewest cells of a lesson's title.
const LEAST_TITLE: usize = 12;

/// The table in lines of at most `width` cells: a terminal would break longer ones.
fn fitting(lines: &[Vec<String>], width: Option<usize>) -> Vec<Vec<String>> {
    let mut lines = lines.to_vec();
    let Some(width) = width else { return lines };
    let mut leaving = GIVE_WAY.iter();
    while table::width(&lines) > width {
        let Some(heading) = leaving.next() else { break };
        let Some(place) = lines.first().and_then(|headings| headings.iter().position(|cell| cell == heading)) else {
            continue;
        };
        lines.iter_mut().for_each(|line| drop(line.remove(place)));
    }
    let over = table::width(&lines).saturating_sub(width);
    let widest = lines.iter().filter_map(|line| line.get(1)).map(|title| title.width()).max().unwrap_or(0);
    let room = widest.saturating_sub(over).max(LEAST_TITLE);
    for title in lines.iter_mut().filter_map(|line| line.get_mut(1)) {
        *title = tui::cut(title, room);
    }
    lines
}

/// The recordings that a path stands for: of a folder those in it.
fn recordings(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let is_recording = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "vram");
    entries.flatten().map(|entry| entry.path()).filter(is_recording).collect()
}

fn apply(ranks: &mut Ranks, frame: &Frame) -> Result<(), RecordingError> {
    frame.unpack()?.events().try_for_each(|event| {
        ranks.apply(&event?);
        Ok(())
    })
}

/// One recording, as far as it was read.
#[derive(Default)]
struct Pupil {
    reader: Option<Reader<File>>,
    ranks: Ranks,
    /// Why it is not read on.
    trouble: Option<String>,
}

impl Pupil {
    fn read(&mut self, path: &Path) {
        if self.trouble.is_some() {
            return;
        }
        if self.reader.is_none() {
            // It may be written later.
            self.reader = crate::given::open_file(path).ok().map(|(file, _)| Reader::new(file));
        }
        let Some(reader) = &mut self.reader else { return };
        loop {
            match reader.next() {
                Ok(Next::Frame(frame)) => {
                    if let Err(error) = apply(&mut self.ranks, &frame) {
                        self.trouble = Some(error.to_string());
                        return;
                    }
                }
                Ok(Next::NotYet | Next::End) => return,
                Err(error) => {
                    self.trouble = Some(error.to_string());
                    return;
                }
            }
        }
    }

    fn lab(&self) -> Option<&Lab> {
        self.ranks.lab(DeviceIndex::FIRST)
    }

    fn note(&self) -> Option<&LessonNote> {
        self.lab()?.lesson().map(|note| &**note)
    }

    fn who(&self, path: &Path) -> String {
        let file = || path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        self.note().map(|note| note.learner.to_string()).filter(|name| !name.is_empty()).unwrap_or_else(file)
    }

    fn run(&self) -> &'static str {
        match self.lab().map(Lab::run) {
            None if self.trouble.is_some() => "can't be read",
            None => "not there yet",
            Some(RunState::Starting) => "starting",
            Some(RunState::Running) => "running",
            Some(RunState::Paused) => "paused",
            Some(RunState::OutOfMemory) => "out of memory",
            Some(RunState::StepFailed(_) | RunState::Failed(_)) => "failed",
            Some(RunState::Finished) => "finished",
            Some(RunState::Lost(_)) => "device lost",
        }
    }

    fn line(&self, path: &Path) -> Vec<String> {
        let none = || "–".to_owned();
        let note = self.note();
        let (lesson, step, points) = match note {
            None => (none(), none(), none()),
            Some(note) => {
                let step = match note.doing {
                    LessonPart::Over => "finished".to_owned(),
                    doing => format!("{} of {}, {}", note.step, note.steps, doing.label()),
                };
                let score = Score { halves: note.halves, of: note.answered };
                (note.title.to_string(), step, format!("{score} ({} in all)", note.questions))
            }
        };
        let memory = self.lab().map(Lab::memory);
        let simulated = self.lab().is_some_and(|lab| lab.about().kind == DeviceKind::Simulated);
        let run = if simulated { format!("{}, simulated", self.run()) } else { self.run().to_owned() };
        vec![
            self.who(path),
            lesson,
            step,
            points,
            run,
            self.lab().map_or_else(none, |lab| lab.finished().to_string()),
            memory.map_or_else(none, |memory| memory.allocated().to_string()),
            memory.map_or_else(none, |memory| memory.reserved().to_string()),
        ]
    }

    fn json(&self, path: &Path) -> Value {
        let lab = self.lab();
        json!({
            "file": path.display().to_string(),
            "who": self.who(path),
            "lesson": self.note(),
            "run": self.run(),
            "trouble": self.trouble,
            "workload": lab.map(|lab| lab.about().workload.to_string()),
            "simulated": lab.map(|lab| lab.about().kind == DeviceKind::Simulated),
            "steps": lab.map(Lab::finished),
            "allocated": lab.map(|lab| lab.memory().allocated()),
            "reserved": lab.map(|lab| lab.memory().reserved()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_loses_columns_before_titles_and_no_line_is_broken() {
        let lines = vec![
            table::line(["who", "lesson", "step", "points", "run", "steps", "allocated", "reserved"]),
            table::line([
                "Ada",
                "What empty_cache does, and what not",
                "3 of 5, asked",
                "1 of 2 (4 in all)",
                "running, simulated",
                "6",
                "1.46 GiB",
                "12.38 GiB",
            ]),
        ];
        assert_eq!(fitting(&lines, None), lines, "what is no terminal gets all of it");
        assert_eq!(fitting(&lines, Some(200)), lines);
        let narrow = fitting(&lines, Some(80));
        assert_eq!(narrow[0], ["who", "lesson", "step", "points"]);
        assert_eq!(narrow[1][1], lines[1][1]);
        let narrow = fitting(&lines, Some(60));
        assert!(table::width(&narrow) <= 60 && narrow[1][1].ends_with('…'), "{narrow:?}");
        assert_eq!(fitting(&lines, Some(110))[0].len(), 6, "memory goes first");
    }
}
