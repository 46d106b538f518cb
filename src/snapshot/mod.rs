//! PyTorch's memory snapshots: reading them, and replaying their history through our allocator.
//!
//! A snapshot is what `torch.cuda.memory._dump_snapshot()` writes: the segments and blocks of a moment and, if
//! `_record_memory_history()` was on, every allocation and free that led there. [`Snapshot::open`] reads one,
//! [`replay::verify`] holds our allocator against its history, and [`events()`] turns that into the stream of events
//! that the memory model reads.

mod callers;
mod compression;
mod error;
mod events;
mod file;
mod guess;
mod history;
mod pickle;
mod read;
mod refusal;
pub mod replay;
mod scopes;
mod types;

#[cfg(test)]
mod tests;

pub use crate::model::Begins;
pub use error::SnapshotError;
pub use events::{Narrator, events};
pub use guess::Guesses;
pub use history::{Beginning, Following, Fresh};
pub use pickle::{PickleError, Problem};
pub use read::Listener;
pub use refusal::{Culprit, Other, Printed, Refusal};
pub use types::{
    Action, AllocatorSettings, Annotation, Block, Frame, FrameId, Segment, Snapshot, StackId, Stacks, TextId, Texts,
    TraceEntry,
};
