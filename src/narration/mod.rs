//! Turns PyTorch's snapshots into the stream of events that the memory model reads.
//!
//! A snapshot has addresses, sizes and stacks. [`events()`] adds what a lab would report: the step and phase of each
//! event, the [`vramlab_model::Category`] of blocks, and the source line. [`Following`] does so for a history that goes
//! on.

mod callers;
mod doing;
mod events;
mod following;
mod guess;
mod rhythm;
mod scopes;
mod told;

pub use events::{Narrator, events};
pub use following::{Following, Fresh};
pub use guess::Guesses;
