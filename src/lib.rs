//! vramlab: an interactive lab for GPU training memory, in a terminal.
//!
//! See `ARCHITECTURE.md` for the rooms and who may know whom.

// Unit tests share sources under `tests/common` with integration tests, which say `vramlab::`.
#[cfg(test)]
extern crate self as vramlab;

pub mod allocator;
pub mod cli;
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub mod device;
pub mod given;
pub mod model;
pub mod session;
pub mod snapshot;
pub mod train;
pub mod tui;
pub mod units;
pub mod workload;
