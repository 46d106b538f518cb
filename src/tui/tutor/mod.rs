//! A lesson beside the lab: its text and its questions in a pane of their own, its actions sent as a person's keys would be.

mod pane;
mod place;
mod press;
mod sketch;
mod state;
mod text;
mod verdict;
mod way;

pub(crate) use pane::render;
pub(crate) use place::places;
pub(crate) use state::{Tutor, TutorResponse};

use std::sync::Arc;

use crate::lesson::{Course, Lesson, LessonRuns, Score};

/// A lesson that is taken on the screen.
#[derive(Clone, Debug)]
pub struct Lecture {
    /// The lesson.
    pub lesson: Arc<Lesson>,
    /// What it runs, at the pace that suits the screen; the first of them is the source's.
    pub runs: LessonRuns,
    /// Who takes it.
    pub learner: Arc<str>,
    /// Keeps how far the learner is; a sentence where that fails.
    pub keep: KeepCourse,
    /// Steps that were read to their end the last time, and their points; a finished lesson begins at its begin.
    pub resumes: (usize, Score),
    /// The lessons after this one, at the same pace, the next one first.
    pub following: Vec<(Arc<Lesson>, LessonRuns)>,
}

/// Keeps how far the learner is in a course; a sentence where that fails.
pub type KeepCourse = fn(&Course) -> Option<String>;
