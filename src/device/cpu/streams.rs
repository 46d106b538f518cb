//! The processor's streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::copies::CopyState;
use vramlab_allocator::EventToken;
use vramlab_allocator::units::StreamId;

/// The handle of the copy stream, as a PyTorch trace would show a stream from its pool.
pub(crate) const COPY_STREAM: StreamId = StreamId(1);

/// The streams besides the compute stream. Their handles count up from the copy stream's.
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

    /// The copies that precede the work submitted to `stream` so far, as the allocator's event token. Training uses
    /// only streams of the device; a token of any other stream waits for all copies.
    pub fn token(&self, stream: StreamId, copies: &CopyState) -> EventToken {
        debug_assert!(self.has(stream), "the allocator is asked for streams that the device has");
        EventToken(if stream == COPY_STREAM || !self.has(stream) { copies.submitted() } else { 0 })
    }
}
