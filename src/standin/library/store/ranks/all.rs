//! The communicators of a process, and the calls that its streams wait for.

use std::collections::{BTreeMap, BTreeSet};

use super::communicator::{Communicator, Start, Waits};
use super::pieces::Pieces;
use crate::store::clock::Clock;
use crate::store::events::Events;
use crate::store::shadow::Shadow;

const FIRST: u64 = 0x5900_0000_0000;
/// The most results that are kept until they are asked for.
const KEPT: usize = 4096;

/// How long after the end of a call the program's watchdog notices it: half of the 100 ms between two looks, in
/// nanoseconds.
const SEEN_AFTER: u64 = 50_000_000;

/// A point in the calls of each communicator: the number of a call, which includes all calls before it.
pub type Point = BTreeMap<u64, u64>;

/// The last call of each communicator.
fn last(waits: &Waits) -> Point {
    // In the order of their numbers, so that the last call remains.
    waits.keys().copied().collect()
}

/// The communicators of a process.
#[derive(Debug, Default)]
pub struct Communicators {
    all: BTreeMap<u64, Communicator>,
    count: u64,
    /// The calls that a stream waits for, by device and handle.
    streams: BTreeMap<(usize, u64), Waits>,
    /// The calls that an event waits for.
    events: BTreeMap<u64, Waits>,
    /// Streams whose last large call is not yet followed by a recorded event.
    large: BTreeSet<(usize, u64)>,
    /// Events after large calls that the program's watchdog has not noticed yet, and when it will.
    unseen: BTreeMap<u64, u64>,
    /// When it notices the first of them.
    due: Option<u64>,
    tickets: u64,
    /// Results that will be asked for, once they are there.
    kept: BTreeMap<u64, Option<Pieces>>,
}

impl Communicators {
    /// Adds a communicator, and returns its handle.
    pub fn add(&mut self, communicator: Communicator) -> u64 {
        self.count += 1;
        let handle = FIRST + self.count * 256;
        self.all.insert(handle, communicator);
        handle
    }

    /// The communicator with this handle.
    pub fn get(&mut self, handle: u64) -> Option<&mut Communicator> {
        self.all.get_mut(&handle)
    }

    /// Removes a communicator. Its pending calls end.
    pub fn remove(&mut self, handle: u64) -> Option<Communicator> {
        let is_other = |call: &(u64, u64), _: &mut i64| call.0 != handle;
        self.streams.values_mut().chain(self.events.values_mut()).for_each(|waits| waits.retain(is_other));
        self.streams.retain(|_, waits| !waits.is_empty());
        self.events.retain(|_, waits| !waits.is_empty());
        self.all.values_mut().for_each(|other| other.leave(handle));
        self.all.remove(&handle)
    }

    /// Whether NCCL has already taken memory of a device.
    pub fn has_taken(&self, device: usize) -> bool {
        self.all.values().any(|known| known.device == device && known.taken > 0)
    }

    /// The last pending call of every communicator.
    pub fn all(&self) -> Point {
        self.all.iter().filter_map(|(handle, known)| Some((*handle, known.last()?))).collect()
    }

    /// A ticket for a result. `kept` says that the result will be asked for.
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

    /// The result with this ticket, if it is there yet. The result of a call that was given up is empty.
    pub fn result(&mut self, ticket: u64) -> Option<Pieces> {
        match self.kept.get(&ticket) {
            Some(None) => None,
            Some(Some(_)) => self.kept.remove(&ticket).flatten(),
            None => Some(Pieces::default()),
        }
    }

    /// Reads what other ranks have sent on all communicators. When a call ends, whatever waits for it learns the time.
    pub fn poll(&mut self, shadow: &mut Shadow, clock: &mut Clock, events: &mut Events) {
        loop {
            let mut done = Vec::new();
            for (handle, communicator) in &mut self.all {
                let calls = communicator.poll(shadow, &mut self.kept);
                done.extend(calls.into_iter().map(|(call, time)| ((*handle, call), time)));
            }
            if done.is_empty() {
                return;
            }
            for (call, time) in done {
                self.settle(call, time.unwrap_or(0), clock, events);
            }
        }
    }

    fn settle(&mut self, call: (u64, u64), time: u64, clock: &mut Clock, events: &mut Events) {
        for ((device, stream), waits) in &mut self.streams {
            if let Some(after) = waits.remove(&call) {
                let work = clock.work_of(*device, *stream) as i64;
                clock.hold(*device, *stream, time.saturating_add_signed(after + work));
            }
        }
        for (event, waits) in &mut self.events {
            if let Some(after) = waits.remove(&call) {
                let until = time.saturating_add_signed(after);
                events.hold(*event, until);
                if let Some(due) = self.unseen.get_mut(event) {
                    *due = (*due).max(until + SEEN_AFTER);
                }
            }
        }
        self.streams.retain(|_, waits| !waits.is_empty());
        self.events.retain(|_, waits| !waits.is_empty());
        self.due = self.unseen.values().min().copied();
        for communicator in self.all.values_mut() {
            communicator.settle(call, time);
        }
    }

    /// Whether everything up to a point is done.
    pub fn is_done(&self, point: &Point) -> bool {
        point.iter().all(|(handle, call)| self.all.get(handle).is_none_or(|known| known.is_done(*call)))
    }

    /// The last pending call of every communicator of a device.
    pub fn of_device(&self, device: usize) -> Point {
        let of = self.all.iter().filter(|(_, known)| known.device == device);
        of.filter_map(|(handle, known)| Some((*handle, known.last()?))).collect()
    }

    /// The calls that a stream waits for.
    pub fn of_stream(&self, device: usize, stream: u64) -> Point {
        self.streams.get(&(device, stream)).map(last).unwrap_or_default()
    }

    /// The calls that an event waits for.
    pub fn of_event(&self, event: u64) -> Point {
        self.events.get(&event).map(last).unwrap_or_default()
    }

    /// Notes that a call was put at the end of a stream, with its time; `large` says that it moves many bytes.
    pub fn put_on(&mut self, queue: (usize, u64), (handle, call): (u64, u64), takes: u64, large: bool, clock: &Clock) {
        if large {
            self.large.insert(queue);
        }
        let (end, work) = (clock.end(queue.0, queue.1), clock.work_of(queue.0, queue.1));
        let waits = self.streams.entry(queue).or_default();
        let before = work.saturating_sub(takes) as i64;
        let start = Start::new(
            end.saturating_sub(takes),
            waits.iter().map(|(call, after)| (*call, after + before)).collect(),
            takes,
        );
        waits.insert((handle, call), -(work as i64));
        if let Some(communicator) = self.all.get_mut(&handle) {
            communicator.begins(start);
        }
    }

    /// Notes that an event was recorded on a stream.
    pub fn record(&mut self, event: u64, device: usize, stream: u64, clock: &Clock) {
        self.saw(event);
        if self.large.remove(&(device, stream)) {
            let due = clock.end(device, stream) + SEEN_AFTER;
            self.unseen.insert(event, due);
            self.due = Some(self.due.map_or(due, |first| first.min(due)));
        }
        let work = clock.work_of(device, stream) as i64;
        match self.streams.get(&(device, stream)) {
            Some(waits) => {
                self.events.insert(event, waits.iter().map(|(call, after)| (*call, after + work)).collect());
            }
            None => drop(self.events.remove(&event)),
        }
    }

    /// Notes that a stream waits for an event.
    pub fn wait(&mut self, device: usize, stream: u64, event: u64, clock: &Clock) {
        let Some(of_event) = self.events.get(&event) else { return };
        let work = clock.work_of(device, stream) as i64;
        let waits = self.streams.entry((device, stream)).or_default();
        for (call, after) in of_event {
            let known = waits.entry(*call).or_insert(i64::MIN);
            *known = (*known).max(after - work);
        }
    }

    /// Forgets a destroyed event.
    pub fn forget_event(&mut self, event: u64) {
        self.events.remove(&event);
        self.saw(event);
    }

    /// Notes that the watchdog was told that an event is reached.
    pub fn saw(&mut self, event: u64) {
        if self.unseen.remove(&event).is_some() {
            self.due = self.unseen.values().min().copied();
        }
    }

    /// Nothing is pending any more.
    pub fn all_are_seen(&mut self) {
        self.unseen.clear();
        self.due = None;
    }

    /// When the program's watchdog notices the end of the call before an event, if that call is large.
    pub fn is_seen_at(&self, event: u64) -> Option<u64> {
        self.unseen.get(&event).copied()
    }

    /// Whether by now there is a call that the watchdog would have noticed, but has not asked about.
    pub fn is_one_due(&self, now: u64) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Forgets a destroyed stream.
    pub fn forget_stream(&mut self, stream: u64) {
        self.streams.retain(|(_, handle), _| *handle != stream);
    }
}
