//! What the allocator tries, in order, for a request that no free block serves.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// One thing that was tried. A request that failed for good went through all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// The free blocks of the request's pool and stream were searched.
    Search {
        /// How many there are.
        blocks: u64,
        /// The largest of them.
        largest: Bytes,
    },
    /// Segments that were unused for longest were given back (`garbage_collection_threshold`).
    CollectGarbage {
        /// Bytes given back.
        released: Bytes,
    },
    /// The driver was asked for a segment.
    Grow {
        /// Its size.
        segment: Bytes,
        /// Why there was none.
        refusal: Refusal,
    },
    /// Cached segments above `max_split_size_mb` were given back.
    ReleaseOversize {
        /// Bytes given back.
        released: Bytes,
    },
    /// Every segment and page that no block occupies was given back.
    ReleaseCached {
        /// Bytes given back.
        released: Bytes,
    },
}

/// Why there was no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// More would be held than the limit allows.
    Limit,
    /// The driver had no memory.
    Driver,
}
