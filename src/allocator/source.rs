//! Where segments come from, and when work on a stream is done: what the allocator asks of a device.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::pool_id::PoolId;
use crate::units::{Address, Bytes, StreamId};

/// The driver has no memory for a request (cudaErrorMemoryAllocation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the driver is out of memory")]
pub struct OutOfDeviceMemory;

/// What the driver reports of the device (cudaMemGetInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// Free bytes.
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

    /// The streams of which an event may be done now, in the order in which their queues are looked through; `None` where that is
    /// unknown, and all are looked at.
    fn streams_done(&mut self) -> Option<Vec<StreamId>> {
        None
    }

    /// Puts the side streams that have events queued into the order in which their queues are looked through.
    ///
    /// PyTorch's order is that of a hash table; here it is ascending unless the source rearranges it. Called only with
    /// two streams or more.
    fn order_streams(&mut self, streams: &mut [StreamId]) {
        let _ = streams;
    }

    /// Puts blocks that were freed while a graph was captured into the order in which their events are recorded.
    ///
    /// As with streams, PyTorch's order is that of a hash table. Called only with two blocks or more.
    fn order_deferred(&mut self, blocks: &mut [Address]) {
        let _ = blocks;
    }

    /// Puts the private pools that have lost their last user into the order in which they give back what they cached.
    ///
    /// As with streams, PyTorch's order is that of a hash table. Called only with two pools or more.
    fn order_pools(&mut self, pools: &mut [PoolId]) {
        let _ = pools;
    }
}

impl<S: SegmentSource + ?Sized> SegmentSource for Box<S> {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        (**self).malloc(size)
    }

    fn free(&mut self, address: Address, size: Bytes) {
        (**self).free(address, size);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        (**self).reserve_range(size)
    }

    fn release_range(&mut self, address: Address, size: Bytes) {
        (**self).release_range(address, size);
    }

    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory> {
        (**self).map(address, size, page)
    }

    fn unmap(&mut self, address: Address, size: Bytes) {
        (**self).unmap(address, size);
    }

    fn memory(&self) -> DeviceMemory {
        (**self).memory()
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        (**self).record_event(stream)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        (**self).event_done(event)
    }

    fn wait_event(&mut self, event: EventToken) {
        (**self).wait_event(event);
    }

    fn streams_done(&mut self) -> Option<Vec<StreamId>> {
        (**self).streams_done()
    }

    fn order_streams(&mut self, streams: &mut [StreamId]) {
        (**self).order_streams(streams);
    }

    fn order_deferred(&mut self, blocks: &mut [Address]) {
        (**self).order_deferred(blocks);
    }

    fn order_pools(&mut self, pools: &mut [PoolId]) {
        (**self).order_pools(pools);
    }
}
