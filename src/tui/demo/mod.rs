//! The demo: a story that presses the lab's keys by itself, and explains in a strip what is visible.

mod narrator;
mod story;
mod strip;

pub(crate) use narrator::{Cue, Narrator, NarratorResponse};
pub use story::{Ranks, ReadingPace, Scene, SceneEnd, Story};
pub(crate) use strip::{render, rows};
