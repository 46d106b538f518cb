//! Heights in the fractions of an eighth in which areas are computed.

use super::row::FINE;
use vramlab_allocator::units::Bytes;

/// The number of bytes at the top of so many rows.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub top: Bytes,
    pub rows: u16,
}

impl Scale {
    /// The height of all rows.
    pub fn full(self) -> u64 {
        u64::from(self.rows) * 8 * FINE
    }

    /// The height of `bytes`, as the nearest multiple of `unit`.
    pub fn units(self, bytes: u64, unit: u64) -> u64 {
        let (top, full) = (u128::from(self.top.get().max(1)), self.full());
        let units = (u128::from(bytes) * u128::from(full / unit) + top / 2) / top;
        u64::try_from(units).unwrap_or(full).saturating_mul(unit).min(full)
    }
}
