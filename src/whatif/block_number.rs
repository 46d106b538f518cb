//! How blocks are told apart whose addresses are the run's own.

/// The number of a block while the run holds it; numbers are used again.
pub(super) type BlockNumber = u32;
