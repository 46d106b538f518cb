//! Which streams the processor has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::copies::CopyState;
use vramlab_allocator::EventToken;
use vramlab_allocator::units::StreamId;

/// The handle of the copy stream, as a PyTorch trace would show a stream of its pool.
pub(crate) const COPY_STREAM: StreamId = StreamId(1);

/// The streams beside the compute stream: their handles count up from that of the copy stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamHandles(Arc<AtomicU64>);

impl StreamHandles {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(COPY_STREAM.0)))
    }

    pub fn open(&self) -> StreamId {
        StreamId(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn has(&self, stream: StreamId) -> bool {
        stream.0 <= self.0.load(Ordering::Relaxed)
    }

    /// The copies that work given to `stream` so far comes after, as the allocator asks for it. Training asks for streams
    /// only that the device has; any other one comes after all copies.
    pub fn token(&self, stream: StreamId, copies: &CopyState) -> EventToken {
        debug_assert!(self.has(stream), "the allocator is asked for streams that the device has");
        EventToken(if stream == COPY_STREAM || !self.has(stream) { copies.submitted() } else { 0 })
    }
}
