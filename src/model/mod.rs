//! The memory model: a plain reducer over the event stream. No clock, no I/O, no terminal.

mod event;

pub use event::{Category, CopyDirection, Event, EventKind, Micros, NameId, Phase, Pool, StepReport};
