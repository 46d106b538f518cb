//! One learner of a class: what their recording says so far.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::cli::columns::{Cell, Tone};
use crate::lesson::Score;
use crate::model::{DeviceKind, Lab, LessonNote, LessonPart, Ranks, RunState};
use crate::recording::{Frame, Next, Reader, RecordingError};
use crate::units::DeviceIndex;

/// Whether the last note said nothing new.
fn told_regularly(ranks: &Ranks) -> bool {
    let note = ranks.lab(DeviceIndex::FIRST).and_then(|lab| lab.lesson());
    note.is_some_and(|note| note.seconds > 0)
}

/// A time in one unit.
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

/// Seconds without a note after which a learner who had sent them regularly is gone.
const GONE: u64 = 30;

/// One recording, as far as it was read.
#[derive(Default)]
pub(super) struct Pupil {
    reader: Option<Reader<File>>,
    ranks: Ranks,
    /// When it was written last.
    written: Option<SystemTime>,
    /// The learner sent notes regularly.
    beats: bool,
    /// Why it is not read on.
    trouble: Option<String>,
}

impl Pupil {
    pub fn read(&mut self, path: &Path) {
        if self.trouble.is_some() {
            return;
        }
        if self.reader.is_none() {
            // It may be written later.
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

    /// A learner who sent notes regularly no longer does, in the middle of a lesson.
    fn is_gone(&self) -> bool {
        self.beats && self.waits().is_some() && self.silent().is_some_and(|silent| silent > GONE)
    }

    pub fn who(&self, path: &Path) -> String {
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

    pub fn row(&self, path: &Path) -> Vec<Cell> {
        let none = || "–".to_owned();
        let note = self.note();
        let (lesson, step, points) = match note {
            None => (none(), none(), none()),
            Some(note) => {
                let step = match note.doing {
                    LessonPart::Over => "finished".to_owned(),
                    _ if self.is_gone() => format!("{} of {}, gone", note.step, note.steps),
                    doing => format!("{} of {}, {}", note.step, note.steps, doing.label()),
                };
                let score = Score { halves: note.halves, of: note.answered };
                (note.title.to_string(), step, format!("{score} ({} in all)", note.questions))
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
        let who = Cell::toned(self.who(path), Tone::Strong);
        let figures = [steps, allocated, reserved].map(Cell::from);
        // A teacher sees from afar who has finished, and whose screen has gone.
        let place_tone = match note {
            Some(note) if note.doing == LessonPart::Over => Tone::Good,
            _ if self.is_gone() => Tone::Bad,
            _ => Tone::Plain,
        };
        let step = Cell::toned(step, place_tone);
        let place = [who, lesson.into(), step, there.into(), points.into(), seen.into(), Cell::toned(run, tone)];
        place.into_iter().chain(figures).collect()
    }

    pub fn json(&self, path: &Path) -> Value {
        let lab = self.lab();
        json!({
            "file": path.display().to_string(),
            "who": self.who(path),
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
