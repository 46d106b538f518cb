//! The GPU's memory, in the form that the caching allocator uses.

use std::collections::BTreeMap;

use super::driver::{self, pages};
use super::events::SharedStreams;
use super::monitor::ReservedBytes;
use super::places::Places;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{DeviceMemory, EventToken, OutOfDeviceMemory, SegmentSource};

/// Segments lie at the addresses that [`Places`] chooses, otherwise they come from cuMemAlloc. Expandable segments have
/// ranges of their own, whose pages are mapped one by one.
pub(super) struct GpuMemory {
    ordinal: u32,
    places: Places,
    /// Segments, with their memory if [`Places`] chose the address.
    segments: BTreeMap<Address, (Bytes, Option<pages::Page>)>,
    ranges: BTreeMap<Address, Bytes>,
    /// Mapped pages, by address.
    pages: BTreeMap<u64, (Bytes, pages::Page)>,
    /// The reserved bytes, for comparison with the driver's memory in use.
    held: ReservedBytes,
    /// Keeps the context alive until all of the above has been freed.
    streams: SharedStreams,
}

impl GpuMemory {
    pub fn new(ordinal: u32, streams: SharedStreams, places: Places, held: ReservedBytes) -> Self {
        let (segments, ranges, pages) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { ordinal, streams, places, segments, ranges, pages, held }
    }

    /// Frees the memory of a segment.
    fn release(&self, address: Address, size: Bytes, memory: Option<pages::Page>) -> Result<(), driver::DriverFailure> {
        let Some(page) = memory else { return driver::free(address) };
        // Unlike cuMemFree, this call does not wait.
        self.streams.lock().synchronize();
        let unmapped = pages::unmap(address, size);
        drop(page);
        self.places.give_back(address, size);
        unmapped
    }

    /// Treats every failure as out of memory. Other failures recur at the next launch, which can report them.
    fn refused(_: driver::DriverFailure) -> OutOfDeviceMemory {
        OutOfDeviceMemory
    }
}

/// Accepts the refusal of a lost device, because nothing is left on it to free.
fn accepted(answer: Result<(), driver::DriverFailure>) -> bool {
    answer.is_ok() || answer.is_err_and(driver::DriverFailure::lost)
}

impl SegmentSource for GpuMemory {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let (address, memory) = match self.places.take(size) {
            Some(place) => match pages::map(place, size, self.ordinal) {
                Ok(page) => (place, Some(page)),
                Err(failure) => {
                    self.places.give_back(place, size);
                    return Err(Self::refused(failure));
                }
            },
            None => (driver::allocate(size).map_err(Self::refused)?, None),
        };
        self.segments.insert(address, (size, memory));
        self.held.add(size);
        Ok(address)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        let Some((_, memory)) = self.segments.remove(&address) else { return };
        let freed = self.release(address, size, memory);
        debug_assert!(accepted(freed), "a segment is freed once: {freed:?}");
        self.held.subtract(size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let address = pages::reserve(size).map_err(Self::refused)?;
        self.ranges.insert(address, size);
        Ok(address)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        self.ranges.remove(&address);
        let released = pages::release(address, size);
        debug_assert!(accepted(released), "a range is released once: {released:?}");
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        let count = size.get() / page.get().max(1);
        for index in 0..count {
            let at = address.offset(Bytes(index * page.get()));
            match pages::map(at, page, self.ordinal) {
                Ok(handle) => {
                    self.pages.insert(at.0, (page, handle));
                    self.held.add(page);
                }
                Err(failure) => {
                    self.unmap(address, Bytes(index * page.get()));
                    return Err(Self::refused(failure));
                }
            }
        }
        Ok(())
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        // Unlike cuMemFree, this call does not wait.
        self.streams.lock().synchronize();
        let inside: Vec<u64> = self.pages.range(address.0..address.0 + size.get()).map(|(&at, _)| at).collect();
        for at in inside {
            if let Some((page, handle)) = self.pages.remove(&at) {
                let unmapped = pages::unmap(Address(at), page);
                debug_assert!(accepted(unmapped), "a page is unmapped once: {unmapped:?}");
                drop(handle);
                self.held.subtract(page);
            }
        }
    }

    fn memory(&self) -> DeviceMemory {
        let (free, total) = driver::memory().unwrap_or_default();
        DeviceMemory { free, total }
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        EventToken(self.streams.lock().record_for_allocator(stream))
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.streams.lock().is_done(event.0)
    }

    fn wait_event(&mut self, event: EventToken) {
        self.streams.lock().wait_on_host(event.0);
    }
}

impl Drop for GpuMemory {
    /// Frees everything, because another run of this process may need it.
    fn drop(&mut self) {
        for (address, (size, memory)) in std::mem::take(&mut self.segments) {
            let _ = self.release(address, size, memory);
        }
        for (address, size) in std::mem::take(&mut self.ranges) {
            self.unmap(address, size);
            let _ = pages::release(address, size);
        }
    }
}
