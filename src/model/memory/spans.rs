//! Every reserved byte lies in one span, held or free. A span knows its neighbours.
//!
//! In effect these are boundary tags: a hash lookup finds a block, and splitting or merging touches only its
//! neighbours, however many blocks there are.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::event::{Category, NameId};

/// Index of a [`Span`] in [`Spans`].
pub(super) type SpanId = u32;
/// Index of a run of spans: a segment, or a contiguous mapped part of an expandable range.
pub(super) type RunId = u32;
/// No span: before the first and behind the last span of a run.
pub(super) const NONE: SpanId = SpanId::MAX;

/// What holds a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub requested: u64,
    pub category: Category,
    pub name: NameId,
    /// True if the program freed it and it waits for another stream.
    pub pending: bool,
}

/// When a block was allocated, and by which op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Birth {
    /// Events before the block's allocation.
    pub born: u64,
    pub op: NameId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Free; `slot` is its index in its size class.
    Free {
        slot: u32,
    },
    Held(Holder),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub start: u64,
    pub size: u64,
    pub previous: SpanId,
    pub next: SpanId,
    pub run: RunId,
    pub state: State,
}

impl Span {
    pub(super) const fn end(&self) -> u64 {
        self.start + self.size
    }

    pub(super) const fn is_free(&self) -> bool {
        matches!(self.state, State::Free { .. })
    }
}

/// All spans, found by their first byte; the free ones also by size.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    slab: Vec<Span>,
    /// For each span, data that only the allocation event touches.
    births: Vec<Birth>,
    unused: Vec<SpanId>,
    by_start: HashMap<u64, SpanId, BuildHasherDefault<AddressHasher>>,
    free: SizeClasses,
}

impl Spans {
    /// No spans yet, with room for this many.
    pub(super) fn with_capacity(spans: usize) -> Self {
        Self {
            slab: Vec::with_capacity(spans),
            births: Vec::with_capacity(spans),
            by_start: HashMap::with_capacity_and_hasher(spans, BuildHasherDefault::default()),
            ..Self::default()
        }
    }

    pub(super) fn get(&self, id: SpanId) -> &Span {
        &self.slab[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: SpanId) -> &mut Span {
        &mut self.slab[id as usize]
    }

    /// How the block in a held span was allocated.
    pub(super) fn birth(&self, id: SpanId) -> Birth {
        self.births[id as usize]
    }

    /// Notes how the block in a span was allocated.
    pub(super) fn bear(&mut self, id: SpanId, birth: Birth) {
        self.births[id as usize] = birth;
    }

    /// The span that starts at `address`.
    pub(super) fn at(&self, address: u64) -> Option<SpanId> {
        self.by_start.get(&address).copied()
    }

    /// The number of spans.
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Adds a span between `previous` and `next` and links it there.
    pub(super) fn insert(&mut self, span: Span) -> SpanId {
        let id = match self.unused.pop() {
            Some(id) => {
                self.slab[id as usize] = span;
                id
            }
            None => {
                self.slab.push(span);
                self.births.push(Birth::default());
                (self.slab.len() - 1) as SpanId
            }
        };
        self.link(span.previous, id);
        self.link(id, span.next);
        self.by_start.insert(span.start, id);
        id
    }

    /// Removes a span and links its neighbours. A free span must have left its size class.
    pub(super) fn remove(&mut self, id: SpanId) {
        let span = self.slab[id as usize];
        self.link(span.previous, span.next);
        self.by_start.remove(&span.start);
        self.unused.push(id);
    }

    /// Makes `left` and `right` neighbours; either may be [`NONE`].
    pub(super) fn link(&mut self, left: SpanId, right: SpanId) {
        if left != NONE {
            self.slab[left as usize].next = right;
        }
        if right != NONE {
            self.slab[right as usize].previous = left;
        }
    }

    /// Enters a span among the free ones.
    pub(super) fn enter_free(&mut self, id: SpanId) {
        let span = &mut self.slab[id as usize];
        let class = self.free.with_room_for(span.size);
        span.state = State::Free { slot: class.len() as u32 };
        class.push(id);
    }

    /// Removes a free span from its size class, before its size or its state changes.
    pub(super) fn leave_free(&mut self, id: SpanId) {
        let span = &self.slab[id as usize];
        let State::Free { slot } = span.state else { return };
        let class = &mut self.free.0[SizeClasses::of(span.size)];
        class.swap_remove(slot as usize);
        if let Some(&moved) = class.get(slot as usize) {
            self.slab[moved as usize].state = State::Free { slot };
        }
    }

    /// The size of the largest free span that `wanted` accepts.
    pub(super) fn largest_free(&self, wanted: impl Fn(&Span) -> bool) -> u64 {
        let largest_of = |class: &Vec<SpanId>| {
            class.iter().map(|id| self.get(*id)).filter(|span| wanted(span)).map(|span| span.size).max()
        };
        self.free.0.iter().rev().find_map(largest_of).unwrap_or(0)
    }

    /// The free span that covers `[start, end)`, searched among those large enough.
    pub(super) fn free_around(&self, start: u64, end: u64) -> Option<SpanId> {
        let covers = |id: &SpanId| {
            let span = self.get(*id);
            span.is_free() && span.start <= start && end <= span.end()
        };
        if let Some(id) = self.at(start) {
            return Some(id).filter(covers);
        }
        self.free.large_enough(end - start).iter().rev().flatten().copied().find(covers)
    }
}

/// Free spans by size, in eight classes for every power of two, so that the largest is in the topmost class. There are
/// as many classes as the largest span so far needed.
#[derive(Clone, Debug, Default)]
struct SizeClasses(Vec<Vec<SpanId>>);

impl SizeClasses {
    fn of(size: u64) -> usize {
        let exponent = 63 - (size | 1).leading_zeros();
        let eighth = if exponent < 3 { 0 } else { (size >> (exponent - 3)) & 7 };
        exponent as usize * 8 + eighth as usize
    }

    /// The class of a size, to enter a span of it.
    fn with_room_for(&mut self, size: u64) -> &mut Vec<SpanId> {
        let class = Self::of(size);
        if class >= self.0.len() {
            self.0.resize_with(class + 1, Vec::new);
        }
        &mut self.0[class]
    }

    /// The classes that may have spans of at least this size.
    fn large_enough(&self, size: u64) -> &[Vec<SpanId>] {
        self.0.get(Self::of(size)..).unwrap_or_default()
    }
}

/// Multiplies and folds: addresses are multiples of 512, so their low bits alone would collide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        let mixed = (self.0 ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
