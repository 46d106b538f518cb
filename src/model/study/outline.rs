//! Selects the moments that represent a range: the fullest among each few memory events.

use super::{Located, Study};
use crate::{Event, EventKind, Ledger, MarkKind, MemoryModel, Phase};
use vramlab_allocator::units::Bytes;

/// The fullest moment of some consecutive memory events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutlineMoment {
    /// The number of the stream's events before the first of these events.
    pub first: u64,
    /// The number of the stream's events up to the fullest moment, where a cursor shows it.
    pub position: u64,
    /// Live bytes at that moment: allocated.
    pub allocated: Bytes,
    /// The accounts at that moment.
    pub ledger: Ledger,
    /// Lowest allocated bytes during these events.
    pub floor: Bytes,
    /// Highest reserved bytes during these events.
    pub reserved: Bytes,
    /// Most stranded bytes during these events: free bytes that `empty_cache` would not release.
    pub stranded: Bytes,
    /// Most segments during these events.
    pub segments: u32,
    /// The largest free piece in a segment that contains a block, after the first of these events.
    pub largest_hole: Bytes,
}

impl OutlineMoment {
    fn join(self, next: Self) -> Self {
        let fuller = if next.allocated > self.allocated { next } else { self };
        Self {
            first: self.first,
            floor: self.floor.min(next.floor),
            reserved: self.reserved.max(next.reserved),
            stranded: self.stranded.max(next.stranded),
            segments: self.segments.max(next.segments),
            largest_hole: self.largest_hole,
            ..fuller
        }
    }
}

/// The first reading of a range.
pub(super) struct Outline {
    memory: MemoryModel,
    moments: Vec<OutlineMoment>,
    events: u64,
    stride: u64,
    pub phases: Vec<Located<Option<Phase>>>,
    pub steps: Vec<Located<u64>>,
    pub marks: Vec<Located<MarkKind>>,
}

impl Outline {
    pub fn new(memory: MemoryModel) -> Self {
        let (phases, steps, marks) = (Vec::new(), Vec::new(), Vec::new());
        Self { memory, moments: Vec::new(), events: 0, stride: 1, phases, steps, marks }
    }

    pub fn moments(&self) -> &[OutlineMoment] {
        &self.moments
    }

    pub const fn events(&self) -> u64 {
        self.events
    }

    pub const fn stride(&self) -> u64 {
        self.stride
    }

    pub fn peak(&self) -> Option<OutlineMoment> {
        self.moments.iter().rev().max_by_key(|moment| moment.allocated).copied()
    }

    pub fn observe(&mut self, position: u64, event: &Event) {
        // An event that contradicts earlier ones changes nothing; the reader of the stream has reported it.
        if self.memory.apply(event).is_err() {
            return;
        }
        let place = |event: u64| (event, position);
        match &event.kind {
            kind if kind.changes_memory() => self.record(position),
            EventKind::PhaseBegin { phase } => {
                // Nothing lies between two phases that follow each other directly.
                self.phases.pop_if(|before| before.what.is_none() && before.event == self.events);
                put(&mut self.phases, place(self.events), Some(*phase));
            }
            EventKind::PhaseEnd { .. } => put(&mut self.phases, place(self.events), None),
            EventKind::StepBegin { step } => put(&mut self.steps, place(self.events), *step),
            EventKind::Oom(_) => put(&mut self.marks, place(self.events), MarkKind::OutOfMemory),
            EventKind::EmptyCache => {
                put(&mut self.marks, place(self.events), MarkKind::EmptyCache { released: Bytes::ZERO });
            }
            _ => {}
        }
    }

    fn record(&mut self, position: u64) {
        let allocated = self.memory.allocated();
        let moment = OutlineMoment {
            first: position,
            position: position + 1,
            allocated,
            ledger: self.memory.ledger(),
            floor: allocated,
            reserved: self.memory.reserved(),
            stranded: self.memory.stranded(),
            segments: u32::try_from(self.memory.segment_count()).unwrap_or(u32::MAX),
            largest_hole: Bytes::ZERO,
        };
        match self.moments.last_mut() {
            Some(last) if !self.events.is_multiple_of(self.stride) => *last = last.join(moment),
            _ => {
                if self.moments.len() == Study::MOMENTS {
                    self.moments = self.moments.chunks_exact(2).map(|pair| pair[0].join(pair[1])).collect();
                    self.stride *= 2;
                }
                // Searched once per moment, because it may visit every free piece.
                self.moments.push(OutlineMoment { largest_hole: self.memory.largest_hole(), ..moment });
            }
        }
        self.events += 1;
    }
}

fn put<T>(places: &mut Vec<Located<T>>, (event, position): (u64, u64), what: T) {
    if places.len() < Study::PLACES {
        places.push(Located { event, position, what });
    }
}
