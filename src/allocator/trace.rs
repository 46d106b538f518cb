//! What the allocator tells of itself, in the vocabulary of PyTorch's memory history.

use crate::block::PoolKind;
use crate::units::{Address, Bytes, StreamId};

/// One entry of the history.
///
/// Sizes follow PyTorch: a block's events carry the bytes asked for, an out-of-memory event the rounded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block was handed out; the last event of a successful request.
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
    /// The program gave a block back.
    FreeRequested {
        /// First byte of the block.
        address: Address,
        /// Bytes asked for when it was handed out.
        requested: Bytes,
        /// The stream it was allocated for.
        stream: StreamId,
    },
    /// The block can be used again. Its address is that before merging with free neighbours.
    FreeCompleted {
        /// First byte of the block.
        address: Address,
        /// Bytes asked for when it was handed out.
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
        /// Its page size.
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
        /// What the driver reports as free on the device; a limit does not lower it.
        device_free: Bytes,
        /// The rounded size of the request.
        rounded: Bytes,
        /// The stream of the request.
        stream: StreamId,
    },
}

/// Who listens to the history.
pub trait TraceSink {
    /// `event` happened; calls come in the order of PyTorch's trace entries.
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
