//! Where blocks belong: the small or the large pool, of the default pools or of a private pool.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// The pool that serves a request: small for rounded sizes up to 1 MiB, else large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// Segments of 2 MiB.
    Small,
    /// Segments of 20 MiB (configurable) and more.
    Large,
}

/// Names a private pool for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnerId(NonZeroU32);

impl OwnerId {
    /// The id of the `index`-th private pool; `None` beyond four billion of them.
    pub fn of(index: usize) -> Option<Self> {
        u32::try_from(index.checked_add(1)?).ok().and_then(NonZeroU32::new).map(Self)
    }

    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The pool that a block belongs to: a default pool, or one of a private pool's two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub owner: Option<OwnerId>,
    pub kind: PoolKind,
}
