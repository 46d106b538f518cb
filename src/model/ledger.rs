//! The five accounts of reserved memory.

use serde::Serialize;

use vramlab_allocator::units::Bytes;

/// The accounts of every reserved byte. The five accounts sum to [`Ledger::reserved`] at every event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Requested bytes of live blocks.
    pub live: Bytes,
    /// The rest of live blocks: rounding, and remainders too small to be split off.
    pub rounding: Bytes,
    /// Blocks freed by the program that still wait for another stream's event.
    pub pending: Bytes,
    /// In segments (or whole pages of expandable ranges) without any block: `empty_cache` would release them.
    pub releasable: Bytes,
    /// Free, but inside a segment (or page) that contains a live or pending block.
    pub stranded: Bytes,
    /// The largest free block.
    pub largest_free: Bytes,
}

impl Ledger {
    /// Bytes held from the driver.
    #[must_use]
    pub fn reserved(&self) -> Bytes {
        self.allocated() + self.pending + self.releasable + self.stranded
    }

    /// Bytes of live blocks: PyTorch's `memory_allocated`.
    #[must_use]
    pub fn allocated(&self) -> Bytes {
        self.live + self.rounding
    }

    /// Free bytes, releasable or not.
    #[must_use]
    pub fn free(&self) -> Bytes {
        self.releasable + self.stranded
    }

    /// `stranded / reserved`; 0 if nothing is reserved.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        let reserved = self.reserved().get();
        if reserved == 0 { 0.0 } else { self.stranded.get() as f64 / reserved as f64 }
    }
}
