//! PyTorch's memory snapshots: reading them, and replaying their history through our allocator.
//!
//! A snapshot is what `torch.cuda.memory._dump_snapshot()` writes: the segments and blocks at one moment and, if
//! `_record_memory_history()` was on, every allocation and free that led there. [`Snapshot::open`] reads a snapshot,
//! [`replay::verify`] compares our allocator with its history, and [`history`] concludes what existed when the history
//! began.
//!
//! # Example
//!
//! ```no_run
//! use vramlab_snapshot::replay::{Conditions, verify};
//! use vramlab_snapshot::{Snapshot, SnapshotError};
//!
//! fn look(path: &str) -> Result<(), SnapshotError> {
//!     let snapshot = Snapshot::open(path)?;
//!     for segment in &snapshot.segments {
//!         println!("{} {} in {} blocks", segment.address, segment.total_size, segment.blocks.len());
//!     }
//!     for entry in snapshot.device_trace(0) {
//!         let who = snapshot.caller(entry.stack, entry.metadata);
//!         println!("{} {} {}", entry.action.word(), entry.size, who.unwrap_or_default());
//!     }
//!     // Compare every decision of the history with our allocator's.
//!     let report = verify(&snapshot, &Conditions::default());
//!     println!("{} of {} placements are as recorded", report.placements.matched, report.placements.total);
//!     Ok(())
//! }
//! ```

mod begins;
mod caller;
mod compression;
mod error;
mod file;
pub mod frames;
pub mod history;
mod pickle;
mod read;
mod refusal;
pub mod replay;
mod types;

#[cfg(test)]
mod tests;

pub use begins::Begins;
pub use error::SnapshotError;
pub use history::Beginning;
pub use pickle::{PickleError, Problem};
pub use read::Listener;
pub use refusal::{Culprit, OtherProcess, PrintedSize, Refusal};
pub use types::{
    Action, AllocatorSettings, Annotation, Block, Frame, FrameId, Segment, Snapshot, StackId, Stacks, TextId, Texts,
    TraceEntry,
};
