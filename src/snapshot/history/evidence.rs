//! What a history's entries and the segments at its end reveal about the time before the first entry.
//!
//! A block or segment that is freed, or still exists at the end, without having been allocated existed before the first entry.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::intervals::Intervals;
use crate::types::{Action, Segment, Snapshot, StackId, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockState, PoolId, PoolKind};

/// A block that was allocated before the first entry.
#[derive(Clone, Copy, Debug)]
pub struct EarlyBlock {
    pub address: Address,
    pub requested: Bytes,
    pub stream: StreamId,
    /// The block's size, if it still existed at the end.
    pub size: Option<Bytes>,
    /// Its free was requested before the first entry and completed later.
    pub pending: bool,
    /// Who allocated the block; known only of blocks that still exist at the end.
    pub stack: StackId,
}

/// A segment that existed before the first entry.
#[derive(Clone, Copy, Debug)]
pub struct EarlySegment {
    pub address: Address,
    pub size: Bytes,
    pub stream: StreamId,
    pub pool: PoolKind,
    pub pool_id: PoolId,
}

/// Pages of expandable segments that were mapped before the first entry.
#[derive(Clone, Copy, Debug)]
pub struct EarlyPages {
    pub start: u64,
    pub end: u64,
    pub stream: StreamId,
    /// The pages' pool; known only of pages that still exist at the end.
    pub pool: Option<PoolKind>,
    pub pool_id: PoolId,
}

/// What a device's history and its end reveal.
#[derive(Debug, Default)]
pub struct Evidence {
    pub blocks: Vec<EarlyBlock>,
    pub segments: Vec<EarlySegment>,
    pub pages: Vec<EarlyPages>,
    /// Sizes of blocks that still exist at the end, by the index of the entry that allocated them.
    pub sizes: HashMap<usize, Bytes>,
    /// Entries that map or unmap pages.
    pub page_entries: Vec<usize>,
    /// Private pools of segments that were allocated by an entry and still exist at the end.
    pub pool_ids: HashMap<Address, PoolId>,
    /// All address space that the entries ever take from the driver.
    pub taken: Intervals,
    /// How many entries or segments contradict others.
    pub contradictions: u64,
}

/// What lies at an address. Kept small, because there is one for every address of a history.
#[derive(Clone, Copy, Debug)]
enum AddressHolder {
    /// A block that this entry allocated.
    Within(Index),
    /// A block that this entry allocated and whose free was requested.
    PendingWithin(Index),
    /// The early block of this index, whose free was requested.
    Before(Index),
    /// A block whose free was completed. No early block can be here any more.
    Gone,
}

/// An index in a list. Four billion entries are more than 200 GiB.
#[derive(Clone, Copy, Debug)]
struct Index(u32);

impl Index {
    fn of(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    const fn get(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a segment's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressUse {
    Within,
    Gone,
}

impl Evidence {
    /// Reads a device's history and the segments at its end.
    pub fn of(snapshot: &Snapshot, device: usize) -> Self {
        let mut reader = EvidenceReader::default();
        let mut entries = snapshot.device_trace(device).iter().enumerate().peekable();
        while let Some((index, entry)) = entries.next() {
            let completes = |next: &TraceEntry| next.action == Action::FreeCompleted && next.address == entry.address;
            // Most blocks are reusable as soon as their free is requested, so one lookup serves both entries.
            if entry.action == Action::FreeRequested
                && entries.peek().is_some_and(|(_, next)| completes(next))
                && reader.free(entry.address)
            {
                entries.next();
                continue;
            }
            reader.entry(index, entry);
        }
        for segment in snapshot.device_segments(device) {
            reader.end(segment);
        }
        reader.found
    }
}

#[derive(Debug, Default)]
struct EvidenceReader {
    found: Evidence,
    // Looked up for every entry: the standard hasher would take a fifth of a replay. Seeds are random, because files
    // may be hostile.
    blocks: HashMap<Address, AddressHolder, RandomState>,
    segments: HashMap<Address, AddressUse, RandomState>,
    mapped: Intervals,
    /// Pages that existed before the first entry and were unmapped later.
    unmapped: Intervals,
}

impl EvidenceReader {
    fn entry(&mut self, index: usize, entry: &TraceEntry) {
        let (start, end) = (entry.address.0, entry.address.offset(entry.size).0);
        match entry.action {
            Action::Alloc => match self.blocks.insert(entry.address, AddressHolder::Within(Index::of(index))) {
                None | Some(AddressHolder::Gone) => {}
                Some(_) => self.found.contradictions += 1,
            },
            Action::FreeRequested => match self.blocks.get_mut(&entry.address) {
                Some(holder) => match *holder {
                    AddressHolder::Within(index) => *holder = AddressHolder::PendingWithin(index),
                    _ => self.found.contradictions += 1,
                },
                None => self.early(entry, false),
            },
            Action::FreeCompleted => match self.blocks.insert(entry.address, AddressHolder::Gone) {
                Some(AddressHolder::Gone) => self.found.contradictions += 1,
                Some(_) => {}
                None => {
                    self.early(entry, true);
                    self.blocks.insert(entry.address, AddressHolder::Gone);
                }
            },
            Action::SegmentAlloc => {
                self.found.taken.insert(start, end);
                if self.segments.insert(entry.address, AddressUse::Within) == Some(AddressUse::Within) {
                    self.found.contradictions += 1;
                }
            }
            Action::SegmentFree => match self.segments.insert(entry.address, AddressUse::Gone) {
                Some(AddressUse::Within) => {}
                Some(AddressUse::Gone) => self.found.contradictions += 1,
                None => self.found.segments.push(EarlySegment {
                    address: entry.address,
                    size: entry.size,
                    stream: entry.stream,
                    pool: pool_of_segment(entry.size),
                    pool_id: entry.pool.unwrap_or_default(),
                }),
            },
            Action::SegmentMap => {
                self.found.page_entries.push(index);
                self.found.taken.insert(start, end);
                self.mapped.insert(start, end);
            }
            Action::SegmentUnmap => {
                self.found.page_entries.push(index);
                for (from, to) in self.mapped.missing(start, end) {
                    self.pages(from, to, entry.stream, None, entry.pool.unwrap_or_default());
                }
                self.mapped.remove(start, end);
            }
            Action::Oom | Action::Snapshot | Action::Other(_) => {}
        }
    }

    /// Frees a block that an entry allocated. Returns false if there is no such block.
    fn free(&mut self, address: Address) -> bool {
        match self.blocks.get_mut(&address) {
            Some(holder @ AddressHolder::Within(_)) => {
                *holder = AddressHolder::Gone;
                true
            }
            _ => false,
        }
    }

    /// Notes a block that existed before the first entry, because it is freed without having been allocated.
    fn early(&mut self, entry: &TraceEntry, pending: bool) {
        self.blocks.insert(entry.address, AddressHolder::Before(Index::of(self.found.blocks.len())));
        self.found.blocks.push(EarlyBlock {
            address: entry.address,
            requested: entry.size,
            stream: entry.stream,
            size: None,
            pending,
            stack: StackId::EMPTY,
        });
    }

    /// Notes pages that existed before the first entry, because they are unmapped, or exist at the end, without having been mapped.
    fn pages(&mut self, start: u64, end: u64, stream: StreamId, pool: Option<PoolKind>, pool_id: PoolId) {
        for (start, end) in self.unmapped.missing(start, end) {
            self.found.pages.push(EarlyPages { start, end, stream, pool, pool_id });
            self.unmapped.insert(start, end);
        }
    }

    fn end(&mut self, segment: &Segment) {
        let Segment { address, total_size: size, stream, pool, pool_id, .. } = *segment;
        if segment.expandable {
            for (from, to) in self.mapped.missing(address.0, address.offset(size).0) {
                self.pages(from, to, stream, Some(pool), pool_id);
            }
        } else {
            match self.segments.get(&address) {
                Some(AddressUse::Within) => {}
                // The segments were recorded later than the history's end.
                Some(AddressUse::Gone) => self.found.contradictions += 1,
                None => self.found.segments.push(EarlySegment { address, size, stream, pool, pool_id }),
            }
        }
        if pool_id != PoolId::DEFAULT {
            self.found.pool_ids.insert(address, pool_id);
        }
        for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
            match self.blocks.get(&block.address) {
                Some(AddressHolder::Within(index) | AddressHolder::PendingWithin(index)) => {
                    self.found.sizes.insert(index.get(), block.size);
                }
                Some(AddressHolder::Before(early)) => {
                    if let Some(early) = self.found.blocks.get_mut(early.get()) {
                        early.size = Some(block.size);
                    }
                }
                Some(AddressHolder::Gone) => self.found.contradictions += 1,
                None => self.found.blocks.push(EarlyBlock {
                    address: block.address,
                    requested: block.requested.unwrap_or(block.size),
                    stream,
                    size: Some(block.size),
                    pending: block.state == BlockState::ActivePendingFree,
                    stack: block.stack,
                }),
            }
        }
    }
}

/// The pool of a segment, by its size alone: segments of the small pool all have one size, which no segment of the large pool has.
pub fn pool_of_segment(size: Bytes) -> PoolKind {
    if size == Bytes::mib(2) { PoolKind::Small } else { PoolKind::Large }
}
