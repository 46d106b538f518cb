//! Watching another program: any PyTorch program, while it trains, without a change to it.
//!
//! [`Job`] starts a program with the Python package `vramlab_watch` on its path, which is embedded here
//! (`lab/python`). The package lets programs of the same user connect to a socket ([`sockets`]) and says what PyTorch's
//! allocator did ([`Message`]): parts of snapshots, as PyTorch writes them. `vramlab_narration::Following` makes events of them.
//!
//! The program never waits for a viewer, and it goes on without one. A viewer that is behind, or comes later, misses
//! events: the state is then known again, and what came in between is said to be missing.

mod error;
mod job;
mod message;
mod owner;
mod place;

pub use error::WatchError;
pub use job::{Job, Lines, Output};
pub use message::{Hello, Message, SnapshotPart, Use};
pub use place::{connect, descends, folder, has_loaded_torch, listening_in, sockets, sockets_in, sweep};
