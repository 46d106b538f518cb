//! The driver behind the other allocator.

use std::collections::{BTreeMap, BTreeSet};

use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{DeviceMemory, EventToken, OutOfDeviceMemory, Seed, SegmentSource, SimulatedDriver};

use super::block_number::BlockNumber;

/// Where segments are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Places {
    /// Where vramlab's simulated driver places them.
    #[default]
    Simulated,
    /// Where the history has them, as long as it has one of the requested size.
    Recorded,
}

/// Marks the streams that stand for "whatever this block waits for". No stream handle (a pointer) is that large.
const WAITING: u64 = 1 << 63;
/// The driver's own places lie above all addresses in a history.
const OWN: u64 = 1 << 56;

/// The stream that a block waits for.
pub(super) const fn waiting_stream(block: BlockNumber) -> StreamId {
    StreamId(WAITING | block as u64)
}

/// A driver without real memory. Streams finish with a block when the run says so.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    simulated: SimulatedDriver,
    /// Segments placed where the history has them: their end, and the simulated place that counts for them.
    recorded: BTreeMap<Address, (Address, Address)>,
    /// Ranges of expandable segments placed where the history has them, because they existed when it began.
    ranges: BTreeSet<Address>,
    /// The segment that the run's driver gave for the current request.
    offer: Option<(Address, Bytes)>,
    done: Option<EventToken>,
    places: Places,
}

impl Driver {
    pub fn new(memory: DeviceMemory, places: Places) -> Self {
        let used = memory.total.saturating_sub(memory.free);
        Self {
            simulated: SimulatedDriver::new(memory.total, used),
            recorded: BTreeMap::new(),
            ranges: BTreeSet::new(),
            offer: None,
            done: None,
            places,
        }
    }

    /// A driver that has already given the memory in `seed`, at the history's addresses; `None` if the device has less memory.
    pub fn holding(memory: DeviceMemory, seed: &Seed) -> Option<Self> {
        let mut driver = Self::new(memory, Places::Recorded);
        for segment in &seed.segments {
            let end = Address(segment.address.0.checked_add(segment.size.0).filter(|end| *end < OWN)?);
            if segment.expandable {
                driver.simulated.map(segment.address, segment.size, Bytes::ZERO).ok()?;
            } else {
                let simulated = driver.simulated.malloc(segment.size).ok()?;
                driver.recorded.insert(segment.address, (end, simulated));
            }
        }
        driver.ranges = seed.ranges.iter().map(|range| range.base).collect();
        Some(driver)
    }

    pub fn load_kernels(&mut self) {
        self.simulated.load_kernels();
    }

    /// Sets the segment that the run's driver gave for the next request; `None` if it gave none.
    pub const fn offer(&mut self, offer: Option<(Address, Bytes)>) {
        self.offer = offer;
    }

    /// Marks the stream that `block` waits for as done; `None` marks no stream.
    pub fn done(&mut self, block: Option<BlockNumber>) {
        self.done = block.map(|block| EventToken(u64::from(block)));
    }

    /// True if no segment placed by the history overlaps.
    fn is_clear(&self, address: Address, end: Address) -> bool {
        end.0 < OWN && self.recorded.range(..end).next_back().is_none_or(|(_, (end, _))| *end <= address)
    }
}

impl SegmentSource for Driver {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let simulated = self.simulated.malloc(size)?;
        if self.places == Places::Simulated {
            return Ok(simulated);
        }
        let offered = self.offer.take_if(|(_, offered)| *offered == size).and_then(|(address, size)| {
            let end = Address(address.0.checked_add(size.0)?);
            self.is_clear(address, end).then_some((address, end))
        });
        Ok(match offered {
            Some((address, end)) => {
                self.recorded.insert(address, (end, simulated));
                address
            }
            None => Address(simulated.0 + OWN),
        })
    }

    fn free(&mut self, address: Address, size: Bytes) {
        let simulated = match self.recorded.remove(&address) {
            Some((_, simulated)) => simulated,
            None if self.places == Places::Recorded => Address(address.0 - OWN),
            None => address,
        };
        self.simulated.free(simulated, size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let base = self.simulated.reserve_range(size)?;
        // A range of the history may lie where simulated ranges begin.
        Ok(if self.ranges.is_empty() { base } else { Address(base.0 + OWN) })
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        if !self.ranges.remove(&address) {
            self.simulated.release_range(Address(address.0 & (OWN - 1)), size);
        }
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.simulated.map(address, size, page)
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        self.simulated.unmap(address, size);
    }

    fn memory(&self) -> DeviceMemory {
        self.simulated.memory()
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        EventToken(stream.0 & !WAITING)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.done == Some(event)
    }

    fn streams_done(&mut self) -> Option<Vec<StreamId>> {
        Some(self.done.map(|event| StreamId(WAITING | event.0)).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_lies_where_the_history_shows_one_of_its_size_and_nothing_lies_there() {
        let memory = DeviceMemory { free: Bytes::gib(1), total: Bytes::gib(1) };
        let mut driver = Driver::new(memory, Places::Recorded);
        let (place, size) = (Address(0x7000_0000), Bytes::mib(20));
        driver.offer(Some((place, size)));
        let other = driver.malloc(Bytes::mib(2)).unwrap();
        assert!(other.0 > OWN, "another size");
        assert_eq!(driver.malloc(size), Ok(place));
        driver.offer(Some((place.offset(Bytes::mib(10)), size)));
        let own = driver.malloc(size).unwrap();
        assert!(own.0 > OWN, "it would overlap");
        driver.free(place, size);
        driver.free(own, size);
        driver.free(other, Bytes::mib(2));
        assert_eq!(driver.memory(), memory, "all went back");
        driver.offer(Some((place, size)));
        assert_eq!(driver.malloc(size), Ok(place));
    }
}
