//! PyTorch's snapshots as the stream of events that the memory model reads.
//!
//! A snapshot has addresses, sizes and stacks. [`events()`] says of each what a lab would say: what happened, in which step
//! and phase, for which [`vramlab_model::Category`], by which line. [`Following`] says it of a history that goes on.

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
