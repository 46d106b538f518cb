//! What the allocator needs from a device: segments, and the progress of streams.

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

/// An event that the allocator recorded in a stream's work ([`SegmentSource::record_event`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventToken(pub u64);

/// A source of segments: cudaMalloc, an anonymous mapping, or address arithmetic alone.
///
/// The event methods report the progress of streams. By default, a device finishes all work at once.
pub trait SegmentSource {
    /// Allocates a new segment of `size` bytes (cudaMalloc).
    ///
    /// # Errors
    /// [`OutOfDeviceMemory`]; the allocator then gives back cached memory and tries again.
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory>;

    /// Returns a segment to the driver (cudaFree).
    fn free(&mut self, address: Address, size: Bytes);

    /// Reserves a range of address space for an expandable segment without mapping anything (cuMemAddressReserve).
    ///
    /// # Errors
    /// [`OutOfDeviceMemory`] if there is no such range.
    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory>;

    /// Releases a range whose pages are all unmapped.
    fn release_range(&mut self, address: Address, size: Bytes);

    /// Maps memory to `[address, address + size)` of a range, page by page: all pages or none.
    ///
    /// # Errors
    /// [`OutOfDeviceMemory`] when the driver has too few pages.
    fn map(&mut self, address: Address, size: Bytes, page: Bytes) -> Result<(), OutOfDeviceMemory>;

    /// Unmaps memory.
    fn unmap(&mut self, address: Address, size: Bytes);

    /// Free and total memory of the device.
    fn memory(&self) -> DeviceMemory;

    /// Records an event at the current end of `stream`'s work.
    fn record_event(&mut self, stream: StreamId) -> EventToken {
        let _ = stream;
        EventToken(0)
    }

    /// True once the work before `event` is done.
    fn event_done(&mut self, event: EventToken) -> bool {
        let _ = event;
        true
    }

    /// Waits for the work before `event`.
    fn wait_event(&mut self, event: EventToken) {
        let _ = event;
    }

    /// The streams whose events may be done now, in the order in which their queues are searched; `None` if unknown,
    /// and all queues are searched.
    fn streams_done(&mut self) -> Option<Vec<StreamId>> {
        None
    }

    /// Sorts the side streams that have queued events into the order in which their queues are searched.
    ///
    /// PyTorch's order is that of a hash table. Here streams ascend unless the source rearranges them. Called only with
    /// two streams or more.
    fn order_streams(&mut self, streams: &mut [StreamId]) {
        let _ = streams;
    }

    /// Sorts blocks that were freed during a graph capture into the order in which their events are recorded.
    ///
    /// As with streams, PyTorch's order is that of a hash table. Called only with two blocks or more.
    fn order_deferred(&mut self, blocks: &mut [Address]) {
        let _ = blocks;
    }

    /// Sorts private pools that have lost their last user into the order in which they give back their cached memory.
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
