//! Where a history begins.

use serde::{Deserialize, Serialize};

/// Where a recorded history of PyTorch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begins {
    /// The history begins with the first allocation, or nothing was held at its beginning.
    #[default]
    First,
    /// Recording was switched on when memory was already held.
    Late,
    /// The ring buffer dropped the oldest entries.
    Ring,
    /// There is no history, only the segments at the end.
    Nowhere,
}
