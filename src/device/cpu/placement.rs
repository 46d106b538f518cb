//! Where new segments lie in device address space.

use std::collections::BTreeMap;

use crate::units::{Address, Bytes, MIB};

/// The end of the address space that segments are placed in, as on Linux GPUs.
const TOP: u64 = 0x7fff_0000_0000;
/// Segments start at multiples of this.
const ALIGNMENT: u64 = 2 * MIB;

/// Top-down, in the highest gap that fits.
#[derive(Default)]
pub(super) struct Placement {
    /// Start → end.
    taken: BTreeMap<u64, u64>,
}

impl Placement {
    /// An address for `size` bytes.
    pub(super) fn place(&mut self, size: Bytes) -> Option<Address> {
        let size = size.get().checked_next_multiple_of(ALIGNMENT)?;
        let mut top = TOP;
        for (&start, &end) in self.taken.iter().rev() {
            if top - end >= size {
                break;
            }
            top = start;
        }
        let start = top.checked_sub(size).filter(|&start| start >= ALIGNMENT)?;
        self.taken.insert(start, top);
        Some(Address(start))
    }

    /// Gives the segment at `address` back.
    pub(super) fn release(&mut self, address: Address) {
        self.taken.remove(&address.0);
    }
}
