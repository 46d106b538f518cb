//! A lesson beside the lab: its text and questions in a pane, its actions sent like a person's keys.

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
    /// Its runs, at a pace that suits the screen. The first one is the source's.
    pub runs: LessonRuns,
    /// The learner's name.
    pub learner: Arc<str>,
    /// Stores the learner's progress. Returns a sentence if that fails.
    pub keep: KeepCourse,
    /// How many steps were completed the last time, and their points. A finished lesson starts from the beginning.
    pub resumes: (usize, Score),
    /// The lessons after this one, at the same pace, in order.
    pub following: Vec<(Arc<Lesson>, LessonRuns)>,
}

/// Stores the learner's progress in a course. Returns a sentence if that fails.
pub type KeepCourse = fn(&Course) -> Option<String>;
