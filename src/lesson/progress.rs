//! The lessons that the learner has taken so far, kept in a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::course::{Course, CourseStage};
use super::score::Score;
use crate::user_input::TomlText;

/// How far the learner got in a lesson.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LessonMark {
    /// Number of finished steps.
    pub steps: u32,
    /// The best score of all finished takes; before the first is finished, the score so far.
    pub score: Score,
    /// Whether the last step was finished.
    pub finished: bool,
}

/// The lessons that the learner has taken so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Progress {
    lessons: BTreeMap<String, LessonMark>,
}

/// Why progress can't be saved.
#[derive(Debug, Error)]
#[error("{} can't be written ({reason}); progress is not kept", .path.display())]
pub struct ProgressError {
    path: PathBuf,
    reason: io::Error,
}

impl Progress {
    /// The file's path: `$XDG_STATE_HOME/vramlab/progress.toml`, or the same under `~/.local/state`.
    pub fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
        Some(state.join("vramlab").join("progress.toml"))
    }

    /// The progress in the file at `path`. If the file can't be parsed, there is no progress, and a sentence says why.
    #[must_use]
    pub fn load(path: &Path) -> (Self, Option<String>) {
        if !path.exists() {
            return (Self::default(), None);
        }
        let fresh = |reason: String| (Self::default(), Some(format!("{reason}; your progress starts again")));
        match TomlText::read(path) {
            Err(error) => fresh(error.to_string()),
            Ok(text) => match text.parse() {
                Ok(progress) => (progress, None),
                Err(malformed) => fresh(format!("{}, {malformed}", path.display())),
            },
        }
    }

    /// Writes the progress to `path`. A reader sees the whole new file or the whole old one, never a part.
    ///
    /// # Errors
    /// [`ProgressError`].
    pub fn save(&self, path: &Path) -> Result<(), ProgressError> {
        let written = || -> io::Result<()> {
            let folder = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(folder)?;
            let beside = folder.join(format!(".progress-{}.toml", std::process::id()));
            let mut file = fs::File::create(&beside)?;
            let moved = file.write_all(self.text().as_bytes()).and_then(|()| file.sync_all());
            let moved = moved.and_then(|()| fs::rename(&beside, path));
            if moved.is_err() {
                // A file that could not be written completely is removed; if that fails too, it does no harm.
                let _ = fs::remove_file(&beside);
            }
            moved
        };
        written().map_err(|reason| ProgressError { path: path.to_owned(), reason })
    }

    /// How far the learner got in a lesson.
    #[must_use]
    pub fn of(&self, lesson: &str) -> Option<LessonMark> {
        self.lessons.get(lesson).copied()
    }

    /// Where the learner goes on in a lesson: the finished steps and their score; zero if it was finished or never
    /// begun.
    #[must_use]
    pub fn resumes(&self, lesson: &str) -> (usize, Score) {
        let begun = self.of(lesson).filter(|mark| !mark.finished && mark.steps > 0);
        begun.map_or((0, Score::default()), |mark| (mark.steps as usize, mark.score))
    }

    /// Notes a course's progress. A better earlier score stays.
    pub fn note(&mut self, course: &Course) {
        let through = match course.stage() {
            CourseStage::Introduction
            | CourseStage::Preparing
            | CourseStage::Asking
            | CourseStage::Acting
            | CourseStage::Trying => course.place(),
            CourseStage::Explained | CourseStage::Over => course.place() + 1,
        };
        let now = LessonMark {
            steps: u32::try_from(through).unwrap_or(u32::MAX),
            score: course.score(),
            finished: through == course.lesson().steps.len(),
        };
        let kept = self.lessons.entry(course.lesson().name.clone()).or_default();
        if kept.finished {
            if now.finished && now.score.is_better_than(kept.score) {
                kept.score = now.score;
            }
        } else if now.finished || now.steps >= kept.steps {
            *kept = now;
        }
    }

    fn text(&self) -> String {
        let mut text = "# What was taken of vramlab's lessons. `vramlab lesson --reset` forgets it.\n".to_owned();
        for (name, LessonMark { steps, score, finished }) in &self.lessons {
            let Score { halves, of } = score;
            text.push_str(&format!(
                "\n[lessons.{}]\nsteps = {steps}\nscore = {{ halves = {halves}, of = {of} }}\nfinished = {finished}\n",
                quoted(name)
            ));
        }
        text
    }
}

/// A text in TOML quotes.
fn quoted(text: &str) -> String {
    let escaped = |symbol: char| match symbol {
        '"' | '\\' => format!("\\{symbol}"),
        _ if symbol.is_control() => format!("\\u{:04x}", u32::from(symbol)),
        _ => symbol.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Progress {
        let mark = LessonMark { steps: 3, score: Score { halves: 5, of: 4 }, finished: true };
        let names = ["allocated", "a \"name\"\\ \u{7f}\n", "é"];
        Progress { lessons: names.into_iter().map(|name| (name.to_owned(), mark)).collect() }
    }

    #[test]
    fn what_was_kept_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper").join("progress.toml");
        assert_eq!(Progress::load(&path), (Progress::default(), None));
        some().save(&path).unwrap();
        assert_eq!(Progress::load(&path), (some(), None));
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(files, 1, "nothing else is left behind");
    }

    #[test]
    fn a_broken_file_is_told_and_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress.toml");
        for text in ["lessons = 3", "[lessons", "[lessons.a]\nsteps = -1"] {
            fs::write(&path, text).unwrap();
            let (progress, told) = Progress::load(&path);
            assert_eq!(progress, Progress::default());
            assert!(told.is_some_and(|told| told.contains("progress.toml, line ") && told.ends_with("starts again")));
        }
        assert!(Progress::load(folder.path()).1.is_some(), "a folder is no file");
        assert!(some().save(&path.join("below-a-file")).is_err());
    }

    #[test]
    fn its_place_follows_the_environment() {
        let place = |set: &[(&str, &str)]| {
            Progress::place(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let there = Some("/s/vramlab/progress.toml".into());
        assert_eq!(place(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), there);
        assert_eq!(place(&[("HOME", "/h")]), Some("/h/.local/state/vramlab/progress.toml".into()));
        assert_eq!(place(&[]), None);
    }
}
