//! The communicators of a process, and which of their calls its streams wait for.

use std::collections::{BTreeMap, BTreeSet};

use super::communicator::Communicator;
use super::pieces::Pieces;
use crate::store::shadow::Shadow;

const FIRST: u64 = 0x5900_0000_0000;
/// The most results that are kept for later questions.
const KEPT: usize = 4096;

/// Calls by communicator: the last of each, which stands for all before it.
pub type Point = BTreeMap<u64, u64>;

/// The communicators of a process.
#[derive(Debug, Default)]
pub struct Communicators {
    all: BTreeMap<u64, Communicator>,
    count: u64,
    /// What a stream waits for, by device and handle.
    streams: BTreeMap<(usize, u64), Point>,
    /// What an event waits for.
    events: BTreeMap<u64, Point>,
    /// Streams on which a large call lies behind which no event was recorded yet.
    large: BTreeSet<(usize, u64)>,
    /// Events behind large calls that were not asked about yet.
    unseen: BTreeSet<u64>,
    tickets: u64,
    /// Results that were asked for, once they are there.
    kept: BTreeMap<u64, Option<Pieces>>,
}

impl Communicators {
    /// Adds one; its handle.
    pub fn add(&mut self, communicator: Communicator) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.all.insert(handle, communicator);
        handle
    }

    /// The communicator of a handle.
    pub fn get(&mut self, handle: u64) -> Option<&mut Communicator> {
        self.all.get_mut(&handle)
    }

    /// Takes one away. Calls under way are over.
    pub fn remove(&mut self, handle: u64) -> Option<Communicator> {
        self.all.remove(&handle)
    }

    /// Whether NCCL took memory of a device already.
    pub fn has_taken(&self, device: usize) -> bool {
        self.all.values().any(|known| known.device == device && known.taken > 0)
    }

    /// All that is under way.
    pub fn all(&self) -> Point {
        self.all.iter().filter_map(|(handle, known)| Some((*handle, known.last()?))).collect()
    }

    /// A number for a result; it is kept where it will be asked for.
    pub fn ticket(&mut self, kept: bool) -> u64 {
        self.tickets += 1;
        if kept {
            if self.kept.len() >= KEPT {
                self.kept.pop_first();
            }
            self.kept.insert(self.tickets, None);
        }
        self.tickets
    }

    /// The result of a number, if it is there yet. What was given up is nothing known.
    pub fn result(&mut self, ticket: u64) -> Option<Pieces> {
        match self.kept.get(&ticket) {
            Some(None) => None,
            Some(Some(_)) => self.kept.remove(&ticket).flatten(),
            None => Some(Pieces::default()),
        }
    }

    /// Takes what came in on all communicators of a point.
    pub fn poll(&mut self, point: &Point, shadow: &mut Shadow) {
        for handle in point.keys() {
            if let Some(communicator) = self.all.get_mut(handle) {
                communicator.poll(shadow, &mut self.kept);
            }
        }
    }

    /// Whether everything up to a point is done.
    pub fn is_done(&self, point: &Point) -> bool {
        point.iter().all(|(handle, call)| self.all.get(handle).is_none_or(|known| known.is_done(*call)))
    }

    /// All that is under way on a device.
    pub fn of_device(&self, device: usize) -> Point {
        let of = self.all.iter().filter(|(_, known)| known.device == device);
        of.filter_map(|(handle, known)| Some((*handle, known.last()?))).collect()
    }

    /// What a stream waits for.
    pub fn of_stream(&self, device: usize, stream: u64) -> Point {
        self.streams.get(&(device, stream)).cloned().unwrap_or_default()
    }

    /// What an event waits for.
    pub fn of_event(&self, event: u64) -> Point {
        self.events.get(&event).cloned().unwrap_or_default()
    }

    /// A call was put on a stream; whether it was about much.
    pub fn put_on(&mut self, device: usize, stream: u64, handle: u64, call: u64, large: bool) {
        if large {
            self.large.insert((device, stream));
        }
        self.streams.entry((device, stream)).or_default().insert(handle, call);
    }

    /// An event is recorded on a stream.
    pub fn record(&mut self, event: u64, device: usize, stream: u64) {
        if self.large.remove(&(device, stream)) {
            self.unseen.insert(event);
        } else {
            self.unseen.remove(&event);
        }
        let mut point = self.of_stream(device, stream);
        point.retain(|handle, call| self.all.get(handle).is_some_and(|known| !known.is_done(*call)));
        if point.is_empty() {
            self.streams.remove(&(device, stream));
            self.events.remove(&event);
        } else {
            self.events.insert(event, point);
        }
    }

    /// A stream waits for an event.
    pub fn wait(&mut self, device: usize, stream: u64, event: u64) {
        let Some(point) = self.events.get(&event) else { return };
        let waits = self.streams.entry((device, stream)).or_default();
        for (handle, call) in point {
            let known = waits.entry(*handle).or_default();
            *known = (*known).max(*call);
        }
    }

    /// An event is no more.
    pub fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
        self.unseen.remove(&event);
    }

    /// An event was asked about, and the answer was that it is reached.
    pub fn saw(&mut self, event: u64) {
        self.unseen.remove(&event);
    }

    /// Whether there are events behind large calls that were not asked about yet.
    pub fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// A stream is no more.
    pub fn forget_stream(&mut self, stream: u64) {
        self.streams.retain(|(_, handle), _| *handle != stream);
    }
}
