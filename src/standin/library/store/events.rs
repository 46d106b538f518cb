//! The events of a process.

use std::collections::BTreeMap;
use std::time::Instant;

use super::capture::Capture;
use crate::clock::HostInstant;

const FIRST: u64 = 0x5300_0000_0000;

/// One event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// When it was recorded; `None` if it never was.
    pub at: Option<HostInstant>,
    /// When its stream finishes the work before it, by the devices' clock.
    pub done: u64,
    /// Set when a thread that launches nothing found the event not reached: the time of that query, and the host's time
    /// then.
    pub looked: Option<(Instant, u64)>,
    /// The capture of its stream when it was recorded.
    pub capture: Option<Capture>,
}

/// The program's events.
#[derive(Debug, Default)]
pub struct Events {
    made: BTreeMap<u64, Event>,
    count: u64,
}

impl Events {
    /// Makes an event.
    pub fn make(&mut self) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.made.insert(handle, Event::default());
        handle
    }

    /// The event with this handle.
    pub fn get(&self, handle: u64) -> Option<Event> {
        self.made.get(&handle).copied()
    }

    /// Replaces an event; false if it does not exist.
    pub fn set(&mut self, handle: u64, event: Event) -> bool {
        self.made.get_mut(&handle).map(|known| *known = event).is_some()
    }

    /// An event is not reached before this time.
    pub fn hold(&mut self, handle: u64, until: u64) {
        if let Some(event) = self.made.get_mut(&handle) {
            event.done = event.done.max(until);
        }
    }

    /// Removes an event; false if it does not exist.
    pub fn remove(&mut self, handle: u64) -> bool {
        self.made.remove(&handle).is_some()
    }
}
