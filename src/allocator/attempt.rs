//! What the allocator tries, in order, for a request that no free block serves.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// One attempt to serve a request. A request that failed for good went through all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempt {
    /// The free blocks of the request's pool and stream were searched.
    Search {
        /// How many free blocks there are.
        blocks: u64,
        /// The size of the largest free block.
        largest: Bytes,
    },
    /// The segments that had been unused for longest were given back (`garbage_collection_threshold`).
    CollectGarbage {
        /// Bytes given back.
        released: Bytes,
    },
    /// The driver was asked for a segment.
    Grow {
        /// The size of the segment.
        segment: Bytes,
        /// Why the driver gave no segment.
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

/// Why a request for a segment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The allocator would hold more than its limit allows.
    Limit,
    /// The driver had no memory.
    Driver,
}
