//! The address ranges of expandable segments: which pages belong to which range, where ranges begin, and how large pages are.
//!
//! A history records only mapped pages. A range serves one pool of one stream, grows at the lowest address that has
//! room, and is released with its last page.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{EarlyPages, Evidence};
use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{PoolId, PoolKind, Settings, pool_of, round};

/// The index of a range in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeIndex(usize);

impl RangeIndex {
    /// The range with this index.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The index as a number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A reserved range of address space.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The lowest address that was ever mapped.
    pub base: Address,
    /// The end of the highest page that was ever mapped.
    pub end: Address,
    /// The page size.
    pub page: Bytes,
    /// The stream whose requests it serves.
    pub stream: StreamId,
    /// The pool that the range serves.
    pub pool: PoolKind,
    /// Id of its private pool; (0, 0) is the default.
    pub pool_id: PoolId,
    /// The lowest address above the range at which something else ever lies.
    pub ceiling: Option<Address>,
    mapped: Bytes,
    /// True if the history does not show where the range begins.
    early: bool,
}

/// All ranges of a history.
#[derive(Debug, Default)]
pub struct Ranges {
    all: Vec<Range>,
    /// The range whose pages each entry maps.
    by_entry: HashMap<usize, RangeIndex>,
    /// Runs of pages that were mapped before the first entry: start, end, range.
    pub early: Vec<(Address, Address, RangeIndex)>,
}

impl Ranges {
    /// Finds the ranges of a history.
    pub fn of(trace: &[TraceEntry], evidence: &Evidence, settings: &Settings) -> Self {
        let mut ranges = Self::default();
        let mut pages = evidence.pages.clone();
        pages.sort_by_key(|pages| pages.start);
        let pools = pools_of(&pages, evidence, settings);
        for (pages, pool) in pages.iter().zip(pools) {
            ranges.early_pages(pages, pool, settings);
        }
        // Ranges that have pages now, by their first page.
        let mut alive: BTreeMap<Address, usize> =
            ranges.all.iter().enumerate().map(|(index, range)| (range.base, index)).collect();
        let mut next = NextRequest::default();
        for &index in &evidence.page_entries {
            let Some(entry) = trace.get(index) else { continue };
            match entry.action {
                Action::SegmentMap => {
                    let pool = next.pool(trace, index, settings).unwrap_or_else(|| pool_of_pages(entry.size, settings));
                    let range = ranges.map(entry, pool, &mut alive, settings);
                    ranges.by_entry.insert(index, range);
                }
                _ => ranges.unmap(entry, &mut alive),
            }
        }
        ranges.settle_pages(trace, &evidence.page_entries);
        ranges.find_ceilings(trace, evidence);
        ranges
    }

    /// A range by its index.
    pub fn get(&self, index: RangeIndex) -> Option<&Range> {
        self.all.get(index.0)
    }

    /// All ranges, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (RangeIndex, &Range)> {
        self.all.iter().enumerate().map(|(index, range)| (RangeIndex(index), range))
    }

    /// The range whose pages an entry maps.
    pub fn of_entry(&self, index: usize) -> Option<(RangeIndex, &Range)> {
        let range = *self.by_entry.get(&index)?;
        Some((range, self.get(range)?))
    }

    /// Notes pages that existed before the first entry. They belong to the range below, if it serves the same blocks.
    fn early_pages(&mut self, pages: &EarlyPages, pool: PoolKind, settings: &Settings) {
        let (start, end) = (Address(pages.start), Address(pages.end));
        let page = nominal_page(pool, settings);
        let size = end.distance(start);
        let same = |range: &Range| {
            (range.stream, range.pool, range.pool_id) == (pages.stream, pool, pages.pool_id)
                && start.distance(range.base).0.is_multiple_of(page.0)
        };
        let index = match self.all.last_mut() {
            Some(range) if same(range) => {
                range.end = end;
                range.mapped += size;
                self.all.len() - 1
            }
            _ => {
                let (stream, pool_id) = (pages.stream, pages.pool_id);
                self.all.push(Range {
                    base: start,
                    end,
                    page,
                    stream,
                    pool,
                    pool_id,
                    ceiling: None,
                    mapped: size,
                    early: true,
                });
                self.all.len() - 1
            }
        };
        self.early.push((start, end, RangeIndex(index)));
    }

    fn map(
        &mut self,
        entry: &TraceEntry,
        pool: PoolKind,
        alive: &mut BTreeMap<Address, usize>,
        settings: &Settings,
    ) -> RangeIndex {
        let (start, end) = (entry.address, entry.address.offset(entry.size));
        let serves = |range: &Range| {
            range.stream == entry.stream
                && range.pool == pool
                && entry.pool.is_none_or(|pool_id| pool_id == range.pool_id)
        };
        let below = alive.range(..=start).next_back().map(|(_, index)| *index);
        if let Some(index) = below
            && let Some(range) = self.all.get_mut(index).filter(|range| start <= range.end && serves(range))
        {
            range.end = range.end.max(end);
            range.mapped += entry.size;
            return RangeIndex(index);
        }
        // The lowest pages of a range that is older than the history may not have been mapped when the history began.
        let above = alive.range(start..).next().map(|(base, index)| (*base, *index));
        if let Some((base, index)) = above
            && let Some(range) = self.all.get_mut(index)
            && range.early
            && serves(range)
            && base.distance(start).0.is_multiple_of(range.page.0)
            && end <= base
        {
            range.base = start;
            range.mapped += entry.size;
            alive.remove(&base);
            alive.insert(start, index);
            return RangeIndex(index);
        }
        let index = self.all.len();
        self.all.push(Range {
            base: start,
            end,
            page: nominal_page(pool, settings),
            stream: entry.stream,
            pool,
            pool_id: entry.pool.unwrap_or_default(),
            ceiling: None,
            mapped: entry.size,
            early: false,
        });
        alive.insert(start, index);
        RangeIndex(index)
    }

    fn unmap(&mut self, entry: &TraceEntry, alive: &mut BTreeMap<Address, usize>) {
        let Some((base, index)) = alive.range(..=entry.address).next_back().map(|(base, index)| (*base, *index)) else {
            return;
        };
        let Some(range) = self.all.get_mut(index).filter(|range| entry.address < range.end) else { return };
        range.mapped = range.mapped.saturating_sub(entry.size);
        if range.mapped == Bytes::ZERO {
            alive.remove(&base);
        }
    }

    /// Decides page sizes: those of the settings, unless the history shows smaller pages.
    fn settle_pages(&mut self, trace: &[TraceEntry], entries: &[usize]) {
        let early: Vec<_> = self.early.clone();
        for (start, end, index) in early {
            self.fit_page(index, start, end.distance(start));
        }
        for index in entries {
            let (Some(entry), Some(range)) = (trace.get(*index), self.by_entry.get(index).copied()) else { continue };
            self.fit_page(range, entry.address, entry.size);
        }
    }

    fn find_ceilings(&mut self, trace: &[TraceEntry], evidence: &Evidence) {
        if self.all.is_empty() {
            return;
        }
        let taken = trace.iter().filter(|entry| entry.action == Action::SegmentAlloc).map(|entry| entry.address);
        let early = evidence.segments.iter().map(|segment| segment.address);
        let mut others: Vec<Address> = taken.chain(early).chain(self.all.iter().map(|range| range.base)).collect();
        others.sort_unstable();
        for range in &mut self.all {
            let above = others.partition_point(|other| *other <= range.base);
            range.ceiling = others.get(above).copied();
        }
    }

    fn fit_page(&mut self, index: RangeIndex, start: Address, size: Bytes) {
        if let Some(range) = self.all.get_mut(index.0) {
            let offset = start.distance(range.base);
            range.page = Bytes(common(common(range.page.0, offset.0), size.0).max(1));
        }
    }
}

/// The greatest common divisor; of zero and `b` it is `b`.
const fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// How many bytes an expandable segment of a pool maps at once.
#[must_use]
pub const fn nominal_page(pool: PoolKind, settings: &Settings) -> Bytes {
    match pool {
        PoolKind::Small => Bytes::mib(2),
        PoolKind::Large => settings.large_segment_size,
    }
}

/// The index of a history's next request: found once for all entries before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NextRequest(usize);

impl NextRequest {
    /// The pool of the request that grows memory at entry `at`. Calls must come in ascending order of `at`.
    pub fn pool(&mut self, trace: &[TraceEntry], at: usize, settings: &Settings) -> Option<PoolKind> {
        let requests = |entry: &TraceEntry| matches!(entry.action, Action::Alloc | Action::Oom | Action::FreeRequested);
        if self.0 < at || self.0 == 0 {
            let rest = trace.get(at..).unwrap_or_default();
            self.0 = rest.iter().position(requests).map_or(trace.len().max(1), |ahead| at + ahead);
        }
        let request = trace.get(self.0).filter(|entry| matches!(entry.action, Action::Alloc | Action::Oom))?;
        Some(pool_of(round(request.size, &settings.roundup_power2_divisions)))
    }
}

/// The pool of pages, by their size alone.
const fn pool_of_pages(size: Bytes, settings: &Settings) -> PoolKind {
    if size.0.is_multiple_of(settings.large_segment_size.0) { PoolKind::Large } else { PoolKind::Small }
}

/// The pools of early pages: from the end of the history, or else from the blocks that were held in them, or else from
/// their neighbours, or else from their size.
fn pools_of(pages: &[EarlyPages], evidence: &Evidence, settings: &Settings) -> Vec<PoolKind> {
    let mut blocks: Vec<(u64, PoolKind)> = evidence
        .blocks
        .iter()
        .map(|block| (block.address.0, pool_of(round(block.requested, &settings.roundup_power2_divisions))))
        .collect();
    blocks.sort_unstable_by_key(|(address, _)| *address);
    let mut pools: Vec<Option<PoolKind>> = pages
        .iter()
        .map(|pages| {
            pages.pool.or_else(|| {
                let first = blocks.partition_point(|(address, _)| *address < pages.start);
                blocks.get(first).filter(|(address, _)| *address < pages.end).map(|(_, pool)| *pool)
            })
        })
        .collect();
    // A run that touches another belongs to the same range.
    for at in 1..pages.len() {
        if pages[at].start == pages[at - 1].end && pages[at].stream == pages[at - 1].stream {
            pools[at] = pools[at].or(pools[at - 1]);
        }
    }
    for at in (1..pages.len()).rev() {
        if pages[at].start == pages[at - 1].end && pages[at].stream == pages[at - 1].stream {
            pools[at - 1] = pools[at - 1].or(pools[at]);
        }
    }
    pages
        .iter()
        .zip(pools)
        .map(|(pages, pool)| pool.unwrap_or_else(|| pool_of_pages(Bytes(pages.end - pages.start), settings)))
        .collect()
}
