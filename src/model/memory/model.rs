//! The reducer of memory events: the accounts, and blocks inside segments.

use std::collections::BTreeMap;

use super::error::{Fault, ModelError};
use super::run::MappedRun;
use super::spans::{Birth, Holder, NONE, RunId, Span, SpanId, Spans, State};
use crate::bounds::{MOST_PIECES, most_segments};
use crate::event::{Category, Event, EventKind, NameId};
use crate::ledger::Ledger;
use crate::releases::{Releases, SegmentGrowth};
use crate::run::About;
use crate::view::{HostMemory, PeaksSinceReset, Traffic};
use vramlab_allocator::Settings;
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// Memory at one event: segments with their blocks, and the account of every reserved byte.
///
/// Free space lies between blocks, because the allocator merges free neighbours. The cost of an event does not depend
/// on the number of blocks; a clone costs about a hundred bytes per block.
#[derive(Clone, Debug, Default)]
pub struct MemoryModel {
    pub(super) spans: Spans,
    pub(super) runs: Vec<MappedRun>,
    pub(super) unused_runs: Vec<RunId>,
    /// Runs by their first byte.
    pub(super) by_start: BTreeMap<u64, RunId>,
    pub(super) accounts: Accounts,
    by_category: [u64; 9],
    peak_allocated: u64,
    /// Bytes asked for in live and pending blocks, and the most so far.
    requested: u64,
    peak_requested: u64,
    peak_reserved: u64,
    /// Peaks since the last reset; `None` if there was none.
    since_reset: Option<PeaksSinceReset>,
    /// The allocator's settings, and its last releases: they show which request was retried.
    settings: Settings,
    pub(super) releases: Releases,
    pub(super) limit: Option<Bytes>,
    host: HostMemory,
    pub(super) traffic: Traffic,
    /// Size of the block that was freed last.
    last_freed: Bytes,
    /// The op in progress.
    op: NameId,
    /// True for a recorded history of PyTorch.
    of_history: bool,
    pub(super) position: u64,
}

/// The accounts that every event keeps up to date, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Accounts {
    pub live: u64,
    pub rounding: u64,
    pub pending: u64,
    pub releasable: u64,
    pub stranded: u64,
    /// The stranded bytes in segments that are not expandable.
    pub inactive_split: u64,
}

impl MemoryModel {
    /// A model to which nothing has happened yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A model for a run that begins, with the default settings of its version of PyTorch.
    #[must_use]
    pub(crate) fn beginning(about: &About) -> Self {
        Self { settings: Settings::of(about.torch), of_history: about.history.is_some(), ..Self::default() }
    }

    /// Applies the next event. Events that are not about memory are only counted.
    ///
    /// # Errors
    /// [`ModelError`] if the event contradicts earlier ones; it is counted and otherwise ignored.
    pub fn apply(&mut self, event: &Event) -> Result<(), ModelError> {
        let position = self.position;
        self.position += 1;
        self.change(&event.kind).map_err(|fault| ModelError { position, fault })
    }

    /// Skips events of other devices: the next event has this index.
    pub(crate) const fn skip_to(&mut self, position: u64) {
        self.position = position;
    }

    fn change(&mut self, kind: &EventKind) -> Result<(), Fault> {
        match *kind {
            EventKind::Alloc { address, size, requested, category, name, .. } => {
                self.releases.end();
                self.alloc(address, size, Holder { requested: requested.0, category, name, pending: false })
            }
            EventKind::FreeRequested { address } => {
                self.releases.end();
                self.free_requested(address)
            }
            EventKind::FreeCompleted { address } => {
                self.releases.waited();
                self.free_completed(address)
            }
            EventKind::Relabel { address, category, name } => self.relabel(address, category, name),
            EventKind::SegmentAlloc { address, size, stream, pool } => {
                self.settle_releases(size, stream);
                self.add_segment(address, size, MappedRun::segment(address.0, size.0, pool, stream))
            }
            EventKind::SegmentFree { address, size } => self.remove_segment(address, size),
            EventKind::SegmentMap { address, size, stream, pool, range, page } => {
                self.settle_releases(size, stream);
                self.map(address, size, MappedRun::pages(address.0, size.0, pool, stream, range.0, page.0))
            }
            EventKind::SegmentUnmap { address, size } => self.unmap(address, size),
            EventKind::OpBegin { name } => {
                self.op = name;
                Ok(())
            }
            EventKind::OpEnd => {
                self.op = NameId::NONE;
                Ok(())
            }
            EventKind::EmptyCache => {
                self.releases = Releases::Call;
                Ok(())
            }
            EventKind::ResetPeaks => {
                let (allocated, reserved) = (self.allocated(), self.reserved());
                self.since_reset = Some(PeaksSinceReset { allocated, reserved, position: self.position - 1 });
                Ok(())
            }
            EventKind::Oom { .. } => {
                self.traffic.ooms += 1;
                // The request failed once more after everything had been released.
                self.traffic.retries += 1;
                self.releases = Releases::Nobodys;
                Ok(())
            }
            EventKind::Settings(ref settings) => {
                if let Some(conf) = settings.get("alloc-conf") {
                    self.set_conf(if &*conf.value == "default" { "" } else { &conf.value });
                }
                Ok(())
            }
            EventKind::Limit { limit } => {
                self.limit = limit;
                Ok(())
            }
            EventKind::Begin(ref about) => {
                self.of_history = about.history.is_some();
                Ok(())
            }
            EventKind::HostMemory { allocated, reserved } => {
                self.host = HostMemory { allocated, reserved };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The account of every reserved byte.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger { largest_free: Bytes(self.spans.largest_free(|_| true)), ..self.accounts() }
    }

    /// The five accounts without the largest free block, which has to be searched for among blocks of its size. A query
    /// at many consecutive events must not visit all of them.
    #[must_use]
    pub const fn accounts(&self) -> Ledger {
        Ledger {
            live: Bytes(self.accounts.live),
            rounding: Bytes(self.accounts.rounding),
            pending: Bytes(self.accounts.pending),
            releasable: Bytes(self.accounts.releasable),
            stranded: Bytes(self.accounts.stranded),
            largest_free: Bytes::ZERO,
        }
    }

    /// Bytes of live blocks: PyTorch's `memory_allocated`.
    #[must_use]
    pub const fn allocated(&self) -> Bytes {
        Bytes(self.accounts.live + self.accounts.rounding)
    }

    /// Bytes held from the driver: PyTorch's `memory_reserved`.
    #[must_use]
    pub const fn reserved(&self) -> Bytes {
        Bytes(self.allocated().0 + self.accounts.pending + self.accounts.releasable + self.accounts.stranded)
    }

    /// Free bytes that `empty_cache` could not return.
    #[must_use]
    pub const fn stranded(&self) -> Bytes {
        Bytes(self.accounts.stranded)
    }

    /// Free bytes that `empty_cache` would return.
    #[must_use]
    pub const fn releasable(&self) -> Bytes {
        Bytes(self.accounts.releasable)
    }

    /// Freed bytes that another stream may still use.
    #[must_use]
    pub const fn pending(&self) -> Bytes {
        Bytes(self.accounts.pending)
    }

    /// The largest free block inside a segment that contains a block; expandable ranges are not included.
    #[must_use]
    pub fn largest_hole(&self) -> Bytes {
        Bytes(self.spans.largest_free(|span| {
            let run = &self.runs[span.run as usize];
            run.held > 0 && !run.is_expandable()
        }))
    }

    /// Highest allocated bytes so far.
    #[must_use]
    pub const fn peak_allocated(&self) -> Bytes {
        Bytes(self.peak_allocated)
    }

    /// The most bytes asked for at once: PyTorch's `requested_bytes.all.peak`. A block counts until other streams have
    /// finished with it.
    #[must_use]
    pub const fn peak_requested(&self) -> Bytes {
        Bytes(self.peak_requested)
    }

    /// Free bytes of segments that contain a block: PyTorch's `inactive_split_bytes.all.current`, which does not
    /// include expandable ranges.
    #[must_use]
    pub const fn inactive_split(&self) -> Bytes {
        Bytes(self.accounts.inactive_split)
    }

    /// Highest reserved bytes so far.
    #[must_use]
    pub const fn peak_reserved(&self) -> Bytes {
        Bytes(self.peak_reserved)
    }

    /// Bytes of live blocks by category, in the order of [`Category::ALL`].
    #[must_use]
    pub fn by_category(&self) -> [Bytes; 9] {
        self.by_category.map(Bytes)
    }

    /// Bytes of live blocks of one category.
    #[must_use]
    pub const fn of_category(&self, category: Category) -> Bytes {
        Bytes(self.by_category[category as usize])
    }

    /// Peaks since the last reset; `None` if there was none.
    #[must_use]
    pub const fn since_reset(&self) -> Option<PeaksSinceReset> {
        self.since_reset
    }

    /// The most that may be reserved.
    #[must_use]
    pub const fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// Page-locked host memory.
    #[must_use]
    pub const fn host(&self) -> HostMemory {
        self.host
    }

    /// Counters since the start.
    #[must_use]
    pub const fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Size of the block that was freed last.
    pub(crate) const fn last_freed(&self) -> Bytes {
        self.last_freed
    }

    /// The number of events applied so far, including ignored ones.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The number of pieces, held or free. The cost of a clone is proportional to it.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.spans.len()
    }

    fn alloc(&mut self, address: Address, size: Bytes, holder: Holder) -> Result<(), Fault> {
        let (start, size) = (address.0, size.0);
        let impossible = Fault::Impossible { address, size: Bytes(size) };
        if size == 0 || holder.requested > size {
            return Err(impossible);
        }
        self.check_pieces()?;
        let end = start.checked_add(size).ok_or(impossible)?;
        let gap = match self.spans.at(start) {
            Some(gap) => gap,
            None => self.span_around(start).ok_or(Fault::OutsideSegments { address, size: Bytes(size) })?,
        };
        let Span { start: gap_start, size: gap_size, next, run, .. } = *self.spans.get(gap);
        let gap_end = gap_start + gap_size;
        if !self.spans.get(gap).is_free() || end > gap_end {
            let inside = end <= self.runs[run as usize].end();
            let fault = if inside {
                Fault::BlockOverlap { address, size: Bytes(size) }
            } else {
                Fault::OutsideSegments { address, size: Bytes(size) }
            };
            return Err(fault);
        }
        self.leave_free(gap);
        let block = if start == gap_start {
            let span = self.spans.get_mut(gap);
            span.size = size;
            span.state = State::Held(holder);
            gap
        } else {
            self.spans.get_mut(gap).size = start - gap_start;
            self.enter_free(gap);
            self.spans.insert(Span { start, size, previous: gap, next, run, state: State::Held(holder) })
        };
        self.spans.bear(block, Birth { born: self.position - 1, op: self.op });
        let mut last = block;
        if end < gap_end {
            let state = State::Free { slot: 0 };
            last = self.spans.insert(Span { start: end, size: gap_end - end, previous: block, next, run, state });
            self.enter_free(last);
        }
        let run = &mut self.runs[run as usize];
        if next == NONE {
            run.last = last;
        }
        run.held += 1;
        run.used += size;
        run.changed = self.position;
        self.accounts.live += holder.requested;
        self.requested += holder.requested;
        self.peak_requested = self.peak_requested.max(self.requested);
        self.accounts.rounding += size - holder.requested;
        self.by_category[holder.category as usize] += size;
        self.observe_peaks();
        self.traffic.allocs += 1;
        Ok(())
    }

    /// Updates the peaks of allocated and reserved.
    pub(super) fn observe_peaks(&mut self) {
        let (allocated, reserved) = (self.allocated(), self.reserved());
        self.peak_allocated = self.peak_allocated.max(allocated.0);
        self.peak_reserved = self.peak_reserved.max(reserved.0);
        if let Some(since) = &mut self.since_reset {
            since.allocated = since.allocated.max(allocated);
            since.reserved = since.reserved.max(reserved);
        }
    }

    /// Applies a configuration string. One that PyTorch would refuse changes nothing.
    fn set_conf(&mut self, conf: &str) {
        if conf != self.settings.text()
            && let Ok(settings) = Settings::parse_for(self.settings.torch(), conf)
        {
            self.settings = settings;
        }
    }

    /// Decides, now that at least `size` bytes more are taken, whether this was a request's second try.
    fn settle_releases(&mut self, size: Bytes, stream: StreamId) {
        let mut releases = std::mem::take(&mut self.releases);
        let (reserved, settings, limit) = (self.reserved(), &self.settings, self.limit);
        let can_release = self.accounts.releasable > 0;
        if releases.settle(SegmentGrowth { size, stream, reserved, settings, limit }, || can_release) {
            self.traffic.retries += 1;
        }
    }

    /// Checks the bound for segments: a hostile stream could otherwise ask for any amount of the follower's memory.
    pub(super) fn check_segments(&self) -> Result<(), Fault> {
        let most = most_segments(self.of_history);
        if self.by_start.len() < most { self.check_pieces() } else { Err(Fault::TooManySegments { most }) }
    }

    /// Checks the bound for pieces.
    pub(super) fn check_pieces(&self) -> Result<(), Fault> {
        if self.spans.len() < MOST_PIECES { Ok(()) } else { Err(Fault::TooManyPieces { most: MOST_PIECES }) }
    }

    fn free_requested(&mut self, address: Address) -> Result<(), Fault> {
        let (id, holder) = self.held(address)?;
        if holder.pending {
            return Err(Fault::FreedTwice { address });
        }
        let span = self.spans.get_mut(id);
        span.state = State::Held(Holder { pending: true, ..holder });
        self.accounts.live -= holder.requested;
        self.accounts.rounding -= span.size - holder.requested;
        self.accounts.pending += span.size;
        self.by_category[holder.category as usize] -= span.size;
        self.last_freed = Bytes(span.size);
        self.runs[span.run as usize].changed = self.position;
        Ok(())
    }

    fn free_completed(&mut self, address: Address) -> Result<(), Fault> {
        let (id, holder) = self.held(address)?;
        if !holder.pending {
            return Err(Fault::FreeNotRequested { address });
        }
        let Span { size, previous, next, run, .. } = *self.spans.get(id);
        self.accounts.pending -= size;
        self.requested -= holder.requested;
        let mut freed = id;
        let mut freed_size = size;
        if next != NONE && self.spans.get(next).is_free() {
            freed_size += self.spans.get(next).size;
            self.leave_free(next);
            self.spans.remove(next);
        }
        if previous != NONE && self.spans.get(previous).is_free() {
            freed_size += self.spans.get(previous).size;
            self.leave_free(previous);
            self.spans.remove(id);
            freed = previous;
        }
        let span = self.spans.get_mut(freed);
        span.size = freed_size;
        let last = span.next == NONE;
        self.enter_free(freed);
        let run = &mut self.runs[run as usize];
        if last {
            run.last = freed;
        }
        run.held -= 1;
        run.used -= size;
        run.changed = self.position;
        Ok(())
    }

    fn relabel(&mut self, address: Address, category: Category, name: NameId) -> Result<(), Fault> {
        let (id, holder) = self.held(address)?;
        let span = self.spans.get_mut(id);
        span.state = State::Held(Holder { category, name, ..holder });
        if !holder.pending {
            self.by_category[holder.category as usize] -= span.size;
            self.by_category[category as usize] += span.size;
        }
        self.runs[span.run as usize].changed = self.position;
        Ok(())
    }

    /// The block that starts at `address`.
    pub(super) fn held(&self, address: Address) -> Result<(SpanId, Holder), Fault> {
        let id = self.spans.at(address.0).ok_or(Fault::UnknownBlock { address })?;
        match self.spans.get(id).state {
            State::Held(holder) => Ok((id, holder)),
            State::Free { .. } => Err(Fault::UnknownBlock { address }),
        }
    }

    /// Counts a span as free and enters it among the free ones.
    pub(super) fn enter_free(&mut self, id: SpanId) {
        let span = self.spans.get(id);
        let run = &self.runs[span.run as usize];
        let releasable = run.releasable(span.start, span.size);
        self.accounts.releasable += releasable;
        self.accounts.stranded += span.size - releasable;
        if !run.is_expandable() {
            self.accounts.inactive_split += span.size - releasable;
        }
        self.spans.enter_free(id);
    }

    /// Reverses [`Self::enter_free`], before the span or its run change.
    pub(super) fn leave_free(&mut self, id: SpanId) {
        let span = self.spans.get(id);
        let run = &self.runs[span.run as usize];
        let releasable = run.releasable(span.start, span.size);
        self.accounts.releasable -= releasable;
        self.accounts.stranded -= span.size - releasable;
        if !run.is_expandable() {
            self.accounts.inactive_split -= span.size - releasable;
        }
        self.spans.leave_free(id);
    }
}
