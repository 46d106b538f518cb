//! The reducer on hand-written events, and against a model that recomputes everything by definition at every event.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{Category, Event, EventKind, Micros, NameId, synthetic};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, KIB, MIB, StreamId};

const STREAM: StreamId = StreamId::DEFAULT;

fn segment(address: u64, size: u64) -> EventKind {
    EventKind::SegmentAlloc { address: Address(address), size: Bytes(size), stream: STREAM, pool: PoolKind::Small }
}

fn pages(address: u64, size: u64, range: u64, page: u64) -> EventKind {
    EventKind::SegmentMap {
        address: Address(address),
        size: Bytes(size),
        stream: STREAM,
        pool: PoolKind::Large,
        range: Address(range),
        page: Bytes(page),
    }
}

fn unmap(address: u64, size: u64) -> EventKind {
    EventKind::SegmentUnmap { address: Address(address), size: Bytes(size) }
}

fn alloc_for(address: u64, size: u64, requested: u64, category: Category) -> EventKind {
    EventKind::Alloc {
        address: Address(address),
        size: Bytes(size),
        requested: Bytes(requested),
        stream: STREAM,
        category,
        name: NameId(7),
    }
}

fn alloc(address: u64, size: u64, requested: u64) -> EventKind {
    alloc_for(address, size, requested, Category::Activation)
}

fn request_free(address: u64) -> EventKind {
    EventKind::FreeRequested { address: Address(address) }
}

fn complete_free(address: u64) -> EventKind {
    EventKind::FreeCompleted { address: Address(address) }
}

fn event(kind: EventKind) -> Event {
    Event::new(Micros(0), kind)
}

fn model_of(kinds: impl IntoIterator<Item = EventKind>) -> MemoryModel {
    let mut model = MemoryModel::new();
    for kind in kinds {
        model.apply(&event(kind)).unwrap();
    }
    model
}

/// live, rounding, pending, releasable, stranded, largest free
fn accounts(model: &MemoryModel) -> [u64; 6] {
    let l = model.ledger();
    [l.live, l.rounding, l.pending, l.releasable, l.stranded, l.largest_free].map(Bytes::get)
}

#[test]
fn a_segment_is_releasable_until_a_block_is_in_it() {
    let mut model = model_of([segment(0x1000, 2 * MIB), segment(0x100_0000, 20 * MIB)]);
    assert_eq!(accounts(&model), [0, 0, 0, 22 * MIB, 0, 20 * MIB]);
    model.apply(&event(alloc(0x1000, 1024, 700))).unwrap();
    assert_eq!(accounts(&model), [700, 324, 0, 20 * MIB, 2 * MIB - 1024, 20 * MIB]);
    assert_eq!((model.allocated(), model.reserved()), (Bytes(1024), Bytes::mib(22)));
    assert_eq!(model.largest_hole(), Bytes(2 * MIB - 1024));
}

#[test]
fn a_freed_block_is_pending_until_its_stream_is_done_and_then_merges() {
    let mut model = model_of([
        segment(0, 4096),
        alloc(0, 1024, 1000),
        alloc(1024, 1024, 1024),
        alloc(2048, 2048, 2000),
        request_free(1024),
    ]);
    assert_eq!(accounts(&model), [3000, 72, 1024, 0, 0, 0]);
    assert_eq!(model.by_category()[Category::Activation as usize], Bytes(3072));
    for (kind, expected) in [
        (complete_free(1024), [3000, 72, 0, 0, 1024, 1024]),
        (request_free(0), [2000, 48, 1024, 0, 1024, 1024]),
        (complete_free(0), [2000, 48, 0, 0, 2048, 2048]),
        (request_free(2048), [0, 0, 2048, 0, 2048, 2048]),
        (complete_free(2048), [0, 0, 0, 4096, 0, 4096]),
    ] {
        model.apply(&event(kind.clone())).unwrap();
        assert_eq!(accounts(&model), expected, "{kind:?}");
    }
    assert_eq!(model.peak_allocated(), Bytes(4096));
    assert_eq!(model.traffic().allocs, 3);
}

#[test]
fn of_an_expandable_range_whole_free_pages_are_releasable() {
    const PAGE: u64 = 2 * MIB;
    // The run begins at the third page of its range. One block covers half of its first page and ends in its second.
    let mut model = model_of([pages(2 * PAGE, 4 * PAGE, 0, PAGE), alloc(2 * PAGE + MIB, 2 * MIB, 2 * MIB)]);
    assert_eq!(accounts(&model), [2 * MIB, 0, 0, 2 * PAGE, 2 * MIB, 5 * MIB]);
    model.apply(&event(unmap(4 * PAGE, 2 * PAGE))).unwrap();
    assert_eq!(accounts(&model), [2 * MIB, 0, 0, 0, 2 * MIB, MIB]);
    assert_eq!(model.reserved(), Bytes(2 * PAGE));
    // A range that begins in the middle of a multiple of the page size: pages count from its start.
    let base = 0x302_000_000 + 512 * KIB;
    let model = model_of([pages(base, 2 * PAGE, base, PAGE), alloc(base, 512, 512)]);
    assert_eq!(accounts(&model), [512, 0, 0, PAGE, PAGE - 512, 2 * PAGE - 512]);
}

#[test]
fn unmapping_parts_a_run_and_mapping_joins_it_again() {
    const PAGE: u64 = 4096;
    let views = |model: &MemoryModel| -> Vec<(u64, u64, usize)> {
        model.segments().map(|s| (s.address().0, s.size().0, s.blocks().count())).collect()
    };
    let mut model = model_of([
        pages(0, 4 * PAGE, 0, PAGE),
        alloc(0, 512, 512),
        alloc(3 * PAGE, 512, 512),
        alloc(3 * PAGE + 512, 512, 512),
        unmap(PAGE, 2 * PAGE),
    ]);
    assert_eq!(views(&model), [(0, PAGE, 1), (3 * PAGE, PAGE, 2)]);
    model.apply(&event(pages(PAGE, PAGE, 0, PAGE))).unwrap();
    assert_eq!(views(&model), [(0, 2 * PAGE, 1), (3 * PAGE, PAGE, 2)]);
    model.apply(&event(pages(2 * PAGE, PAGE, 0, PAGE))).unwrap();
    assert_eq!(views(&model), [(0, 4 * PAGE, 3)]);
    assert_eq!(model.ledger().largest_free, Bytes(3 * PAGE - 512));
    // Pages of another range never join, however close they lie.
    model.apply(&event(pages(4 * PAGE, PAGE, 4 * PAGE, PAGE))).unwrap();
    assert_eq!(views(&model), [(0, 4 * PAGE, 3), (4 * PAGE, PAGE, 0)]);
    assert_eq!((model.traffic().segment_allocs, model.traffic().segment_frees), (4, 1));
}

#[test]
fn a_relabelled_block_changes_its_category() {
    let mut model = model_of([segment(0, 4096), alloc_for(0, 1024, 1000, Category::Temporary)]);
    let relabel = EventKind::Relabel { address: Address(0), category: Category::Gradient, name: NameId(9) };
    model.apply(&event(relabel)).unwrap();
    let by_category = model.by_category();
    assert_eq!(by_category[Category::Temporary as usize], Bytes::ZERO);
    assert_eq!(by_category[Category::Gradient as usize], Bytes(1024));
    let block = model.segments().next().unwrap().blocks().next().unwrap();
    assert_eq!((block.category, block.name), (Category::Gradient, NameId(9)));
}

#[test]
fn an_impossible_event_is_named_and_changes_nothing() {
    let good = [
        segment(0, 8192),
        pages(1 << 20, 8192, 1 << 20, 4096),
        alloc(0, 1024, 1000),
        alloc(1024, 1024, 1000),
        request_free(1024),
        alloc(1 << 20, 512, 512),
    ];
    let at = |address: u64, size: u64| (Address(address), Bytes(size));
    let fault = |make: fn(Address, Bytes) -> Fault, (address, size)| make(address, size);
    let overlap: fn(Address, Bytes) -> Fault = |address, size| Fault::BlockOverlap { address, size };
    let outside: fn(Address, Bytes) -> Fault = |address, size| Fault::OutsideSegments { address, size };
    let segments: fn(Address, Bytes) -> Fault = |address, size| Fault::SegmentOverlap { address, size };
    let unknown: fn(Address, Bytes) -> Fault = |address, size| Fault::UnknownSegment { address, size };
    let in_use: fn(Address, Bytes) -> Fault = |address, size| Fault::SegmentInUse { address, size };
    let partial: fn(Address, Bytes) -> Fault = |address, size| Fault::NotWholePages { address, size };
    let impossible: fn(Address, Bytes) -> Fault = |address, size| Fault::Impossible { address, size };
    let cases = [
        (alloc(512, 512, 1), fault(overlap, at(512, 512))),
        (alloc(0, 512, 1), fault(overlap, at(0, 512))),
        (alloc(4096, 8192, 1), fault(outside, at(4096, 8192))),
        (alloc(9000, 512, 1), fault(outside, at(9000, 512))),
        (alloc(2048, 512, 513), fault(impossible, at(2048, 512))),
        (alloc(2048, 0, 0), fault(impossible, at(2048, 0))),
        (alloc(u64::MAX - 100, 512, 1), fault(impossible, at(u64::MAX - 100, 512))),
        (request_free(2048), Fault::UnknownBlock { address: Address(2048) }),
        (request_free(77), Fault::UnknownBlock { address: Address(77) }),
        (request_free(1024), Fault::FreedTwice { address: Address(1024) }),
        (complete_free(0), Fault::FreeNotRequested { address: Address(0) }),
        (segment(4096, 8192), fault(segments, at(4096, 8192))),
        (segment(8192, 0), fault(impossible, at(8192, 0))),
        (segment(0, u64::MAX), fault(segments, at(0, u64::MAX))),
        (pages(8192, 100, 8192, 4096), fault(partial, at(8192, 100))),
        (pages(8192, 4096, 8192, 0), fault(partial, at(8192, 4096))),
        (pages(8192, 4096, 1 << 30, 4096), fault(partial, at(8192, 4096))),
        (unmap(1 << 20, 4096), fault(in_use, at(1 << 20, 4096))),
        (unmap((1 << 20) + 512, 4096), fault(partial, at((1 << 20) + 512, 4096))),
        (unmap(4096, 4096), fault(unknown, at(4096, 4096))),
        (unmap(1 << 40, 4096), fault(unknown, at(1 << 40, 4096))),
        (EventKind::SegmentFree { address: Address(0), size: Bytes(8192) }, fault(in_use, at(0, 8192))),
        (EventKind::SegmentFree { address: Address(0), size: Bytes(4096) }, fault(unknown, at(0, 4096))),
        (EventKind::SegmentFree { address: Address(1 << 20), size: Bytes(8192) }, fault(unknown, at(1 << 20, 8192))),
    ];
    let mut model = model_of(good);
    let before = (accounts(&model), model.traffic(), model.by_category());
    for (position, (kind, fault)) in (6..).zip(cases) {
        assert_eq!(model.apply(&event(kind)), Err(ModelError { position, fault }));
        assert_eq!((accounts(&model), model.traffic(), model.by_category()), before, "{fault}");
    }
    let error = ModelError { position: 12, fault: Fault::UnknownBlock { address: Address(0x7f00) } };
    assert!(error.to_string().starts_with("event 12: nobody holds a block at 0x7f00; "), "{error}");
}

/// Memory by definition: pages, segments and blocks, with every figure recomputed from all of them.
#[derive(Clone, Debug, Default)]
struct Obvious {
    segments: BTreeMap<u64, u64>,
    /// Mapped pages: address to (range, page size).
    pages: BTreeMap<u64, (u64, u64)>,
    blocks: BTreeMap<u64, (u64, u64, bool, Category)>,
}

impl Obvious {
    /// Segments and maximal runs of adjacent pages of one range: start, size, page size.
    fn runs(&self) -> Vec<(u64, u64, Option<u64>)> {
        let mut runs = Vec::new();
        let mut last = None;
        for (&at, &(range, page)) in &self.pages {
            match runs.last_mut() {
                Some((start, size, _)) if *start + *size == at && last == Some(range) => *size += page,
                _ => runs.push((at, page, Some(page))),
            }
            last = Some(range);
        }
        runs.extend(self.segments.iter().map(|(at, size)| (*at, *size, None)));
        runs.sort_unstable();
        runs
    }

    fn blocks_in(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let all = self.blocks.iter().map(|(at, (size, ..))| (*at, at + size));
        all.filter(|(from, to)| *from < end && start < *to).collect()
    }

    fn unused(&self, start: u64, end: u64) -> bool {
        start < end && self.runs().iter().all(|(at, size, _)| at + size <= start || end <= *at)
    }

    /// The free gaps of a run.
    fn gaps(&self, start: u64, size: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut from = start;
        for (at, end) in self.blocks_in(start, start + size) {
            gaps.push((from, at - from));
            from = end;
        }
        gaps.push((from, start + size - from));
        gaps.retain(|(_, size)| *size > 0);
        gaps
    }

    fn accounts(&self) -> [u64; 6] {
        let [mut live, mut rounding, mut pending, mut releasable, mut stranded, mut largest] = [0; 6];
        for (size, requested, is_pending, _) in self.blocks.values() {
            if *is_pending {
                pending += size;
            } else {
                live += requested;
                rounding += size - requested;
            }
        }
        for (start, size, page) in self.runs() {
            let gaps = self.gaps(start, size);
            let free: u64 = gaps.iter().map(|(_, size)| size).sum();
            let part = page.unwrap_or(size);
            let whole: u64 = (start..start + size)
                .step_by(part as usize)
                .filter(|at| self.blocks_in(*at, at + part).is_empty())
                .map(|_| part)
                .sum();
            releasable += whole;
            stranded += free - whole;
            largest = largest.max(gaps.into_iter().map(|(_, size)| size).max().unwrap_or(0));
        }
        [live, rounding, pending, releasable, stranded, largest]
    }

    /// Applies the event if it is valid.
    fn apply(&mut self, kind: &EventKind) -> bool {
        match *kind {
            EventKind::SegmentAlloc { address: Address(at), size: Bytes(size), .. } => {
                let possible = self.unused(at, at + size);
                if possible {
                    self.segments.insert(at, size);
                }
                possible
            }
            EventKind::SegmentFree { address: Address(at), size: Bytes(size) } => {
                let possible = self.segments.get(&at) == Some(&size) && self.blocks_in(at, at + size).is_empty();
                if possible {
                    self.segments.remove(&at);
                }
                possible
            }
            EventKind::SegmentMap { address, size: Bytes(size), range: Address(range), page: Bytes(page), .. } => {
                let at = address.0;
                let whole = page > 0 && range <= at && (at - range).is_multiple_of(page) && size.is_multiple_of(page);
                let possible = whole && self.unused(at, at + size);
                if possible {
                    self.pages.extend((at..at + size).step_by(page as usize).map(|at| (at, (range, page))));
                }
                possible
            }
            EventKind::SegmentUnmap { address: Address(at), size: Bytes(size) } => {
                let run = self.runs().into_iter().find(|(start, length, page)| {
                    page.is_some() && *start <= at && size > 0 && at + size <= start + length
                });
                let possible = run.is_some_and(|(start, _, page)| {
                    let page = page.unwrap();
                    (at - start).is_multiple_of(page)
                        && size.is_multiple_of(page)
                        && self.blocks_in(at, at + size).is_empty()
                });
                if possible {
                    self.pages.retain(|page, _| *page < at || at + size <= *page);
                }
                possible
            }
            EventKind::Alloc { address: Address(at), size: Bytes(size), requested, category, .. } => {
                let inside = self.runs().iter().any(|(start, length, _)| *start <= at && at + size <= start + length);
                let possible = size > 0 && requested.0 <= size && inside && self.blocks_in(at, at + size).is_empty();
                if possible {
                    self.blocks.insert(at, (size, requested.0, false, category));
                }
                possible
            }
            EventKind::FreeRequested { address } => match self.blocks.get_mut(&address.0) {
                Some((_, _, pending, _)) => !std::mem::replace(pending, true),
                None => false,
            },
            EventKind::FreeCompleted { address } => {
                let possible = self.blocks.get(&address.0).is_some_and(|(_, _, pending, _)| *pending);
                if possible {
                    self.blocks.remove(&address.0);
                }
                possible
            }
            EventKind::Relabel { address, category, .. } => match self.blocks.get_mut(&address.0) {
                Some(block) => {
                    block.3 = category;
                    true
                }
                None => false,
            },
            _ => true,
        }
    }

    fn by_category(&self) -> [Bytes; 9] {
        let mut sums = [Bytes::ZERO; 9];
        for (size, _, pending, category) in self.blocks.values() {
            if !pending {
                sums[*category as usize] += Bytes(*size);
            }
        }
        sums
    }
}

/// Three ranges of 16 pages side by side, then room for segments that touch each other.
const RANGES: [(u64, u64); 3] = [(1 << 20, 2048), ((1 << 20) + 32 * KIB, 4096), ((1 << 20) + 96 * KIB, 4096)];
const SEGMENTS: u64 = 2 << 20;

/// Turns random words into the next event: mostly valid ones, some invalid.
fn next_event(memory: &Obvious, [choice, a, b, c]: [u32; 4]) -> EventKind {
    let pick = |count: usize| (a as usize) % count.max(1);
    let block = memory.blocks.keys().copied().nth(pick(memory.blocks.len())).unwrap_or(u64::from(a % 64) * 512);
    let runs = memory.runs();
    let category = Category::ALL[c as usize % Category::ALL.len()];
    match choice % 16 {
        0 => segment(SEGMENTS + u64::from(a % 16) * 4096, 4096 * u64::from(1 + b % 3)),
        1 => {
            let (address, size) = memory
                .segments
                .iter()
                .nth(pick(memory.segments.len()))
                .map_or((SEGMENTS, 4096), |(at, size)| (*at, *size));
            EventKind::SegmentFree { address: Address(address), size: Bytes(size) }
        }
        2 | 3 => {
            let (range, page) = RANGES[a as usize % 3];
            pages(range + page * u64::from(b % 16), page * u64::from(1 + c % 4), range, page)
        }
        4 | 5 => {
            // Some whole pages inside a gap of a run, or any bytes.
            let gap = runs.iter().filter(|run| run.2.is_some()).flat_map(|(start, size, page)| {
                memory.gaps(*start, *size).into_iter().map(move |gap| (*start, page.unwrap(), gap))
            });
            match gap.into_iter().nth(b as usize % 5) {
                Some((run, page, (start, size))) => {
                    let first = (start - run).next_multiple_of(page) + run;
                    let whole = (start + size).saturating_sub(first) / page;
                    let skip = u64::from(c % 2).min(whole.saturating_sub(1));
                    unmap(first + skip * page, page * (whole - skip).clamp(1, 1 + u64::from(a % 5)))
                }
                None => unmap(RANGES[0].0 + u64::from(c % 64) * 512, 2048),
            }
        }
        6..=10 => {
            let gaps = runs.iter().flat_map(|(start, size, _)| memory.gaps(*start, *size));
            let gaps: Vec<(u64, u64)> = gaps.collect();
            let Some((start, size)) = gaps.get(pick(gaps.len())).copied() else {
                return alloc(SEGMENTS + u64::from(c % 512) * 512, 512, 512);
            };
            let skip = if b % 3 == 0 { u64::from(b % 7) * 512 } else { 0 };
            let size = (512 * u64::from(1 + c % 12)).min(size.saturating_sub(skip).max(512));
            alloc_for(start + skip, size, size - u64::from(c % 512), category)
        }
        11 | 12 => request_free(block),
        13 | 14 => {
            let pending = memory.blocks.iter().filter(|(_, block)| block.2).nth(b as usize % 4).map(|(at, _)| *at);
            complete_free(pending.unwrap_or(block))
        }
        _ => EventKind::Relabel { address: Address(block), category, name: NameId(c % 9) },
    }
}

fn check(model: &MemoryModel, obvious: &Obvious) {
    assert_eq!(accounts(model), obvious.accounts());
    let ledger = model.ledger();
    assert_eq!(ledger.reserved(), obvious.runs().iter().map(|(_, size, _)| Bytes(*size)).sum());
    assert_eq!((ledger.reserved(), ledger.allocated()), (model.reserved(), model.allocated()));
    assert_eq!(model.by_category(), obvious.by_category());
    let runs: Vec<(u64, u64, bool)> =
        model.segments().map(|s| (s.address().0, s.size().0, s.is_expandable())).collect();
    let expected: Vec<_> = obvious.runs().iter().map(|(at, size, page)| (*at, *size, page.is_some())).collect();
    assert_eq!(runs, expected);
    let mut blocks = BTreeSet::new();
    for segment in model.segments() {
        let view = segment.view();
        assert_eq!(view.blocks.len(), segment.held());
        let mut end = Bytes::ZERO;
        let mut held = Bytes::ZERO;
        for block in view.blocks.iter() {
            assert!(block.offset >= end, "blocks overlap or are out of order");
            end = block.offset + block.size;
            held += block.size;
            blocks.insert((segment.address().0 + block.offset.0, block.size.0, block.requested.0, block.pending));
        }
        assert!(end <= segment.size(), "a block lies outside its segment");
        assert_eq!(segment.free(), segment.size() - held);
    }
    let expected: BTreeSet<_> =
        obvious.blocks.iter().map(|(at, (size, requested, pending, _))| (*at, *size, *requested, *pending)).collect();
    assert_eq!(blocks, expected);
}

/// Everything that can be asked about segments, versions included: what was drawn of one state is drawn again of another.
fn segments_of(model: &MemoryModel) -> String {
    let segments = model.segments();
    let segments: Vec<_> = segments.map(|segment| (segment.version(), segment.free(), segment.view())).collect();
    format!("{segments:?} {:?} {:?}", model.ledger(), model.largest_hole())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_account_is_what_the_definition_says_at_every_event(
        words in prop::collection::vec(any::<[u32; 4]>(), 1..160),
    ) {
        let (mut model, mut obvious) = (MemoryModel::new(), Obvious::default());
        let (mut peak_allocated, mut peak_reserved) = (Bytes::ZERO, Bytes::ZERO);
        for words in words {
            let kind = next_event(&obvious, words);
            let possible = obvious.apply(&kind);
            let result = model.apply(&event(kind.clone()));
            prop_assert_eq!(result.is_ok(), possible, "{:?}: {:?}", kind, result);
            check(&model, &obvious);
            peak_allocated = peak_allocated.max(model.allocated());
            peak_reserved = peak_reserved.max(model.reserved());
        }
        prop_assert_eq!((model.peak_allocated(), model.peak_reserved()), (peak_allocated, peak_reserved));
    }

    #[test]
    fn a_packed_model_goes_on_as_the_model_does(
        words in prop::collection::vec(any::<[u32; 4]>(), 1..160),
        often in 1..20_usize,
    ) {
        let (mut model, mut obvious) = (MemoryModel::new(), Obvious::default());
        let mut twin = MemoryModel::new();
        for (index, words) in words.into_iter().enumerate() {
            if index % often == 0 {
                let before = segments_of(&twin);
                let packed = PackedMemory::of(&mut twin);
                prop_assert_eq!(&segments_of(&twin), &before, "packing changes nothing");
                twin = packed.unpack();
            }
            let next = event(next_event(&obvious, words));
            obvious.apply(&next.kind);
            prop_assert_eq!(model.apply(&next), twin.apply(&next));
            prop_assert_eq!(segments_of(&model), segments_of(&twin));
        }
        check(&twin, &obvious);
    }

    #[test]
    fn no_stream_however_damaged_makes_it_panic(words in prop::collection::vec(any::<[u64; 4]>(), 1..100)) {
        let mut model = MemoryModel::new();
        for [choice, a, b, c] in words {
            // Few distinct values, including extreme ones.
            let value = |word: u64| [0, 1, 511, 512, 4096, 8192, 1 << 20, u64::MAX - 511, u64::MAX][word as usize % 9];
            let (a, b, c) = (value(a), value(b), value(c));
            let _ = model.apply(&event(match choice % 8 {
                0 => segment(a, b),
                1 => EventKind::SegmentFree { address: Address(a), size: Bytes(b) },
                2 => pages(a, b, c, value(choice / 8)),
                3 => unmap(a, b),
                4 => alloc(a, b, c),
                5 => request_free(a),
                6 => complete_free(a),
                _ => EventKind::Relabel { address: Address(a), category: Category::Input, name: NameId(1) },
            }));
            let ledger = model.ledger();
            prop_assert_eq!(ledger.reserved(), model.segments().map(|segment| segment.size()).sum());
        }
    }
}

#[test]
fn a_training_run_agrees_with_the_definition() {
    let (mut model, mut obvious) = (MemoryModel::new(), Obvious::default());
    for event in synthetic::training_run().into_iter().take(2000) {
        model.apply(&event).unwrap();
        assert!(obvious.apply(&event.kind));
        assert_eq!(accounts(&model), obvious.accounts());
    }
}

#[test]
fn a_packed_block_takes_less_than_twenty_bytes() {
    let mut model = MemoryModel::new();
    for event in synthetic::crowded(5000) {
        model.apply(&event).unwrap();
    }
    let (packed, pieces) = (PackedMemory::of(&mut model), model.pieces());
    assert!(pieces > 5000 && packed.weight() < 20 * pieces, "{} bytes for {pieces} pieces", packed.weight());
}
