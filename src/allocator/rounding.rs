//! Sizes: what a request is rounded to, and the segment that is fetched for it.

use crate::allocator::{PoolKind, RoundupTable, Settings};
use crate::units::{Bytes, MIB};

/// Granularity of every block (kMinBlockSize).
pub(super) const MIN_BLOCK: u64 = 512;
/// Largest rounded size that the small pool serves (kSmallSize).
pub(super) const SMALL_SIZE: u64 = MIB;
/// Segment and page size of the small pool (kSmallBuffer).
pub(super) const SMALL_SEGMENT: u64 = 2 * MIB;
/// From this rounded size on a segment follows the request (kMinLargeAlloc).
pub(super) const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// Granularity of such segments (kRoundLarge).
const ROUND_LARGE: u64 = 2 * MIB;

/// The size that is searched for when `requested` bytes are asked: a multiple of 512, or of a power-of-two division
/// where `roundup_power2_divisions` says so. The table is looked up with the unrounded size.
#[must_use]
#[inline]
pub const fn round(requested: Bytes, table: &RoundupTable) -> Bytes {
    let n = requested.0;
    if n < MIN_BLOCK {
        return Bytes(MIN_BLOCK);
    }
    let divisions = table.divisions(requested);
    if divisions >= 2 && n > MIN_BLOCK * divisions {
        if n.is_power_of_two() {
            return requested;
        }
        let step = (1 << n.ilog2()) / divisions;
        return Bytes(n.next_multiple_of(step));
    }
    Bytes(n.next_multiple_of(MIN_BLOCK))
}

/// The segment that is fetched from the driver for a rounded size.
#[must_use]
#[inline]
pub const fn segment_size(rounded: Bytes, large_segment: Bytes) -> Bytes {
    if rounded.0 <= SMALL_SIZE {
        Bytes(SMALL_SEGMENT)
    } else if rounded.0 < MIN_LARGE_ALLOC {
        large_segment
    } else {
        Bytes(rounded.0.next_multiple_of(ROUND_LARGE))
    }
}

/// The pool that serves a rounded size.
#[inline]
pub(super) const fn pool_of(rounded: Bytes) -> PoolKind {
    if rounded.0 <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large }
}

/// Page size of a range that is reserved under these settings.
pub(super) const fn page_size(pool: PoolKind, settings: &Settings) -> Bytes {
    match pool {
        PoolKind::Small => Bytes(SMALL_SEGMENT),
        PoolKind::Large => settings.large_segment_size,
    }
}
