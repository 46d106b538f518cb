//! Where a replay and a recording diverge.

use serde::Serialize;

/// The first event that did not match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The device's index.
    pub device: usize,
    /// The index of the entry in the device's trace; the trace's length for a mismatch at the end.
    pub entry: usize,
    /// What our allocator did.
    pub expected: String,
    /// What the recording has.
    pub found: String,
    /// The reason, if it is known.
    pub explanation: Option<String>,
}
