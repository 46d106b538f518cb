//! A recorded history and a position in it: the replayed allocator's driver, and the judge of its events.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use super::mismatch::Mismatch;
use super::observer::Observer;
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{DeviceMemory, EventToken, OutOfDeviceMemory, Seed, SegmentSource, TraceEvent, TraceSink};

/// Marks the streams that stand for "whatever this pending block waits for". No stream handle (a pointer) is that large.
const WAITING: u64 = 1 << 63;

/// The stream that stands for whatever the block at `address` waits for.
pub const fn waiting_stream(address: Address) -> StreamId {
    StreamId(WAITING | address.0)
}

/// A device's trace, read by both the allocator's driver and its sink.
#[derive(Debug)]
pub struct Tape<'a> {
    entries: &'a [TraceEntry],
    position: Cell<usize>,
    mismatch: RefCell<Option<Mismatch>>,
    segments: Cell<u64>,
    placements: Cell<u64>,
    /// True if the next completions happen only when they are waited for.
    waiting: Cell<bool>,
    /// True if entries of private pools are left out, including requests that found completed blocks.
    gaps: bool,
}

impl<'a> Tape<'a> {
    pub const fn new(entries: &'a [TraceEntry]) -> Self {
        Self::from(entries, 0)
    }

    /// A history that is played from `position` on.
    pub const fn from(entries: &'a [TraceEntry], position: usize) -> Self {
        Self {
            entries,
            position: Cell::new(position),
            mismatch: RefCell::new(None),
            segments: Cell::new(0),
            placements: Cell::new(0),
            waiting: Cell::new(false),
            gaps: false,
        }
    }

    /// Notes whether entries of private pools were left out of the history.
    pub const fn without_private_pools(mut self, has: bool) -> Self {
        self.gaps = has;
        self
    }

    /// True if entries of private pools were left out.
    pub const fn has_gaps(&self) -> bool {
        self.gaps
    }

    /// The same history at the same position, for a trial.
    pub const fn fork(&self) -> Self {
        Self::from(self.entries, self.position.get()).without_private_pools(self.gaps)
    }

    /// If `waiting`, blocks complete only when they are waited for; otherwise whenever the history completes them.
    pub fn wait_for_completions(&self, waiting: bool) {
        self.waiting.set(waiting);
    }

    /// How many entries have been explained.
    pub const fn position(&self) -> usize {
        self.position.get()
    }

    /// Segment events that were predicted.
    pub const fn segments(&self) -> u64 {
        self.segments.get()
    }

    /// Blocks that were placed where PyTorch placed them.
    pub const fn placements(&self) -> u64 {
        self.placements.get()
    }

    /// The next entry to explain. Entries that are not about a decision are skipped.
    #[inline]
    pub fn current(&self) -> Option<&'a TraceEntry> {
        loop {
            let entry = self.entries.get(self.position.get())?;
            match entry.action {
                Action::Snapshot | Action::Other(_) => self.position.set(self.position.get() + 1),
                _ => return Some(entry),
            }
        }
    }

    /// The entries from the position on.
    pub fn rest(&self) -> &'a [TraceEntry] {
        self.entries.get(self.position.get()..).unwrap_or_default()
    }

    /// True once an event did not match. Nothing is compared any more then.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.mismatch.borrow().is_some()
    }

    /// Records that the current entry is not what our allocator did.
    pub fn stop(&self, expected: String) {
        let found = self.current().map_or_else(|| "the trace ends".to_owned(), describe_entry);
        let mut mismatch = self.mismatch.borrow_mut();
        if mismatch.is_none() {
            *mismatch = Some(Mismatch { device: 0, entry: self.position.get(), expected, found, explanation: None });
        }
    }

    /// The mismatch, if there is one.
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.mismatch.borrow().clone()
    }

    /// Compares an event of our allocator with the current entry, and moves on if they agree.
    #[inline]
    fn judge(&self, event: &TraceEvent, observer: &mut impl Observer) {
        if self.stopped() {
            return;
        }
        match self.current() {
            Some(entry) if agrees(event, entry) => {
                let index = self.position.get();
                observer.event(index, entry, event);
                self.position.set(index + 1);
                match event {
                    TraceEvent::Alloc { .. } => self.placements.set(self.placements.get() + 1),
                    TraceEvent::SegmentAlloc { .. }
                    | TraceEvent::SegmentFree { .. }
                    | TraceEvent::SegmentMap { .. }
                    | TraceEvent::SegmentUnmap { .. } => self.segments.set(self.segments.get() + 1),
                    _ => {}
                }
            }
            _ => self.stop(describe_event(event)),
        }
    }
}

/// True if PyTorch recorded exactly what our allocator did.
#[inline]
fn agrees(event: &TraceEvent, entry: &TraceEntry) -> bool {
    let same = |action, address, size, stream| {
        entry.action == action && entry.address == address && entry.size == size && entry.stream == stream
    };
    match *event {
        TraceEvent::Alloc { address, requested, stream, .. } => same(Action::Alloc, address, requested, stream),
        TraceEvent::FreeRequested { address, requested, stream } => {
            same(Action::FreeRequested, address, requested, stream)
        }
        TraceEvent::FreeCompleted { address, requested, stream } => {
            same(Action::FreeCompleted, address, requested, stream)
        }
        TraceEvent::SegmentAlloc { address, size, stream, .. } => same(Action::SegmentAlloc, address, size, stream),
        TraceEvent::SegmentFree { address, size, stream } => same(Action::SegmentFree, address, size, stream),
        TraceEvent::SegmentMap { address, size, stream, .. } => same(Action::SegmentMap, address, size, stream),
        TraceEvent::SegmentUnmap { address, size, stream } => same(Action::SegmentUnmap, address, size, stream),
        TraceEvent::Oom { rounded, stream, .. } => {
            entry.action == Action::Oom && entry.size == rounded && entry.stream == stream
        }
    }
}

fn describe(action: Action, size: Bytes, address: Address, stream: StreamId) -> String {
    let on = if stream == StreamId::DEFAULT { String::new() } else { format!(" on stream {:#x}", stream.0) };
    match action {
        Action::Oom => format!("oom of {} bytes{on}", size.0),
        _ => format!("{} of {} bytes at {address}{on}", action.word(), size.0),
    }
}

/// An entry in words.
pub fn describe_entry(entry: &TraceEntry) -> String {
    describe(entry.action, entry.size, entry.address, entry.stream)
}

fn describe_event(event: &TraceEvent) -> String {
    match *event {
        TraceEvent::Alloc { address, requested, stream, .. } => describe(Action::Alloc, requested, address, stream),
        TraceEvent::FreeRequested { address, requested, stream } => {
            describe(Action::FreeRequested, requested, address, stream)
        }
        TraceEvent::FreeCompleted { address, requested, stream } => {
            describe(Action::FreeCompleted, requested, address, stream)
        }
        TraceEvent::SegmentAlloc { address, size, stream, .. } => describe(Action::SegmentAlloc, size, address, stream),
        TraceEvent::SegmentFree { address, size, stream } => describe(Action::SegmentFree, size, address, stream),
        TraceEvent::SegmentMap { address, size, stream, .. } => describe(Action::SegmentMap, size, address, stream),
        TraceEvent::SegmentUnmap { address, size, stream } => describe(Action::SegmentUnmap, size, address, stream),
        TraceEvent::Oom { rounded, stream, .. } => describe(Action::Oom, rounded, Address(0), stream),
    }
}

/// The judge, as the allocator's sink.
#[derive(Debug)]
pub struct Judge<'a, 'o, O> {
    pub tape: &'a Tape<'a>,
    pub observer: &'o mut O,
}

impl<O: Observer> TraceSink for Judge<'_, '_, O> {
    #[inline]
    fn trace(&mut self, event: &TraceEvent) {
        self.tape.judge(event, self.observer);
    }
}

/// The recorded driver. It has memory if the history's next entry is a segment of that size, and places it at the recorded address.
#[derive(Debug)]
pub struct Driver<'a> {
    tape: &'a Tape<'a>,
    total: Bytes,
    /// Memory held, as start and end. A damaged history may hand out the same memory twice.
    held: BTreeMap<Address, Address>,
    ranges: BTreeMap<Address, Address>,
}

impl<'a> Driver<'a> {
    /// A driver that has already given the memory that `seed` holds.
    pub fn new(tape: &'a Tape<'a>, seed: &Seed, total: Bytes) -> Self {
        let segments = seed.segments.iter().filter(|segment| !segment.expandable);
        let held = segments.map(|segment| (segment.address, segment.address.offset(segment.size))).collect();
        let ranges = seed.ranges.iter().map(|range| (range.base, range.base.offset(range.size))).collect();
        Self { tape, total, held, ranges }
    }

    /// A copy of the driver for another allocator and tape.
    pub fn fork<'t>(&self, tape: &'t Tape<'t>) -> Driver<'t> {
        Driver { tape, total: self.total, held: self.held.clone(), ranges: self.ranges.clone() }
    }

    /// The current entry, if it says that the driver gave memory.
    fn granted(&self, action: Action) -> Result<&TraceEntry, OutOfDeviceMemory> {
        self.tape.current().filter(|entry| entry.action == action && !self.tape.stopped()).ok_or(OutOfDeviceMemory)
    }

    /// The streams of the blocks that the history completes from the position on.
    fn completing(&self) -> impl Iterator<Item = StreamId> {
        let completes = |entry: &&TraceEntry| matches!(entry.action, Action::FreeCompleted);
        self.tape.rest().iter().take_while(completes).map(|entry| waiting_stream(entry.address))
    }

    fn refuse(&self, what: &str) -> OutOfDeviceMemory {
        self.tape.stop(format!("{what} that overlaps nothing"));
        OutOfDeviceMemory
    }
}

/// The end of a region of this size; `None` beyond all addresses.
fn end_of(address: Address, size: Bytes) -> Option<Address> {
    address.0.checked_add(size.0).map(Address)
}

fn overlaps(regions: &BTreeMap<Address, Address>, address: Address, end: Address) -> bool {
    regions.range(..end).next_back().is_some_and(|(_, end)| *end > address)
}

impl SegmentSource for Driver<'_> {
    fn malloc(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let TraceEntry { address, size: recorded, stream, .. } = *self.granted(Action::SegmentAlloc)?;
        if size != recorded {
            self.tape.stop(describe(Action::SegmentAlloc, size, address, stream));
            return Err(OutOfDeviceMemory);
        }
        let end = end_of(address, size)
            .filter(|end| !overlaps(&self.held, address, *end) && !overlaps(&self.ranges, address, *end));
        self.held.insert(address, end.ok_or_else(|| self.refuse("a new segment"))?);
        Ok(address)
    }

    fn free(&mut self, address: Address, _: Bytes) {
        self.held.remove(&address);
    }

    fn reserve_range(&mut self, size: Bytes) -> Result<Address, OutOfDeviceMemory> {
        let base = self.granted(Action::SegmentMap)?.address;
        let end =
            end_of(base, size).filter(|end| !overlaps(&self.held, base, *end) && !overlaps(&self.ranges, base, *end));
        self.ranges.insert(base, end.ok_or_else(|| self.refuse("a new range of pages"))?);
        Ok(base)
    }

    fn release_range(&mut self, address: Address, _: Bytes) {
        self.ranges.remove(&address);
    }

    fn map(&mut self, _: Address, _: Bytes, _: Bytes) -> Result<(), OutOfDeviceMemory> {
        self.granted(Action::SegmentMap).map(|_| ())
    }

    fn unmap(&mut self, _: Address, _: Bytes) {}

    fn memory(&self) -> DeviceMemory {
        let free = self.tape.current().and_then(TraceEntry::device_free).unwrap_or_default();
        DeviceMemory { free, total: self.total }
    }

    fn record_event(&mut self, stream: StreamId) -> EventToken {
        EventToken(stream.0 & !WAITING)
    }

    fn event_done(&mut self, event: EventToken) -> bool {
        let completes = |entry: &TraceEntry| entry.action == Action::FreeCompleted && entry.address == Address(event.0);
        !self.tape.waiting.get() && self.tape.current().is_some_and(completes)
    }

    /// The streams whose blocks the history completes next.
    fn streams_done(&mut self) -> Option<Vec<StreamId>> {
        Some(if self.tape.waiting.get() { Vec::new() } else { self.completing().collect() })
    }

    /// PyTorch searches streams in the order of a hash table; the history shows which order that was.
    fn order_streams(&mut self, streams: &mut [StreamId]) {
        let mut places: HashMap<StreamId, usize> = HashMap::new();
        for (at, stream) in self.completing().enumerate() {
            places.entry(stream).or_insert(at);
        }
        streams.sort_by_key(|stream| places.get(stream).copied().unwrap_or(usize::MAX));
    }
}
