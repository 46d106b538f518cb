//! Virtual time: the host runs ahead and enqueues, streams run behind it, synchronisation joins them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::units::StreamId;

/// Nanoseconds since the device was opened; a clock that reaches the end of them stands still.
pub(super) type Nanos = u64;

/// When the host and each stream are done with what they were given.
#[derive(Debug, Default)]
pub(super) struct Clock {
    host: Nanos,
    compute: Nanos,
    /// Other streams: a handful.
    side: BTreeMap<StreamId, Nanos>,
}

/// One clock for the device, its driver and its page-locked memory.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedClock(Rc<RefCell<Clock>>);

impl Clock {
    fn stream(&mut self, stream: StreamId) -> &mut Nanos {
        if stream == StreamId::DEFAULT { &mut self.compute } else { self.side.entry(stream).or_default() }
    }
}

impl SharedClock {
    /// The host works for `time`.
    pub fn host(&self, time: Nanos) {
        let clock = &mut *self.0.borrow_mut();
        clock.host = clock.host.saturating_add(time);
    }

    /// The host spends `enqueue` on giving `stream` work that takes `time`.
    pub fn enqueue(&self, stream: StreamId, enqueue: Nanos, time: Nanos) {
        let clock = &mut *self.0.borrow_mut();
        clock.host = clock.host.saturating_add(enqueue);
        let host = clock.host;
        let end = clock.stream(stream);
        *end = (*end).max(host).saturating_add(time);
    }

    /// The end of what `stream` has been given.
    pub fn end_of(&self, stream: StreamId) -> Nanos {
        let clock = &mut *self.0.borrow_mut();
        let host = clock.host;
        (*clock.stream(stream)).max(host)
    }

    /// Later work of `stream` begins at `time` or after it.
    pub fn hold(&self, stream: StreamId, time: Nanos) {
        let clock = &mut *self.0.borrow_mut();
        let end = clock.stream(stream);
        *end = (*end).max(time);
    }

    /// The host has seen `time` come.
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
        let clock = &mut *self.0.borrow_mut();
        let last = clock.side.values().copied().max().unwrap_or(0);
        clock.host = clock.host.max(clock.compute).max(last);
    }

    /// When all that was given to the compute stream is done: the time that a step has taken so far.
    pub fn now(&self) -> Nanos {
        let clock = self.0.borrow();
        clock.host.max(clock.compute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIDE: StreamId = StreamId(1);

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
        clock.enqueue(SIDE, 1, 50);
        clock.enqueue(StreamId::DEFAULT, 1, 30);
        assert_eq!(clock.now(), 32);
        clock.hold(StreamId::DEFAULT, clock.end_of(SIDE));
        clock.enqueue(StreamId::DEFAULT, 1, 30);
        assert_eq!(clock.now(), 51 + 30);
    }
}
