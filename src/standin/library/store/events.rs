//! The events of a process.

use std::collections::BTreeMap;
use std::time::Instant;

use super::capture::Capture;
use crate::clock::HostInstant;

const FIRST: u64 = 0x5300_0000_0000;

/// One event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    /// When it was recorded; never yet where there is none.
    pub at: Option<HostInstant>,
    /// When its stream is done with what lay before it, by the devices' clock.
    pub done: u64,
    /// A thread that launches nothing found it not reached: when that was, and how far the host was.
    pub looked: Option<(Instant, u64)>,
    /// What its stream recorded then.
    pub capture: Option<Capture>,
}

/// The events that a program has.
#[derive(Debug, Default)]
pub struct Events {
    made: BTreeMap<u64, Event>,
    count: u64,
}

impl Events {
    /// Makes one.
    pub fn make(&mut self) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.made.insert(handle, Event::default());
        handle
    }

    /// The event of a handle.
    pub fn get(&self, handle: u64) -> Option<Event> {
        self.made.get(&handle).copied()
    }

    /// Puts another in its place; false where there is none.
    pub fn set(&mut self, handle: u64, event: Event) -> bool {
        self.made.get_mut(&handle).map(|known| *known = event).is_some()
    }

    /// An event is not reached before this.
    pub fn hold(&mut self, handle: u64, until: u64) {
        if let Some(event) = self.made.get_mut(&handle) {
            event.done = event.done.max(until);
        }
    }

    /// Takes one away; false where there is none.
    pub fn remove(&mut self, handle: u64) -> bool {
        self.made.remove(&handle).is_some()
    }
}
