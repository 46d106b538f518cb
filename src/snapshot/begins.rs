//! Where a history begins.

use serde::{Deserialize, Serialize};

/// Where a history of PyTorch's begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begins {
    /// Nothing was there: it begins with the first allocation, or might as well.
    #[default]
    First,
    /// Recording was switched on when memory was held already.
    Late,
    /// Its oldest entries were overwritten.
    Ring,
    /// There is no history, only the segments at the end.
    Nowhere,
}
