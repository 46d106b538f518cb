//! Where a replay and a recording part.

use serde::Serialize;

/// The first thing that did not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The device's index.
    pub device: usize,
    /// The entry of the device's trace, from 0; the trace's length for what was found at its end.
    pub entry: usize,
    /// What our allocator did.
    pub expected: String,
    /// What the recording has.
    pub found: String,
    /// Why that is, where it is known.
    pub explanation: Option<String>,
}
