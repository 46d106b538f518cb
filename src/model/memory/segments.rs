//! Runs of spans: cudaMalloc segments and contiguous mapped parts of expandable ranges.

use std::sync::Arc;

use super::error::Fault;
use super::model::MemoryModel;
use super::run::{HeldBlocks, MappedRun};
use super::spans::{NONE, RunId, Span, SpanId, State};
use crate::view::{BlockView, SegmentView};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// A segment, or a contiguous mapped run of an expandable range, of a [`MemoryModel`].
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    model: &'a MemoryModel,
    id: RunId,
}

impl<'a> Segment<'a> {
    pub(super) const fn new(model: &'a MemoryModel, id: RunId) -> Self {
        Self { model, id }
    }

    fn run(&self) -> &'a MappedRun {
        &self.model.runs[self.id as usize]
    }

    /// First byte.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(self.run().start)
    }

    /// Size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.run().size)
    }

    /// The pool that it serves.
    #[must_use]
    pub fn pool(&self) -> PoolKind {
        self.run().pool
    }

    /// The stream that it serves.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.run().stream
    }

    /// The number of allocated blocks.
    #[must_use]
    pub fn held(&self) -> usize {
        self.run().held as usize
    }

    /// Free bytes.
    #[must_use]
    pub fn free(&self) -> Bytes {
        Bytes(self.run().size - self.run().used)
    }

    /// True if it is part of an expandable range.
    #[must_use]
    pub fn is_expandable(&self) -> bool {
        self.run().is_expandable()
    }

    /// The first byte and the page size of its expandable range, if it is part of one.
    #[must_use]
    pub fn range(&self) -> Option<(Address, Bytes)> {
        self.run().pages.map(|(range, page)| (Address(range), Bytes(page)))
    }

    /// A version that changes whenever anything in the segment does, and that no other segment ever has.
    #[must_use]
    pub fn version(&self) -> (u64, u64) {
        (u64::from(self.id), self.run().changed)
    }

    /// Allocated blocks, in address order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockView> + use<'a> {
        let model = self.model;
        let start = self.run().start;
        let known = |id: SpanId| (id != NONE).then(|| (id, model.spans.get(id)));
        let spans = std::iter::successors(known(self.run().first), move |(_, span)| known(span.next));
        spans.filter_map(move |(id, span)| {
            let State::Held(holder) = span.state else { return None };
            let birth = model.spans.birth(id);
            Some(BlockView {
                offset: Bytes(span.start - start),
                size: Bytes(span.size),
                requested: Bytes(holder.requested),
                pending: holder.pending,
                category: holder.category,
                name: holder.name,
                op: birth.op,
                born: birth.born,
            })
        })
    }

    /// Sizes of the free pieces between blocks, in address order.
    pub fn holes(&self) -> impl Iterator<Item = Bytes> + use<'a> {
        let model = self.model;
        let known = |id: SpanId| (id != NONE).then(|| model.spans.get(id));
        let spans = std::iter::successors(known(self.run().first), move |span| known(span.next));
        spans.filter(|span| span.is_free()).map(|span| Bytes(span.size))
    }

    /// A copy for screens.
    #[must_use]
    pub fn view(&self) -> SegmentView {
        let run = self.run();
        let mut blocks = Vec::with_capacity(self.held());
        blocks.extend(self.blocks());
        SegmentView {
            address: Address(run.start),
            size: Bytes(run.size),
            pool: run.pool,
            stream: run.stream,
            expandable: run.is_expandable(),
            page: run.pages.map(|(_, page)| Bytes(page)),
            blocks: Arc::new(blocks),
        }
    }
}

impl MemoryModel {
    /// The number of segments and contiguous mapped runs.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.by_start.len()
    }

    /// Segments and contiguous mapped runs, in address order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        self.by_start.values().map(|run| Segment::new(self, *run))
    }

    pub(super) fn add_segment(&mut self, address: Address, size: Bytes, run: MappedRun) -> Result<(), Fault> {
        self.check_unused(address, size)?;
        self.check_segments()?;
        self.add_run(run);
        self.count_growth();
        Ok(())
    }

    pub(super) fn remove_segment(&mut self, address: Address, size: Bytes) -> Result<(), Fault> {
        let unknown = Fault::UnknownSegment { address, size };
        let id = *self.by_start.get(&address.0).ok_or(unknown)?;
        let run = &self.runs[id as usize];
        if run.size != size.0 || run.pages.is_some() {
            return Err(unknown);
        }
        if run.held > 0 {
            return Err(Fault::SegmentInUse { address, size });
        }
        let (span, is_small, served) = (run.first, run.pool == PoolKind::Small, run.stream);
        self.releases.release(self.reserved(), is_small, (size, served));
        self.leave_free(span);
        self.spans.remove(span);
        self.drop_run(id);
        self.traffic.segment_frees += 1;
        Ok(())
    }

    pub(super) fn map(&mut self, address: Address, size: Bytes, new: MappedRun) -> Result<(), Fault> {
        let whole = |(range, page): (u64, u64)| {
            page > 0 && range <= new.start && (new.start - range).is_multiple_of(page) && size.0.is_multiple_of(page)
        };
        if !new.pages.is_some_and(whole) {
            return Err(Fault::NotWholePages { address, size });
        }
        self.check_unused(address, size)?;
        let end = new.end();
        let before = self.by_start.range(..new.start).next_back().map(|(_, id)| *id);
        let before = before.filter(|id| {
            let run = &self.runs[*id as usize];
            run.end() == new.start && run.continues(&new)
        });
        let after = self.by_start.get(&end).copied().filter(|id| new.continues(&self.runs[*id as usize]));
        let id = match before {
            Some(id) => {
                self.grow_run(id, size.0);
                id
            }
            None => self.add_run(new),
        };
        if let Some(after) = after {
            self.join_runs(id, after);
        }
        self.count_growth();
        Ok(())
    }

    pub(super) fn unmap(&mut self, address: Address, size: Bytes) -> Result<(), Fault> {
        let (start, unknown) = (address.0, Fault::UnknownSegment { address, size });
        let end = start.checked_add(size.0).filter(|end| *end > start).ok_or(unknown)?;
        let Some(gap) = self.spans.free_around(start, end) else {
            let used = self.run_around(start).is_some_and(|id| end <= self.runs[id as usize].end());
            return Err(if used { Fault::SegmentInUse { address, size } } else { unknown });
        };
        let Span { start: gap_start, size: gap_size, previous, next, run: id, .. } = *self.spans.get(gap);
        let gap_end = gap_start + gap_size;
        let (range, page) = self.runs[id as usize].pages.ok_or(unknown)?;
        if !(start - range).is_multiple_of(page) || !size.0.is_multiple_of(page) {
            return Err(Fault::NotWholePages { address, size });
        }
        let served = self.runs[id as usize].stream;
        self.releases.release(self.reserved(), true, (size, served));
        self.leave_free(gap);
        let left = if gap_start < start {
            self.spans.get_mut(gap).size = start - gap_start;
            gap
        } else {
            self.spans.remove(gap);
            previous
        };
        let right = if end < gap_end {
            let state = State::Free { slot: 0 };
            let part = Span { start: end, size: gap_end - end, previous: NONE, next, run: id, state };
            let part = self.spans.insert(part);
            if next == NONE {
                self.runs[id as usize].last = part;
            }
            part
        } else {
            next
        };
        self.cut_run(id, left, right, start, end);
        if gap_start < start {
            self.enter_free(left);
        }
        if end < gap_end {
            self.enter_free(right);
        }
        self.traffic.segment_frees += 1;
        Ok(())
    }

    /// The run that contains `address`.
    fn run_around(&self, address: u64) -> Option<RunId> {
        let (_, id) = self.by_start.range(..=address).next_back()?;
        (address < self.runs[*id as usize].end()).then_some(*id)
    }

    /// The span that contains `address` but does not start there, searched from both ends of its run: streams that
    /// rebuild a state in address order find it at once.
    pub(super) fn span_around(&self, address: u64) -> Option<SpanId> {
        let run = &self.runs[self.run_around(address)? as usize];
        let (mut low, mut high) = (run.first, run.last);
        while low != NONE && high != NONE {
            let (first, last) = (self.spans.get(low), self.spans.get(high));
            if last.start <= address {
                return Some(high);
            }
            if address < first.end() {
                return Some(low);
            }
            (low, high) = (first.next, last.previous);
        }
        None
    }

    fn check_unused(&self, address: Address, size: Bytes) -> Result<(), Fault> {
        let impossible = Fault::Impossible { address, size };
        let end = address.0.checked_add(size.0).filter(|end| *end > address.0).ok_or(impossible)?;
        let last = self.by_start.range(..end).next_back();
        match last {
            Some((_, id)) if self.runs[*id as usize].end() > address.0 => Err(Fault::SegmentOverlap { address, size }),
            _ => Ok(()),
        }
    }

    fn count_growth(&mut self) {
        self.traffic.segment_allocs += 1;
        self.observe_peaks();
    }

    /// Adds a run that consists of one free span.
    fn add_run(&mut self, run: MappedRun) -> RunId {
        let (start, size) = (run.start, run.size);
        let id = self.place_run(run);
        let state = State::Free { slot: 0 };
        let span = self.spans.insert(Span { start, size, previous: NONE, next: NONE, run: id, state });
        let run = &mut self.runs[id as usize];
        (run.first, run.last) = (span, span);
        self.enter_free(span);
        id
    }

    fn place_run(&mut self, run: MappedRun) -> RunId {
        let run = MappedRun { changed: self.position, ..run };
        let start = run.start;
        let id = match self.unused_runs.pop() {
            Some(id) => {
                self.runs[id as usize] = run;
                id
            }
            None => {
                self.runs.push(run);
                (self.runs.len() - 1) as RunId
            }
        };
        self.by_start.insert(start, id);
        id
    }

    fn drop_run(&mut self, id: RunId) {
        self.by_start.remove(&self.runs[id as usize].start);
        self.unused_runs.push(id);
    }

    /// Adds `size` free bytes at the end of a run.
    fn grow_run(&mut self, id: RunId, size: u64) {
        let (end, last) = (self.runs[id as usize].end(), self.runs[id as usize].last);
        let last = if self.spans.get(last).is_free() {
            self.leave_free(last);
            self.spans.get_mut(last).size += size;
            last
        } else {
            let state = State::Free { slot: 0 };
            self.spans.insert(Span { start: end, size, previous: last, next: NONE, run: id, state })
        };
        let run = &mut self.runs[id as usize];
        run.size += size;
        run.last = last;
        run.changed = self.position;
        self.enter_free(last);
    }

    /// Joins two adjacent runs, and merges the free spans at their border.
    fn join_runs(&mut self, left: RunId, right: RunId) {
        let (mut first, second) = (self.runs[left as usize].clone(), self.runs[right as usize].clone());
        // The spans of the run with fewer spans are updated.
        let keep_left = first.held >= second.held;
        let (kept, lost) = if keep_left { (left, right) } else { (right, left) };
        self.tell_run(if keep_left { second.first } else { first.first }, kept);
        self.by_start.remove(&second.start);
        self.by_start.insert(first.start, kept);
        self.unused_runs.push(lost);
        self.spans.link(first.last, second.first);
        first.size += second.size;
        first.held += second.held;
        first.used += second.used;
        first.changed = self.position;
        let joint = first.last;
        first.last = second.last;
        self.runs[kept as usize] = first;
        if self.spans.get(second.first).is_free() && self.spans.get(joint).is_free() {
            self.leave_free(joint);
            self.leave_free(second.first);
            self.spans.get_mut(joint).size += self.spans.get(second.first).size;
            self.spans.remove(second.first);
            if second.last == second.first {
                self.runs[kept as usize].last = joint;
            }
            self.enter_free(joint);
        }
    }

    /// Removes `[start, end)` from a run. `left` is the last span before it, `right` the first behind it.
    fn cut_run(&mut self, id: RunId, left: SpanId, right: SpanId, start: u64, end: u64) {
        if left != NONE {
            self.spans.get_mut(left).next = NONE;
        }
        if right != NONE {
            self.spans.get_mut(right).previous = NONE;
        }
        let whole = self.runs[id as usize].clone();
        let before = MappedRun { size: start - whole.start, last: left, changed: self.position, ..whole.clone() };
        let after = MappedRun { start: end, size: whole.end() - end, first: right, changed: self.position, ..whole };
        match (left != NONE, right != NONE) {
            (false, false) => self.drop_run(id),
            (true, false) => self.runs[id as usize] = before,
            (false, true) => {
                self.by_start.remove(&before.start);
                self.by_start.insert(after.start, id);
                self.runs[id as usize] = after;
            }
            (true, true) => self.part_run(id, before, after),
        }
    }

    /// Splits a run in two. The side with fewer spans gets the new id; walking both sides at once finds it.
    fn part_run(&mut self, id: RunId, before: MappedRun, after: MappedRun) {
        let (mut low, mut high) = (before.last, after.first);
        let (mut below, mut above) = (HeldBlocks::default(), HeldBlocks::default());
        while low != NONE && high != NONE {
            below.count(self.spans.get(low));
            above.count(self.spans.get(high));
            (low, high) = (self.spans.get(low).previous, self.spans.get(high).next);
        }
        let all = HeldBlocks { blocks: before.held, bytes: before.used };
        if low == NONE {
            self.by_start.remove(&before.start);
            self.by_start.insert(after.start, id);
            self.runs[id as usize] = after.holding(all.less(below));
            let first = before.first;
            let new = self.place_run(before.holding(below));
            self.tell_run(first, new);
        } else {
            self.runs[id as usize] = before.holding(all.less(above));
            let first = after.first;
            let new = self.place_run(after.holding(above));
            self.tell_run(first, new);
        }
    }

    /// Updates the run of all spans from `first` on.
    fn tell_run(&mut self, first: SpanId, run: RunId) {
        let mut span = first;
        while span != NONE {
            let told = self.spans.get_mut(span);
            told.run = run;
            span = told.next;
        }
    }
}
