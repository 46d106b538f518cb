//! vramlab: an interactive lab for GPU training memory, in a terminal.
//!
//! See `ARCHITECTURE.md` for the rooms and who may know whom.

#[cfg(not(target_os = "linux"))]
compile_error!("vramlab runs on Linux only: it maps memory, reads /proc and waits for signals as Linux has them");

// Unit tests share sources under `tests/common` with integration tests, which say `vramlab::`.
#[cfg(test)]
extern crate self as vramlab;

pub mod cli;
pub mod device;
pub mod estimate;
pub mod export;
pub mod figures;
pub mod fit;
pub mod folklore;
pub mod given;
pub mod guide;
pub mod lesson;
pub mod model;
pub mod narration;
pub mod recording;
pub mod session;
pub mod source;
pub mod standin;
pub mod train;
pub mod tui;
pub mod watch;
pub mod whatif;
pub mod workload;

// Crates of their own, which others can use: in here they are rooms as all others.
pub use vramlab_allocator as allocator;
pub use vramlab_allocator::units;
pub use vramlab_snapshot as snapshot;
