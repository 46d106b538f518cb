//! The driver calls of a simulated GPU: address arithmetic that takes simulated time.

use std::cell::RefCell;
use std::rc::Rc;

use super::card::Card;
use super::clock::SharedClock;
use super::cost::nanos;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{
    DeviceMemory, EventToken, HostMemorySource, OutOfDeviceMemory, OutOfHostMemory, SegmentSource, SimulatedDriver,
};

/// Simulated device memory, which has addresses but no bytes.
pub(super) struct TimedDriver {
    card: Rc<Card>,
    clock: SharedClock,
    driver: SharedDriver,
}

/// The driver, shared by the device and its allocator.
pub(super) type SharedDriver = Rc<RefCell<SimulatedDriver>>;

impl TimedDriver {
    pub fn new(card: &Rc<Card>, clock: &SharedClock, driver: &SharedDriver) -> Self {
        Self { card: Rc::clone(card), clock: clock.clone(), driver: Rc::clone(driver) }
    }

    fn spend_malloc(&self, size: Bytes) {
        self.clock.host(nanos(self.card.driver.malloc.at(size)));
    }

    /// cudaFree waits for the device before it works.
    fn spend_free(&self, size: Bytes) {
        self.clock.join();
        self.clock.host(nanos(self.card.driver.free.at(size)));
    }
}

impl SegmentSource for TimedDriver {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.spend_malloc(size);
        self.driver.borrow_mut().malloc(size)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        self.spend_free(size);
        self.driver.borrow_mut().free(address, size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        self.driver.borrow_mut().reserve_range(size)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        self.driver.borrow_mut().release_range(address, size);
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        let pages = size.get().div_ceil(page.get().max(1));
        self.clock.host(nanos(self.card.driver.malloc.at(page)).saturating_mul(pages));
        self.driver.borrow_mut().map(address, size, page)
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        self.spend_free(size);
        self.driver.borrow_mut().unmap(address, size);
    }

    fn memory(&self) -> DeviceMemory {
        self.driver.borrow().memory()
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        token(&self.clock, stream)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.clock.has_passed(event.0)
    }

    fn wait_event(&mut self, event: EventToken) {
        self.clock.wait_until(event.0);
    }
}

/// The end of `stream`. Training uses only streams of the device; for any other stream this is the end of all streams.
fn token(clock: &SharedClock, stream: StreamId) -> EventToken {
    debug_assert!(clock.has(stream), "the allocator is asked for streams that the device has");
    EventToken(clock.end_of(stream).unwrap_or_else(|| clock.end_of_all()))
}

/// Simulated page-locked memory, which has addresses but no bytes.
pub(super) struct HostAddresses {
    clock: SharedClock,
    next: u64,
}

impl HostAddresses {
    pub fn new(clock: &SharedClock) -> Self {
        Self { clock: clock.clone(), next: 1 << 46 }
    }
}

impl HostMemorySource for HostAddresses {
    fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory> {
        let address = Address(self.next);
        self.next += size.get().next_multiple_of(1 << 12);
        Ok(address)
    }

    fn free(&mut self, _: Address, _: Bytes) {}

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        token(&self.clock, stream)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.clock.has_passed(event.0)
    }
}
