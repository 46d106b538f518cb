//! Guided steps beside a running lab: a prediction before each flip, the measured answer, its reason.
//!
//! A [`Lesson`] is Markdown with front matter and steps whose conditions are expressions over the run's figures. A [`Course`] is
//! somebody who takes one: it is shown the run and says what is to be done with it. [`Player`] drives it without a screen.

mod action;
mod block;
mod built_in;
mod course;
mod document;
mod error;
mod front;
mod library;
mod order;
mod plain;
mod play;
mod progress;
mod question;
mod run;
mod score;
mod script;
mod sheet;
mod step;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use course::{Asked, Course, Stage, Told};
pub use error::LessonError;
pub use front::Front;
pub use library::{Library, LibraryError, of_file};
pub use order::Order;
pub use plain::{letter, measured};
pub use play::{Player, play};
pub use progress::{Mark, Progress, ProgressError};
pub use question::{Answer, Choice, Form, Measured, Question, Tolerance, Unclear, Worth};
pub use run::Runs;
pub use score::Score;
pub use script::Lesson;
pub use sheet::{Sheet, sheet};
pub use step::{Look, Step};
