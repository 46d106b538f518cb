//! One learner of a class: what the learner's recording says so far.

use std::fmt;
use std::fs::{self, File};
use std::iter;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::cli::columns::{Cell, Tone};
use crate::lesson::Score;
use crate::model::{DeviceKind, Lab, LessonAnswer, LessonNote, LessonPart, Ranks, RunState};
use crate::recording::{Frame, Next, Reader, RecordingError};
use crate::units::DeviceIndex;

/// Whether the last note said nothing new.
fn told_regularly(ranks: &Ranks) -> bool {
    let note = ranks.lab(DeviceIndex::FIRST).and_then(|lab| lab.lesson());
    note.is_some_and(|note| note.seconds > 0)
}

/// A time in a single unit.
fn in_short(seconds: u64) -> String {
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

fn apply(ranks: &mut Ranks, frame: &Frame) -> Result<(), RecordingError> {
    frame.unpack()?.events().try_for_each(|event| {
        ranks.apply(&event?);
        Ok(())
    })
}

/// Seconds without a note after which a learner who had sent notes regularly counts as gone.
const GONE: u64 = 30;

/// Where a learner is in a lesson.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// At a step, counted from 1; 0 before the first.
    Step(u32),
    /// Through the lesson.
    Finished,
    /// No longer heard from.
    Gone,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "at step {step}"),
            Self::Finished => f.write_str("finished"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

/// A mark for each question of a lesson, in the order of the answers; unanswered questions come last.
fn answers(note: &LessonNote) -> String {
    let mark = |answer: &LessonAnswer| match answer.halves {
        None => '–',
        Some(0) => '○',
        Some(1) => '◐',
        Some(_) => '●',
    };
    let open = (note.questions as usize).saturating_sub(note.answers.len());
    note.answers.iter().map(mark).chain(iter::repeat_n('·', open)).collect()
}

/// One recording, as far as it has been read.
#[derive(Default)]
pub(super) struct Pupil {
    reader: Option<Reader<File>>,
    ranks: Ranks,
    /// When the file was last written.
    written: Option<SystemTime>,
    /// The learner sent notes regularly.
    beats: bool,
    /// Why reading stopped.
    trouble: Option<String>,
}

impl Pupil {
    pub fn read(&mut self, path: &Path) {
        if self.trouble.is_some() {
            return;
        }
        if self.reader.is_none() {
            // The file may be written later.
            self.reader = crate::user_input::open_file(path).ok().map(|(file, _)| Reader::new(file));
        }
        let Some(reader) = &mut self.reader else { return };
        self.written = fs::metadata(path).and_then(|file| file.modified()).ok();
        loop {
            match reader.next() {
                Ok(Next::Frame(frame)) => {
                    if let Err(error) = apply(&mut self.ranks, &frame) {
                        self.trouble = Some(error.to_string());
                        return;
                    }
                    self.beats |= told_regularly(&self.ranks);
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

    pub fn note(&self) -> Option<&LessonNote> {
        self.lab()?.lesson().map(|note| &**note)
    }

    /// Seconds since something was written.
    fn silent(&self) -> Option<u64> {
        Some(self.written?.elapsed().unwrap_or_default().as_secs())
    }

    /// Seconds that the learner has been at this step; none once the lesson is over.
    pub fn waits(&self) -> Option<u64> {
        let note = self.note().filter(|note| note.doing != LessonPart::Over)?;
        Some(u64::from(note.seconds) + self.silent()?)
    }

    /// Whether a learner who had sent notes regularly stopped in the middle of a lesson.
    fn is_gone(&self) -> bool {
        self.beats && self.waits().is_some() && self.silent().is_some_and(|silent| silent > GONE)
    }

    /// The name that the learner gave.
    pub fn learner(&self) -> Option<&str> {
        self.note().map(|note| &*note.learner).filter(|name| !name.is_empty())
    }

    /// The title of the lesson.
    pub fn title(&self) -> Option<&str> {
        self.note().map(|note| &*note.title)
    }

    /// Where the learner is in it.
    pub fn place(&self) -> Option<Place> {
        let note = self.note()?;
        Some(match note.doing {
            LessonPart::Over => Place::Finished,
            _ if self.is_gone() => Place::Gone,
            _ => Place::Step(note.step),
        })
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

    /// The learner's cells in the table, under this name.
    pub fn row(&self, who: &str) -> Vec<Cell> {
        let none = || "–".to_owned();
        let note = self.note();
        let (step, answers, points) = match note {
            None => (none(), none(), none()),
            Some(note) => {
                let step = match self.place() {
                    Some(Place::Finished) => "finished".to_owned(),
                    Some(Place::Gone) => format!("{} of {}, gone", note.step, note.steps),
                    _ => format!("{} of {}, {}", note.step, note.steps, note.doing.label()),
                };
                let score = Score { halves: note.halves, of: note.answered };
                (step, answers(note), score.to_string())
            }
        };
        let memory = self.lab().map(Lab::memory);
        let simulated = self.lab().is_some_and(|lab| lab.about().kind == DeviceKind::Simulated);
        let run = if simulated { format!("{}, simulated", self.run()) } else { self.run().to_owned() };
        let tone = match self.lab().map(Lab::run) {
            Some(RunState::OutOfMemory) => Tone::Mixed,
            Some(RunState::StepFailed(_) | RunState::Failed(_) | RunState::Lost(_)) => Tone::Bad,
            Some(RunState::Running | RunState::Finished) => Tone::Good,
            _ if self.trouble.is_some() => Tone::Bad,
            _ => Tone::Dim,
        };
        let [steps, allocated, reserved] = [
            self.lab().map_or_else(none, |lab| lab.finished().to_string()),
            memory.map_or_else(none, |memory| memory.allocated().to_string()),
            memory.map_or_else(none, |memory| memory.reserved().to_string()),
        ];
        let there = self.waits().filter(|_| !self.is_gone()).map_or_else(none, in_short);
        let seen = self.silent().map_or_else(none, |silent| format!("{} ago", in_short(silent)));
        let who = Cell::toned(who, Tone::Strong);
        let figures = [steps, allocated, reserved].map(Cell::from);
        // A teacher must see from afar who has finished and who has disappeared.
        let place_tone = match self.place() {
            Some(Place::Finished) => Tone::Good,
            Some(Place::Gone) => Tone::Bad,
            _ => Tone::Plain,
        };
        let step = Cell::toned(step, place_tone);
        let place = [who, step, there.into(), answers.into(), points.into(), seen.into(), Cell::toned(run, tone)];
        place.into_iter().chain(figures).collect()
    }

    /// The learner as JSON, under this name.
    pub fn json(&self, path: &Path, who: &str) -> Value {
        let lab = self.lab();
        json!({
            "file": path.display().to_string(),
            "who": who,
            "lesson": self.note(),
            "seconds_at_step": self.waits(),
            "seconds_silent": self.silent(),
            "gone": self.is_gone(),
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
