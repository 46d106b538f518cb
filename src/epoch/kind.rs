//! Which steps ask for the same.

use crate::workload::PlannedBatch;

/// Rows and positions of the batches of a step, and whether some hold padding.
pub(super) type BatchKind = Box<[(u32, u32, bool)]>;

/// The kind of a step of these batches; `masked` where a program says what is padding, and so asks for more where there is some.
pub(super) fn kind(batches: &[PlannedBatch], masked: bool) -> BatchKind {
    batches.iter().map(|batch| (batch.samples, batch.length, masked && batch.is_padded())).collect()
}
