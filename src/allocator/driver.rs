//! A device driver that is bare address arithmetic: placements as on the H200, a capacity, and nothing behind them.

use std::collections::BTreeMap;

use crate::allocator::{DeviceMemory, OutOfDeviceMemory, Placement, SegmentSource};
use crate::units::{Address, Bytes, MIB};

/// Where the H200's driver put the first expandable range.
const FIRST_RANGE: u64 = 0x3_0200_0000;
/// Ranges begin at multiples of this.
const RANGE_ALIGNMENT: u64 = 32 * MIB;
/// The driver's addresses for segments end here.
const SEGMENTS_END: u64 = 0x7f86_0000_0000;
/// Room for segments below.
const SEGMENTS_SPAN: u64 = 1 << 44;

/// A device that has memory only in name. Segments lie where the H200's driver would put them, which matters: among free blocks of one size the lowest address is used first.
#[derive(Clone, Debug)]
pub struct SimulatedDriver {
    placement: Placement,
    /// Reserved ranges: start and end.
    ranges: BTreeMap<u64, u64>,
    total: Bytes,
    used: Bytes,
}

impl SimulatedDriver {
    /// A device with `total` bytes of memory, of which `used_by_others` are not available (contexts, libraries, other
    /// processes).
    #[must_use]
    pub fn new(total: Bytes, used_by_others: Bytes) -> Self {
        let mut placement = Placement::new(SEGMENTS_END - SEGMENTS_SPAN..SEGMENTS_END);
        placement.occupy_context();
        Self { placement, ranges: BTreeMap::new(), total, used: used_by_others.min(total) }
    }

    fn take(&mut self, size: Bytes) -> Result<(), OutOfDeviceMemory> {
        if size > self.total.saturating_sub(self.used) {
            return Err(OutOfDeviceMemory);
        }
        self.used += size;
        Ok(())
    }
}

impl SegmentSource for SimulatedDriver {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.take(size)?;
        self.placement.place(size.0).map(Address).ok_or_else(|| {
            self.used -= size;
            OutOfDeviceMemory
        })
    }

    fn free(&mut self, address: Address, size: Bytes) {
        self.placement.release(address.0, size.0);
        self.used -= size;
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let mut base = FIRST_RANGE;
        for (&start, &end) in &self.ranges {
            if start - base >= size.0 {
                break;
            }
            base = end.next_multiple_of(RANGE_ALIGNMENT);
        }
        let end = base.checked_add(size.0).ok_or(OutOfDeviceMemory)?;
        if end > SEGMENTS_END - SEGMENTS_SPAN {
            return Err(OutOfDeviceMemory);
        }
        self.ranges.insert(base, end);
        Ok(Address(base))
    }

    fn release_range(&mut self, address: Address, _: Bytes) {
        self.ranges.remove(&address.0);
    }

    fn map(&mut self, _: Address, size: Bytes, _: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.take(size)
    }

    fn unmap(&mut self, _: Address, size: Bytes) {
        self.used -= size;
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory { free: self.total - self.used, total: self.total }
    }
}
