//! Page-locked host memory, and the time of copies from and to it.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::driver::{self, DriverFailure, Event, Stream};
use super::events::SharedStreams;
use crate::PinnedMemory;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{EventToken, HostMemorySource, OutOfHostMemory};

/// Mappings page-locked by the driver, as the caching host allocator's source.
pub(super) struct CudaPinnedSource {
    memory: PinnedMemory,
    /// Blocks that the driver has locked; the system may have refused to lock others.
    locked: BTreeSet<Address>,
    streams: SharedStreams,
}

impl CudaPinnedSource {
    pub fn new(memory: PinnedMemory, streams: SharedStreams) -> Self {
        Self { memory, locked: BTreeSet::new(), streams }
    }
}

impl HostMemorySource for CudaPinnedSource {
    fn allocate(&mut self, size: Bytes) -> Result<Address, OutOfHostMemory> {
        let mut locked = false;
        let lock = |address, size| {
            locked = driver::lock_host(address, size).is_ok();
            locked
        };
        let address = self.memory.allocate_locked_by(size, lock).map_err(|_| OutOfHostMemory)?.address;
        if locked {
            self.locked.insert(address);
        }
        Ok(address)
    }

    fn free(&mut self, address: Address, _size: Bytes) {
        if self.locked.remove(&address) {
            let _ = driver::unlock_host(address);
        }
        self.memory.free(address);
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        EventToken(self.streams.lock().record_for_allocator(stream))
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        self.streams.lock().is_done(event.0)
    }
}

impl Drop for CudaPinnedSource {
    /// Waits for copies from and to these blocks. The mappings are freed when nobody uses them any more.
    fn drop(&mut self) {
        self.streams.lock().synchronize();
        for address in std::mem::take(&mut self.locked) {
            let _ = driver::unlock_host(address);
            self.memory.free(address);
        }
    }
}

/// The time of copies, measured by events around each, without waiting.
#[derive(Default)]
pub(super) struct CopyTimes {
    /// Events around copies that may still be in progress, oldest first.
    pending: VecDeque<(Event, Event)>,
    spare: Vec<(Event, Event)>,
    /// The time of pageable copies, for which the host waits.
    waited: Duration,
}

impl CopyTimes {
    /// Queues a copy between two marks.
    pub fn measure(
        &mut self,
        stream: Stream,
        copy: impl FnOnce() -> Result<(), DriverFailure>,
    ) -> Result<(), DriverFailure> {
        let (start, end) = match self.spare.pop() {
            Some(pair) => pair,
            None => (Event::new(true)?, Event::new(true)?),
        };
        start.record(stream)?;
        copy()?;
        end.record(stream)?;
        self.pending.push_back((start, end));
        Ok(())
    }

    /// Adds the time of a copy for which the host has waited.
    pub fn add(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Returns the time of all copies that have ended since the last call.
    pub fn take(&mut self) -> Duration {
        let mut time = std::mem::take(&mut self.waited);
        while let Some((start, end)) = self.pending.pop_front() {
            if !end.is_done().unwrap_or(true) {
                self.pending.push_front((start, end));
                break;
            }
            let milliseconds = end.since(&start).unwrap_or_default();
            time += Duration::from_secs_f32(milliseconds.max(0.0) / 1e3);
            self.spare.push((start, end));
        }
        time
    }
}
