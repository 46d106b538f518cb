//! PyTorch's CUDA caching allocator, decision for decision, and its caching host allocator.
//!
//! Pure: no clock, no I/O, no GPU. Segments come from a [`SegmentSource`].

use thiserror::Error;

use crate::units::{Address, Bytes, StreamId};

/// The driver has no memory for a request (cudaErrorMemoryAllocation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the driver is out of memory")]
pub struct OutOfDeviceMemory;

/// What the driver reports of the device (cudaMemGetInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes nobody holds.
    pub free: Bytes,
    /// Bytes in all.
    pub total: Bytes,
}

/// A marker in a stream's work that the allocator recorded ([`SegmentSource::record_event`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventToken(pub u64);

/// Where segments come from: cudaMalloc, an anonymous mapping, or address arithmetic alone.
///
/// The event methods answer for streams; their default is a device that finishes everything at once.
pub trait SegmentSource {
    /// A new segment of `size` bytes (cudaMalloc).
    ///
    /// # Errors
    /// [`OutOfDeviceMemory`]; the allocator then frees cached memory and tries again.
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory>;

    /// Gives a segment back (cudaFree).
    fn free(&mut self, address: Address, size: Bytes);

    /// A range of address space for an expandable segment, nothing mapped (cuMemAddressReserve).
    ///
    /// # Errors
    /// [`OutOfDeviceMemory`] when there is no such range.
    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory>;

    /// Gives a range back whose pages are all unmapped.
    fn release_range(&mut self, address: Address, size: Bytes);

    /// Backs `[address, address + size)` of a range with memory, page by page; all pages or none.
    ///
    /// # Errors
    /// [`OutOfDeviceMemory`] when the driver has too few pages.
    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory>;

    /// Takes the memory away again.
    fn unmap(&mut self, address: Address, size: Bytes);

    /// Free and total memory of the device.
    fn memory(&self) -> DeviceMemory;

    /// Marks the present end of `stream`'s work.
    fn record_event(&mut self, stream: StreamId) -> EventToken {
        let _ = stream;
        EventToken(0)
    }

    /// True when the work before `event` is done.
    fn event_done(&mut self, event: EventToken) -> bool {
        let _ = event;
        true
    }

    /// Waits for the work before `event`.
    fn wait_event(&mut self, event: EventToken) {
        let _ = event;
    }
}
