//! Watching another program: any PyTorch program, while it trains, without changing it.
//!
//! [`Job`] starts a program with the Python package `vramlab_watch` on its path, which is embedded here (`lab/python`).
//! The package lets programs of the same user connect to a socket ([`sockets`]) and reports what PyTorch's allocator
//! did ([`Message`]): parts of snapshots, as PyTorch writes them. `vramlab_narration::Following` turns them into
//! events.
//!
//! The program never waits for a viewer, and it continues without one. A viewer that is too slow, or connects later,
//! misses events: it then gets the current state, and the events in between are reported as missing.

mod error;
mod job;
mod message;
mod owner;
mod place;

pub use error::WatchError;
pub use job::{Job, Lines, Output};
pub use message::{Hello, Message, SnapshotPart, Use};
pub use place::{connect, descends, folder, has_loaded_torch, listening_in, sockets, sockets_in, sweep};
