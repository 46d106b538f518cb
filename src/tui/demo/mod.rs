//! The demo: a story that presses keys of the lab by itself, and tells in a strip what is to be seen.

mod narrator;
mod story;
mod strip;

pub(crate) use narrator::{Cue, Narrator, NarratorResponse};
pub use story::{Ranks, ReadingPace, Scene, SceneEnd, Story};
pub(crate) use strip::{render, rows};
