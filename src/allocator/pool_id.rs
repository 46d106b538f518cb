//! The names of pools.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a pool: the default pools, a graph capture's private pool `(n, 0)`, or a `torch.cuda.MemPool`'s `(0, n)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolId(pub u32, pub u32);

impl PoolId {
    /// The default pools, outside of every private pool.
    pub const DEFAULT: Self = Self(0, 0);

    /// True for the default pools.
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.0 == 0 && self.1 == 0
    }
}

/// As PyTorch's statistics write it: `0_1`.
impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.0, self.1)
    }
}
