//! Identifies blocks without addresses, which are the run's own.

/// The number of a block while the run holds it. Numbers are reused.
pub(super) type BlockNumber = u32;
