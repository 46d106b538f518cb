//! The only place where training meets memory: allocator, device and observer behind one handle.
//!
//! Every request has a category and a name, and the allocator's actions become events.

mod frames;
mod handle;
mod host;
mod host_block;
mod managed;
mod names;
mod tensors;
mod trace;
mod watch;

pub(crate) use frames::BlockHandle;
pub use handle::Memory;
pub(crate) use handle::{HeldMark, micros};
pub(crate) use host_block::HostBlock;
pub(crate) use managed::ManagedBlock;
