//! Which steps make the same requests.

use crate::workload::PlannedBatch;

/// Rows and positions of a step's batches, and whether each has padding.
pub(super) type BatchKind = Box<[(u32, u32, bool)]>;

/// The kind of a step with these batches. `masked` says that the program marks padding: then it requests more memory
/// for a padded batch.
pub(super) fn kind(batches: &[PlannedBatch], masked: bool) -> BatchKind {
    batches.iter().map(|batch| (batch.samples, batch.length, masked && batch.is_padded())).collect()
}
