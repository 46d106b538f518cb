//! Virtual time: the host runs ahead and enqueues work, streams run behind it, and synchronisation joins them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use vramlab_allocator::units::StreamId;

/// Nanoseconds since the device was opened. A clock that reaches the largest number stops.
pub(super) type Nanos = u64;

/// When the host and each stream finish their work.
#[derive(Debug, Default)]
pub(super) struct Clock {
    host: Nanos,
    compute: Nanos,
    /// Further opened streams, of which there are few.
    side: BTreeMap<StreamId, Nanos>,
}

/// The clock shared by the device, its driver and its page-locked memory.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedClock(Rc<RefCell<Clock>>);

impl Clock {
    fn stream(&mut self, stream: StreamId) -> Option<&mut Nanos> {
        if stream == StreamId::DEFAULT { Some(&mut self.compute) } else { self.side.get_mut(&stream) }
    }
}

impl SharedClock {
    /// Opens another stream besides the compute stream.
    pub fn open(&self) -> StreamId {
        let side = &mut self.0.borrow_mut().side;
        let stream = StreamId(side.len() as u64 + 1);
        side.insert(stream, 0);
        stream
    }

    /// True if the stream exists.
    pub fn has(&self, stream: StreamId) -> bool {
        self.0.borrow_mut().stream(stream).is_some()
    }

    /// Advances the host by `time`.
    pub fn host(&self, time: Nanos) {
        let clock = &mut *self.0.borrow_mut();
        clock.host = clock.host.saturating_add(time);
    }

    /// The host spends `enqueue` to give `stream` work that takes `time`; `None` if the stream does not exist.
    pub fn enqueue(&self, stream: StreamId, enqueue: Nanos, time: Nanos) -> Option<()> {
        let clock = &mut *self.0.borrow_mut();
        let host = clock.host.saturating_add(enqueue);
        let end = clock.stream(stream)?;
        *end = (*end).max(host).saturating_add(time);
        clock.host = host;
        Some(())
    }

    /// The end of all work given to `stream`; `None` if it does not exist.
    pub fn end_of(&self, stream: StreamId) -> Option<Nanos> {
        let clock = &mut *self.0.borrow_mut();
        let host = clock.host;
        Some((*clock.stream(stream)?).max(host))
    }

    /// The end of all work given to any stream.
    pub fn end_of_all(&self) -> Nanos {
        let clock = self.0.borrow();
        let last = clock.side.values().copied().max().unwrap_or(0);
        clock.host.max(clock.compute).max(last)
    }

    /// Delays later work of `stream` until `time`; `None` if the stream does not exist.
    pub fn hold(&self, stream: StreamId, time: Nanos) -> Option<()> {
        let clock = &mut *self.0.borrow_mut();
        let end = clock.stream(stream)?;
        *end = (*end).max(time);
        Some(())
    }

    /// True if the host has reached `time`.
    pub fn has_passed(&self, time: Nanos) -> bool {
        self.0.borrow().host >= time
    }

    /// The host waits until `time`.
    pub fn wait_until(&self, time: Nanos) {
        let clock = &mut *self.0.borrow_mut();
        clock.host = clock.host.max(time);
    }

    /// The host waits for all streams.
    pub fn join(&self) {
        let end = self.end_of_all();
        self.0.borrow_mut().host = end;
    }

    /// The end of all work given to the compute stream: the time that a step has taken so far.
    pub fn now(&self) -> Nanos {
        let clock = self.0.borrow();
        clock.host.max(clock.compute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_kernels_wait_for_the_host_and_long_ones_make_it_wait() {
        let clock = SharedClock::default();
        for _ in 0..10 {
            clock.enqueue(StreamId::DEFAULT, 5, 2);
        }
        assert_eq!(clock.now(), 52);
        for _ in 0..10 {
            clock.enqueue(StreamId::DEFAULT, 5, 20);
        }
        // The first begins when the host has enqueued it; the host runs ahead of the others.
        assert_eq!(clock.now(), 55 + 200);
        assert!(!clock.has_passed(255));
        clock.join();
        assert!(clock.has_passed(255));
    }

    #[test]
    fn streams_overlap_until_one_waits_for_the_other() {
        let clock = SharedClock::default();
        let side = clock.open();
        clock.enqueue(side, 1, 50);
        clock.enqueue(StreamId::DEFAULT, 1, 30);
        assert_eq!(clock.now(), 32);
        clock.hold(StreamId::DEFAULT, clock.end_of(side).unwrap());
        clock.enqueue(StreamId::DEFAULT, 1, 30);
        assert_eq!(clock.now(), 51 + 30);
    }

    #[test]
    fn a_stream_that_was_not_opened_takes_no_work_and_no_time() {
        let clock = SharedClock::default();
        let (first, second) = (clock.open(), clock.open());
        assert_ne!(first, second);
        let unknown = StreamId(7);
        assert!(clock.enqueue(unknown, 5, 20).is_none() && clock.hold(unknown, 9).is_none());
        assert!(clock.end_of(unknown).is_none() && !clock.has(unknown) && clock.has(second));
        assert_eq!((clock.now(), clock.end_of_all()), (0, 0));
    }
}
