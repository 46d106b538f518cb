//! The addresses of segments: in one reserved range, in the order in which PyTorch's process on an H200 would have got
//! them from cudaMalloc. Among free blocks of one size the allocator chooses the lowest address, so addresses decide
//! what is reserved an hour later. Other memory in this process's context must not influence them.

use std::cell::RefCell;
use std::rc::Rc;

use super::driver::pages;
use crate::ProgramStart;
use vramlab_allocator::units::{Address, Bytes, MIB};
use vramlab_allocator::{SegmentSource, SimulatedDriver};

/// The size of the driver's pages.
const PAGE: u64 = 2 * MIB;
/// The range is this many times as large as all memory, to have room for the gaps between segments.
const SPAN: u64 = 4;

/// A shared handle: the device reports the program's start to it, and the device's memory requests addresses from it.
#[derive(Clone, Default)]
pub(super) struct Places(Option<Rc<RefCell<PlacedRange>>>);

struct PlacedRange {
    /// Chooses addresses. Whether memory is available is decided by the real driver.
    order: SimulatedDriver,
    start: Address,
    /// The size of the part for ordinary segments. The part after it, of the same size, is for segments above them.
    size: Bytes,
}

impl Places {
    /// Reserves addresses for a device with `memory`. If that fails, the driver chooses the addresses of segments.
    pub fn reserve(memory: Bytes) -> Self {
        let size = Bytes((memory.get() * SPAN).next_multiple_of(PAGE));
        let order = SimulatedDriver::new(Bytes(u64::MAX), Bytes::ZERO);
        let range = pages::reserve(Bytes(2 * size.get())).ok().map(|start| PlacedRange { order, start, size });
        Self(range.map(|range| Rc::new(RefCell::new(range))))
    }

    /// Follows the actions of PyTorch's program at its start.
    pub fn follow(&self, start: ProgramStart) {
        let Some(range) = &self.0 else { return };
        match start {
            ProgramStart::ParameterMoved(bytes) => range.borrow_mut().order.release_host(bytes),
            ProgramStart::FirstKernels => range.borrow_mut().order.load_kernels(),
        }
    }

    /// The address of a new segment; `None` if the driver must choose one.
    pub fn take(&self, size: Bytes) -> Option<Address> {
        let mut range = self.0.as_ref()?.borrow_mut();
        if !size.get().is_multiple_of(PAGE) {
            return None;
        }
        let modelled = range.order.malloc(size).ok()?;
        let place = range.place(modelled, size);
        if place.is_none() {
            range.order.free(modelled, size);
        }
        place
    }

    /// Releases an address.
    pub fn give_back(&self, place: Address, size: Bytes) {
        let Some(range) = &self.0 else { return };
        let mut range = range.borrow_mut();
        let modelled = range.modelled(place);
        range.order.free(modelled, size);
    }
}

impl PlacedRange {
    /// Maps the model's two parts, each of `size` below its end, one after the other into the range.
    fn place(&self, modelled: Address, size: Bytes) -> Option<Address> {
        let ends = [SimulatedDriver::SEGMENTS_END, SimulatedDriver::HOST_TOP];
        let (part, end) = ends.into_iter().enumerate().find(|(_, end)| modelled.0 < end.0)?;
        let below = end.0 - modelled.0;
        let fits = below <= self.size.get() && size.get() <= below;
        fits.then(|| Address(self.start.0 + (part as u64 + 1) * self.size.get() - below))
    }

    fn modelled(&self, place: Address) -> Address {
        let offset = place.0 - self.start.0;
        let (part, end) =
            if offset < self.size.get() { (1, SimulatedDriver::SEGMENTS_END) } else { (2, SimulatedDriver::HOST_TOP) };
        Address(end.0 - (part * self.size.get() - offset))
    }
}

impl Drop for PlacedRange {
    fn drop(&mut self) {
        let _ = pages::release(self.start, Bytes(2 * self.size.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_models_order_and_lead_back_to_it() {
        let size = Bytes::gib(4);
        let range = std::mem::ManuallyDrop::new(PlacedRange {
            order: SimulatedDriver::new(Bytes(u64::MAX), Bytes::ZERO),
            start: Address(1 << 40),
            size,
        });
        let page = Bytes(PAGE);
        let [low, high] = [SimulatedDriver::SEGMENTS_END, SimulatedDriver::HOST_TOP];
        let modelled = [low.0 - size.get(), low.0 - PAGE, high.0 - size.get(), high.0 - PAGE].map(Address);
        let places = modelled.map(|address| range.place(address, page).unwrap());
        assert!(places.is_sorted());
        assert_eq!(places[0], range.start);
        assert_eq!(places[3], Address(range.start.0 + 2 * size.get() - PAGE));
        assert_eq!(places.map(|place| range.modelled(place)), modelled);
        assert_eq!(range.place(Address(low.0 - size.get() - PAGE), page), None);
        assert_eq!(range.place(Address(low.0 - PAGE), Bytes(2 * PAGE)), None);
    }
}
