//! vramlab: an interactive lab for GPU training memory, in a terminal.
//!
//! See `ARCHITECTURE.md` for the rooms and who may know whom.

pub mod allocator;
#[expect(missing_docs, reason = "fields of kernels are the operands their formula names")]
pub mod device;
pub mod model;
pub mod session;
pub mod units;
