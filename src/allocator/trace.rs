//! The events that the allocator reports, in the vocabulary of PyTorch's memory history.

use crate::block::PoolKind;
use crate::units::{Address, Bytes, StreamId};

/// One entry of the memory history.
///
/// Sizes follow PyTorch: a block's events carry the bytes asked for, an out-of-memory event the rounded size of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block was allocated. This is the last event of a successful request.
    Alloc {
        /// First byte of the block.
        address: Address,
        /// Bytes asked for.
        requested: Bytes,
        /// Bytes of the block.
        size: Bytes,
        /// The stream it was allocated for.
        stream: StreamId,
        /// The pool it belongs to.
        pool: PoolKind,
    },
    /// The program freed a block.
    FreeRequested {
        /// First byte of the block.
        address: Address,
        /// Bytes asked for when the block was allocated.
        requested: Bytes,
        /// The stream it was allocated for.
        stream: StreamId,
    },
    /// The block can be reused. Its address is the one before merging with free neighbours.
    FreeCompleted {
        /// First byte of the block.
        address: Address,
        /// Bytes asked for when the block was allocated.
        requested: Bytes,
        /// The stream it was allocated for.
        stream: StreamId,
    },
    /// The driver gave a segment.
    SegmentAlloc {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
        /// The stream whose requests it serves.
        stream: StreamId,
        /// The pool it serves.
        pool: PoolKind,
    },
    /// A segment is about to go back to the driver.
    SegmentFree {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
        /// The stream whose requests it served.
        stream: StreamId,
    },
    /// Pages of an expandable segment were mapped.
    SegmentMap {
        /// First newly mapped byte.
        address: Address,
        /// Bytes newly mapped, a multiple of the page size.
        size: Bytes,
        /// The stream whose requests the range serves.
        stream: StreamId,
        /// The pool it serves.
        pool: PoolKind,
        /// First byte of the reserved range.
        range: Address,
        /// The range's page size.
        page: Bytes,
    },
    /// Pages of an expandable segment were given back.
    SegmentUnmap {
        /// First byte.
        address: Address,
        /// Bytes given back.
        size: Bytes,
        /// The stream whose requests the range serves.
        stream: StreamId,
    },
    /// A request failed for good.
    Oom {
        /// Bytes that the driver reports as free on the device. A limit does not lower them.
        device_free: Bytes,
        /// The rounded size of the request.
        rounded: Bytes,
        /// The stream of the request.
        stream: StreamId,
    },
}

/// A listener to the allocator's history.
pub trait TraceSink {
    /// Called for each `event`, in the order of PyTorch's trace entries.
    fn trace(&mut self, event: &TraceEvent);
}

/// A listener that ignores everything.
impl TraceSink for () {
    fn trace(&mut self, _: &TraceEvent) {}
}

impl TraceSink for Vec<TraceEvent> {
    fn trace(&mut self, event: &TraceEvent) {
        self.push(*event);
    }
}
