//! A [`MemoryModel`] in a small part of its bytes, for a state that is kept for long and seldom looked at.

use std::mem;

use super::model::MemoryModel;
use super::run::{HeldBlocks, MappedRun};
use super::spans::{Birth, Holder, NONE, Span, SpanId, Spans, State};
use crate::event::{Category, NameId};
use crate::numbers::{Numbers, PackedNumbers};

/// Memory at one event, from which a [`MemoryModel`] can go on. A block takes about twelve bytes.
#[derive(Clone, Debug)]
pub(crate) struct PackedMemory {
    /// Everything but spans. Runs are whole: there are few, and versions of segments contain their numbers.
    rest: MemoryModel,
    /// The spans of all runs in address order. A span begins where the one before it ends.
    spans: Box<[u8]>,
    /// How many there are.
    pieces: usize,
}

impl PackedMemory {
    /// Packs a model, which is unchanged afterwards.
    pub fn of(model: &mut MemoryModel) -> Self {
        let pieces = model.pieces();
        let spans = packed_spans(model);
        // What is packed is not copied as well.
        let own = mem::take(&mut model.spans);
        let rest = model.clone();
        model.spans = own;
        Self { rest, spans, pieces }
    }

    /// The model.
    pub fn unpack(&self) -> MemoryModel {
        let mut model = self.rest.clone();
        model.spans = Spans::with_capacity(self.pieces);
        let mut spans = SpanReader { numbers: PackedNumbers::of(&self.spans), born: 0 };
        for &id in model.by_start.values() {
            let run = &mut model.runs[id as usize];
            (run.first, run.last) = (NONE, NONE);
            let (mut at, mut held) = (run.start, HeldBlocks::default());
            while at < run.end() && !spans.numbers.is_empty() {
                let (size, state, birth) = spans.take();
                let span = Span { start: at, size, previous: run.last, next: NONE, run: id, state };
                held.count(&span);
                run.last = model.spans.insert(span);
                if at == run.start {
                    run.first = run.last;
                }
                match birth {
                    Some(birth) => model.spans.bear(run.last, birth),
                    None => model.spans.enter_free(run.last),
                }
                at += size;
            }
            (run.held, run.used) = (held.blocks, held.bytes);
        }
        model
    }

    /// The number of spans.
    pub const fn pieces(&self) -> usize {
        self.pieces
    }

    /// The bytes of runs and spans.
    pub fn weight(&self) -> usize {
        const ENTRY: usize = 2 * size_of::<u64>();
        self.spans.len() + self.rest.runs.len() * (size_of::<MappedRun>() + ENTRY)
    }
}

/// Bits of a span's first number. A free one has only its size besides.
mod bits {
    /// The category's index, for a block.
    pub const CATEGORY: u64 = 0xf;
    pub const HELD: u64 = 1 << 4;
    /// Freed, and waits for another stream.
    pub const PENDING: u64 = 1 << 5;
    /// Its rounding follows; otherwise there is none.
    pub const ROUNDED: u64 = 1 << 6;
}

fn packed_spans(model: &MemoryModel) -> Box<[u8]> {
    let mut numbers = Numbers::default();
    let mut born_before = 0;
    let known = |id: SpanId| (id != NONE).then(|| (id, model.spans.get(id)));
    for run in model.by_start.values().map(|&id| &model.runs[id as usize]) {
        for (id, span) in std::iter::successors(known(run.first), |(_, span)| known(span.next)) {
            let State::Held(Holder { requested, category, name, pending }) = span.state else {
                numbers.push(0);
                numbers.push(span.size);
                continue;
            };
            let rounding = span.size - requested;
            let bit = |set: bool, bit: u64| if set { bit } else { 0 };
            let first = category as u64 | bits::HELD | bit(pending, bits::PENDING) | bit(rounding > 0, bits::ROUNDED);
            numbers.push(first);
            numbers.push(span.size);
            if rounding > 0 {
                numbers.push(rounding);
            }
            let Birth { born, op } = model.spans.birth(id);
            numbers.push(u64::from(name.0));
            numbers.push(u64::from(op.0));
            numbers.push_step(born_before, born);
            born_before = born;
        }
    }
    numbers.pack()
}

struct SpanReader<'a> {
    numbers: PackedNumbers<'a>,
    /// When the block before was allocated.
    born: u64,
}

impl SpanReader<'_> {
    /// The size of the next span, its state, and how it was allocated if it is a block.
    fn take(&mut self) -> (u64, State, Option<Birth>) {
        let (first, size) = (self.numbers.take(), self.numbers.take());
        if first & bits::HELD == 0 {
            return (size, State::Free { slot: 0 }, None);
        }
        let rounding = if first & bits::ROUNDED > 0 { self.numbers.take() } else { 0 };
        let mut name = || NameId(u32::try_from(self.numbers.take()).unwrap_or_default());
        let (name, op) = (name(), name());
        self.born = self.numbers.take_step(self.born);
        let category = Category::ALL[(first & bits::CATEGORY) as usize % Category::ALL.len()];
        let holder = Holder { requested: size - rounding, category, name, pending: first & bits::PENDING > 0 };
        (size, State::Held(holder), Some(Birth { born: self.born, op }))
    }
}
