//! A device driver that is pure address arithmetic: it places segments as the H200's driver does and has a capacity, but no memory.

use std::collections::BTreeMap;

use super::source::{DeviceMemory, OutOfDeviceMemory, SegmentSource};
use crate::placement::Placement;
use crate::units::{Address, Bytes, MIB};

/// Where the H200's driver put the first expandable range.
const FIRST_RANGE: u64 = 0x3_0200_0000;
/// Ranges begin at multiples of this.
const RANGE_ALIGNMENT: u64 = 32 * MIB;
/// The addresses that the driver gives to segments end here.
const SEGMENTS_END: u64 = 0x7f86_0000_0000;
/// The address space for segments below [`SEGMENTS_END`].
const SEGMENTS_SPAN: u64 = 1 << 44;

/// A simulated device, which has no real memory.
///
/// Segments lie where the H200's driver would put them. That matters because the allocator prefers the lowest address
/// among free blocks of one size. Streams finish all work at once.
#[derive(Clone, Debug)]
pub struct SimulatedDriver {
    placement: Placement,
    /// Reserved ranges: start and end.
    ranges: BTreeMap<u64, u64>,
    total: Bytes,
    used: Bytes,
}

impl SimulatedDriver {
    /// Ordinary segments lie below this address.
    pub const SEGMENTS_END: Address = Address(SEGMENTS_END);
    /// Segments placed where the host's copy of a model was lie below this address and above all other segments.
    pub const HOST_TOP: Address = Address(Placement::HOST_TOP);

    /// A device with `total` bytes of memory, of which contexts, libraries and other processes occupy `used_by_others`.
    #[must_use]
    pub fn new(total: Bytes, used_by_others: Bytes) -> Self {
        let mut placement = Placement::new(SEGMENTS_END - SEGMENTS_SPAN..SEGMENTS_END);
        placement.occupy_context();
        Self { placement, ranges: BTreeMap::new(), total, used: used_by_others.min(total) }
    }

    /// Notes that the host released `bytes` of a parameter that now lies on the device.
    pub fn release_host(&mut self, bytes: Bytes) {
        self.placement.release_host(bytes.0);
    }

    /// Notes that the program's first kernels are loaded.
    pub fn load_kernels(&mut self) {
        self.placement.load_kernels();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_runs_out_at_the_capacity_less_what_others_hold() {
        let mut driver = SimulatedDriver::new(Bytes::mib(100), Bytes::mib(10));
        let segment = driver.malloc(Bytes::mib(60)).unwrap();
        assert_eq!(driver.malloc(Bytes::mib(31)), Err(OutOfDeviceMemory));
        assert_eq!(driver.map(Address(0), Bytes::mib(30), Bytes::mib(2)), Ok(()));
        assert_eq!(driver.memory(), DeviceMemory { free: Bytes::ZERO, total: Bytes::mib(100) });
        driver.free(segment, Bytes::mib(60));
        driver.unmap(Address(0), Bytes::mib(30));
        assert_eq!(driver.memory().free, Bytes::mib(90));
        assert_eq!(driver.malloc(Bytes(u64::MAX)), Err(OutOfDeviceMemory));
        assert_eq!(driver.malloc(Bytes::mib(60)), Ok(segment));
    }

    #[test]
    fn the_first_segments_lie_as_on_the_h200() {
        // The first segments of a recorded program: distances from the context's older region, in MiB.
        let mut driver = SimulatedDriver::new(Bytes::gib(139), Bytes::ZERO);
        let older = SEGMENTS_END - 32 * MIB;
        for (size, above, below) in [(2, 0, 66), (44, 0, 544), (20, 0, 500), (14, 8, 0), (34, 0, 608), (330, 0, 960)] {
            let expected = older + above * MIB - below * MIB;
            assert_eq!(driver.malloc(Bytes::mib(size)), Ok(Address(expected)), "{size} MiB");
        }
    }

    #[test]
    fn ranges_begin_where_the_h200_puts_them_and_are_used_again() {
        let mut driver = SimulatedDriver::new(Bytes::gib(139), Bytes::ZERO);
        let first = driver.reserve_range(Bytes::mib(1000)).unwrap();
        let second = driver.reserve_range(Bytes::mib(100)).unwrap();
        assert_eq!((first, second), (Address(0x3_0200_0000), Address(0x3_0200_0000 + 1024 * MIB)));
        driver.release_range(first, Bytes::mib(1000));
        assert_eq!(driver.reserve_range(Bytes::mib(1001)), Ok(first));
        assert_eq!(driver.reserve_range(Bytes(u64::MAX)), Err(OutOfDeviceMemory));
    }
}
