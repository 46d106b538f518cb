//! Sizes: how requests are rounded, and how large a segment they fetch.

use crate::block::PoolKind;
use crate::settings::{RoundupTable, Settings};
use crate::units::{Bytes, MIB};

/// Granularity of every block (kMinBlockSize).
pub(super) const MIN_BLOCK: u64 = 512;
/// Largest rounded size that the small pool serves (kSmallSize).
pub(super) const SMALL_SIZE: u64 = MIB;
/// Segment and page size of the small pool (kSmallBuffer).
pub(super) const SMALL_SEGMENT: u64 = 2 * MIB;
/// From this rounded size on the segment's size follows the request's (kMinLargeAlloc).
pub(super) const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// Granularity of such segments (kRoundLarge).
const ROUND_LARGE: u64 = 2 * MIB;

/// Rounds `requested` bytes to the size that is searched for: a multiple of 512, or of a power-of-two division if
/// `roundup_power2_divisions` says so. The unrounded size is looked up in the table.
#[must_use]
#[inline]
pub const fn round(requested: Bytes, table: &RoundupTable) -> Bytes {
    let n = requested.0;
    if n < MIN_BLOCK {
        return Bytes(MIN_BLOCK);
    }
    let divisions = table.divisions(requested);
    // PyTorch's product wraps around: from 2^55 divisions on it is zero, and sizes are rounded up to the next power of two.
    if divisions >= 2 && n > MIN_BLOCK.wrapping_mul(divisions) {
        if n.is_power_of_two() {
            return requested;
        }
        let floor = 1 << n.ilog2();
        return match floor >> divisions.ilog2() {
            0 => Bytes(floor << 1),
            step => Bytes(n.next_multiple_of(step)),
        };
    }
    Bytes(n.next_multiple_of(MIN_BLOCK))
}

/// The size of the segment that is fetched from the driver for a rounded size.
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
#[must_use]
#[inline]
pub const fn pool_of(rounded: Bytes) -> PoolKind {
    if rounded.0 <= SMALL_SIZE { PoolKind::Small } else { PoolKind::Large }
}

/// The page size of a range that is reserved under these settings.
#[must_use]
pub const fn page_size(pool: PoolKind, settings: &Settings) -> Bytes {
    match pool {
        PoolKind::Small => Bytes(SMALL_SEGMENT),
        PoolKind::Large => settings.large_segment_size,
    }
}

/// The size of the range that an expandable segment reserves on a device with `total` bytes: nine eighths of them, in
/// whole pages. `None` beyond 64 bits.
#[must_use]
pub fn range_size(total: Bytes, page: Bytes) -> Option<Bytes> {
    let span = total.0.checked_add(total.0 / 8)?;
    span.div_ceil(page.0).checked_mul(page.0).map(Bytes)
}

/// The largest device on which the ranges of both pools are no longer than `longest`.
#[must_use]
pub fn largest_device(longest: Bytes, settings: &Settings) -> Bytes {
    let of_pool = |pool| {
        let page = page_size(pool, settings);
        let span = u128::from(longest.0 / page.0 * page.0);
        // The result is smaller than `span`, which came from 64 bits.
        Bytes(u64::try_from(span * 8 / 9).unwrap_or(u64::MAX))
    };
    of_pool(PoolKind::Small).min(of_pool(PoolKind::Large))
}
