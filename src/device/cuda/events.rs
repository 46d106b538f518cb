//! Streams and the events recorded on them, identified by numbers that are never reused.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::driver::{Context, DriverFailure, Event, Stream};
use vramlab_allocator::units::StreamId;

/// The stream of copies that run concurrently with the compute stream, as PyTorch's traces would show a stream of its
/// pool.
pub(super) const COPY_STREAM: StreamId = StreamId(1);

/// The streams of a device, shared by everything that records events.
#[derive(Clone)]
pub(super) struct SharedStreams(Arc<Mutex<Streams>>);

impl SharedStreams {
    /// The compute stream and the copy stream of `context`, which is kept as long as the streams.
    pub fn new(context: Context) -> Result<Self, DriverFailure> {
        Ok(Self(Arc::new(Mutex::new(Streams::new(context)?))))
    }

    pub fn lock(&self) -> MutexGuard<'_, Streams> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of marks kept, for all streams together.
const MARKS: usize = 2048;

/// Work is done in order on each stream, so events end in the order of their recording.
pub(super) struct Streams {
    lanes: BTreeMap<StreamId, Lane>,
    next: u64,
    /// Events for reuse, whose marks were reached.
    spare: Vec<Event>,
    /// Timed events, reused in turn.
    marks: Vec<Event>,
    marked: u64,
    /// Dropped last: everything that belongs to a device is dropped before its streams.
    _context: Context,
}

struct Lane {
    stream: Stream,
    /// Recorded events that are not known to be reached, with their numbers.
    pending: VecDeque<(u64, Event)>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
        self.pending.clear();
        self.stream.destroy();
    }
}

impl Lane {
    fn new() -> Result<Self, DriverFailure> {
        Ok(Self { stream: Stream::new()?, pending: VecDeque::new() })
    }
}

impl Streams {
    fn new(context: Context) -> Result<Self, DriverFailure> {
        let lanes = BTreeMap::from([(StreamId::DEFAULT, Lane::new()?), (COPY_STREAM, Lane::new()?)]);
        Ok(Self { lanes, next: 1, spare: Vec::new(), marks: Vec::new(), marked: 0, _context: context })
    }

    /// Opens another stream.
    pub fn open(&mut self) -> Result<StreamId, DriverFailure> {
        let stream = StreamId(self.lanes.last_key_value().map_or(0, |(last, _)| last.0) + 1);
        self.lanes.insert(stream, Lane::new()?);
        Ok(stream)
    }

    /// True if the stream exists.
    pub fn has(&self, stream: StreamId) -> bool {
        self.lanes.contains_key(&stream)
    }

    /// The driver's stream; `None` if it does not exist.
    pub fn stream(&self, stream: StreamId) -> Option<Stream> {
        Some(self.lanes.get(&stream)?.stream)
    }

    /// Marks the current end of `stream`; `None` if it does not exist. If the driver refuses, the returned mark is one
    /// that was already reached: the next launch reports the failure.
    pub fn record(&mut self, stream: StreamId) -> Option<u64> {
        let lane = self.lanes.get_mut(&stream)?;
        let event = self.spare.pop().map_or_else(|| Event::new(false), Ok);
        let Ok(event) = event else { return Some(0) };
        if event.record(lane.stream).is_err() {
            return Some(0);
        }
        let number = self.next;
        self.next += 1;
        lane.pending.push_back((number, event));
        Some(number)
    }

    /// The same for the allocator, whose interface can't refuse. Training requests only streams of the device. For any
    /// other stream, all work has ended when this returns.
    pub fn record_for_allocator(&mut self, stream: StreamId) -> u64 {
        self.record(stream).unwrap_or_else(|| {
            debug_assert!(false, "the allocator is asked for streams that the device has");
            self.synchronize();
            0
        })
    }

    /// True when everything before the event is done.
    pub fn is_done(&mut self, number: u64) -> bool {
        let mut done = Vec::new();
        for lane in self.lanes.values_mut() {
            while lane.pending.front().is_some_and(|(_, event)| event.is_done().unwrap_or(true)) {
                done.extend(lane.pending.pop_front().map(|(_, event)| event));
            }
        }
        self.spare.extend(done);
        self.find(number).is_none()
    }

    fn find(&self, number: u64) -> Option<&Event> {
        self.lanes.values().find_map(|lane| {
            let index = lane.pending.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            lane.pending.get(index).map(|(_, event)| event)
        })
    }

    /// Makes later work of `stream` wait; `None` if the stream does not exist.
    pub fn wait(&mut self, stream: StreamId, number: u64) -> Option<()> {
        let target = self.stream(stream)?;
        if let Some(event) = self.find(number) {
            let _ = target.wait(event);
        }
        Some(())
    }

    /// Makes this thread wait.
    pub fn wait_on_host(&mut self, number: u64) {
        if let Some(event) = self.find(number) {
            let _ = event.synchronize();
        }
    }

    /// Marks the current end of `stream` for [`Streams::between`]; `None` if the stream does not exist.
    pub fn mark(&mut self, stream: StreamId) -> Option<u64> {
        let target = self.stream(stream)?;
        let number = self.marked;
        self.marked += 1;
        if self.marks.len() < MARKS {
            let Ok(event) = Event::new(true) else { return Some(number) };
            self.marks.push(event);
        }
        if let Some(event) = self.timed(number) {
            let _ = event.record(target);
        }
        Some(number)
    }

    fn timed(&self, number: u64) -> Option<&Event> {
        let kept = number < self.marked && self.marked - number <= MARKS as u64;
        self.marks.get(usize::try_from(number % MARKS as u64).ok()?).filter(|_| kept)
    }

    /// Time between two marks, or zero if they are no longer kept.
    pub fn between(&self, from: u64, to: u64) -> Duration {
        let (Some(from), Some(to)) = (self.timed(from), self.timed(to)) else { return Duration::ZERO };
        // Marks of two streams may be reached in either order.
        let reached = from.synchronize().and_then(|()| to.synchronize());
        let elapsed = reached.and_then(|()| to.since(from)).unwrap_or_default();
        Duration::from_secs_f32(elapsed.max(0.0) / 1e3)
    }

    /// Waits for the compute stream and returns the driver's error, if any.
    pub fn check(&self) -> Result<(), DriverFailure> {
        self.stream(StreamId::DEFAULT).map_or(Ok(()), Stream::synchronize)
    }

    /// Waits for everything on all streams.
    pub fn synchronize(&mut self) {
        for lane in self.lanes.values() {
            let _ = lane.stream.synchronize();
        }
    }
}
