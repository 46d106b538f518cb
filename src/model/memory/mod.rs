//! Memory as concluded from events: segments, blocks, and the ledger, up to date after every event.

mod error;
mod model;
mod packed;
mod run;
mod segments;
mod spans;

#[cfg(test)]
mod tests;

pub use error::{Fault, ModelError};
pub use model::MemoryModel;
pub(crate) use packed::PackedMemory;
pub use segments::Segment;
