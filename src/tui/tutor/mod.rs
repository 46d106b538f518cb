//! A lesson beside the lab: its text and its questions in a pane of their own, its actions sent as a person's keys would be.

mod pane;
mod state;

pub(crate) use pane::{beside, render};
pub(crate) use state::{Heard, Tutor};

use std::sync::Arc;

use crate::lesson::{Course, Lesson, Runs};

/// A lesson that is taken on the screen.
#[derive(Clone, Debug)]
pub struct Lecture {
    /// The lesson.
    pub lesson: Arc<Lesson>,
    /// What it runs, at the pace that suits the screen; the first of them is the source's.
    pub runs: Runs,
    /// Who takes it.
    pub learner: Arc<str>,
    /// Keeps how far somebody is; a sentence where that can't be.
    pub keep: KeepCourse,
}

/// Keeps how far somebody is in a course; a sentence where that can't be.
pub type KeepCourse = fn(&Course) -> Option<String>;
