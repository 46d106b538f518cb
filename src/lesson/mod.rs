//! Guided steps beside a running lab: the learner predicts the effect of each flip, then sees the measured answer and
//! its reason.
//!
//! A [`Lesson`] is Markdown with front matter and steps, whose conditions are expressions over the run's figures. A
//! [`Course`] is one learner's way through it: it sees the run and says what to do with it. [`LessonPlayer`] drives a
//! course without a screen.

mod action;
mod answer;
mod answered;
mod attempt;
mod block;
mod built_in;
mod course;
mod document;
mod error;
mod front;
mod goal;
mod library;
mod look;
mod order;
mod plain;
mod play;
mod progress;
mod question;
mod reader;
mod run;
mod score;
mod script;
mod sheet;
mod sketch;
mod step;
mod taking;
mod told;

#[cfg(test)]
mod tests;

pub use action::LessonAction;
pub use answer::{Answer, MeasuredAnswer, Unclear, Worth};
pub use course::{Course, CourseStage};
pub use error::LessonError;
pub use front::Front;
pub use goal::{Cost, Goal};
pub use library::{Library, LibraryError, of_file};
pub use look::Look;
pub use order::CourseRequest;
pub use plain::{letter, measured};
pub use play::{LessonPlayer, play};
pub use progress::{LessonMark, Progress, ProgressError};
pub use question::{Choice, Form, Question, Tolerance};
pub use run::LessonRuns;
pub use score::Score;
pub use script::Lesson;
pub use sheet::{Sheet, sheet};
pub use sketch::Sketch;
pub use step::LessonStep;
pub use told::{QuestionText, StepText, Try};
