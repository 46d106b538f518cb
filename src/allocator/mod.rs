//! PyTorch's CUDA caching allocator, decision for decision, and its caching host allocator.
//!
//! Pure: no clock, no I/O, no GPU. Segments come from a [`SegmentSource`], and everything that happens is told to a
//! [`TraceSink`] in the order in which PyTorch records it.
//!
//! # Vocabulary
//!
//! * A **segment** is memory that the driver gave in one piece (cudaMalloc). With expandable segments it is a
//!   reserved **range** of address space whose **pages** are mapped as they are needed.
//! * A segment is cut into **blocks**. A block is *active* from the moment it is handed out until its bytes can be
//!   used again; from `free` until the events of other streams are done it is *pending*.
//! * A segment is *split* while it holds more than one block; only unsplit free segments go back to the driver.
//! * Each **pool** (small: rounded sizes up to 1 MiB, large: all others) keeps its free blocks in the order stream,
//!   size, address; the first that fits is taken.
//! * A request has three sizes: *requested* (what the program asked), *rounded* (what is searched for) and the
//!   *block* size (what it occupies).
//!
//! # Replaying a recorded history
//!
//! A replay drives a [`CachingAllocator`] with a source that answers from the recording and a sink that compares:
//!
//! * Success, failure and addresses of growth are what [`SegmentSource::malloc`], [`SegmentSource::reserve_range`]
//!   and [`SegmentSource::map`] return. The sink hears of a growth right after the source granted it, and of a
//!   release right before the source is told.
//! * A block that was freed but not completed at once needs [`CachingAllocator::record_stream`] before
//!   [`CachingAllocator::free`]; completion is whatever [`SegmentSource::event_done`] says, asked first-in-first-out per
//!   side stream at the start of each `malloc` (or by [`CachingAllocator::process_events`]). The order between side
//!   streams, which PyTorch leaves to a hash table, is [`SegmentSource::order_streams`]. Giving each pending block a side stream
//!   of its own puts every completion under the source's control.
//! * What a request will do can be asked in advance: [`CachingAllocator::peek_free`],
//!   [`CachingAllocator::gc_victims`], [`CachingAllocator::growth_allowed`], [`CachingAllocator::reserved`],
//!   [`CachingAllocator::pending`].

mod block;
mod caching;
mod driver;
mod expandable;
mod host;
mod invariants;
mod live;
mod oom;
mod placement;
mod pool;
mod query;
mod reclaim;
mod rounding;
mod settings;
mod statistics;
mod summary;
mod trace;

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::units::{Address, Bytes, StreamId};

pub use block::PoolKind;
pub use caching::{AllocError, Allocation, CachingAllocator, InvalidFraction};
pub use driver::SimulatedDriver;
pub use host::{CachingHostAllocator, HostAllocError, HostMemorySource, HostStatistics, OutOfHostMemory};
pub use oom::OutOfMemory;
pub use placement::Placement;
pub use query::{BlockSnapshot, BlockState, PendingBlock, SegmentSnapshot};
pub use rounding::{largest_device, range_size, round, segment_size};
pub use settings::{ErrorClass, RoundupTable, Settings, SettingsError};
pub use statistics::{Counter, PoolCounters, Statistics};
pub use trace::{TraceEvent, TraceSink};

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

    /// Puts the side streams that have events queued into the order in which their queues are looked through.
    ///
    /// PyTorch's order is that of a hash table; here it is ascending unless the source rearranges it. Called only with
    /// two streams or more.
    fn order_streams(&mut self, streams: &mut [StreamId]) {
        let _ = streams;
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

    fn order_streams(&mut self, streams: &mut [StreamId]) {
        (**self).order_streams(streams);
    }
}
