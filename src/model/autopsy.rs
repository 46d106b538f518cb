//! Why a request failed: what the allocator tried, what was live, and which free bytes could not serve the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Category, FailedRequest, Ledger, MemoryModel, NameId, Names, Phase, RemedyTrial, SegmentHolder, naming};
use vramlab_allocator::units::Bytes;

/// A request that failed for good, and the state of memory at that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Autopsy {
    /// Events before it.
    pub position: u64,
    /// Steps finished before it.
    pub step: u64,
    /// The request, and what the allocator tried.
    pub request: Arc<FailedRequest>,
    /// The op in progress.
    pub op: Arc<str>,
    /// The phase in progress.
    pub phase: Option<Phase>,
    /// The most that could be reserved; `None` if there was no limit.
    pub limit: Option<Bytes>,
    /// The five accounts at that time.
    pub ledger: Ledger,
    /// Live bytes by category, in the order of [`Category::ALL`].
    pub by_category: [Bytes; 9],
    /// The names that held most of the live memory, the largest first. `blocks.*` stands for all layers.
    pub owners: Vec<Owner>,
    /// The modules that held most of the live memory, the largest first.
    pub modules: Vec<Owner>,
    /// Free bytes that could not serve the request, by reason, the most bytes first.
    pub unusable: Vec<Unusable>,
    /// Bytes of the segment that the driver or the limit lacked.
    pub short: Bytes,
    /// Remedies tried since, and whether the same steps went through with each.
    pub remedied: Arc<[RemedyTrial]>,
    /// True once it is known which remedies help. Nothing is tried if the host has too little memory left for it.
    pub tried: bool,
}

/// Live blocks of one name or module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The name.
    pub name: Arc<str>,
    /// The category of most of their bytes.
    pub category: Category,
    /// Their bytes.
    pub bytes: Bytes,
    /// The number of blocks.
    pub blocks: u64,
}

/// Free bytes that could not serve a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unusable {
    /// The reason.
    pub why: Why,
    /// The number of bytes.
    pub bytes: Bytes,
    /// The number of pieces.
    pub pieces: u64,
    /// The largest piece.
    pub largest: Bytes,
    /// What holds the segment of the largest piece.
    pub holder: Option<SegmentHolder>,
}

/// Why free bytes can't serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// They are in the pool for other sizes.
    OtherPool,
    /// They belong to another stream.
    OtherStream,
    /// Each piece is smaller than the request.
    TooSmall,
    /// The piece is large enough, but the settings forbid splitting it (`max_split_size_mb`).
    NotSplit,
    /// Freed, but another stream may still read them.
    Pending,
}

/// How many names and modules an autopsy lists.
const LISTED: usize = 8;

impl Autopsy {
    /// The range of an unknown limit: the device had enough memory, no limit is known, and still the request was
    /// refused. `None` if there is no such limit.
    #[must_use]
    pub fn unknown_limit(&self) -> Option<[Bytes; 2]> {
        let unknown = self.short == Bytes::ZERO && self.limit.is_none() && self.request.segment > Bytes::ZERO;
        let reserved = self.ledger.reserved();
        unknown.then(|| [reserved, reserved + self.request.segment])
    }

    pub(super) fn of(
        memory: &MemoryModel,
        names: &Names,
        request: &Arc<FailedRequest>,
        step: u64,
        (op, phase): (NameId, Option<Phase>),
    ) -> Self {
        let ledger = memory.ledger();
        let limit = memory.limit();
        let over = limit.map(|limit| (ledger.reserved() + request.segment).saturating_sub(limit));
        let lacking = request.segment.saturating_sub(request.device_free);
        let mut owners = Owners::default();
        let mut modules = Owners::default();
        for segment in memory.segments() {
            for block in segment.blocks().filter(|block| !block.pending) {
                let name = names.get(block.name);
                let name = if name.is_empty() { block.category.label() } else { name };
                owners.add(naming::starred(name), block.category, block.size);
                // A line of source is not a module, and neither is a tensor without a path.
                let module = naming::module(name);
                if module != name && !name.ends_with(')') && block.category != Category::Workspace {
                    modules.add(module, block.category, block.size);
                }
            }
        }
        Self {
            position: memory.position().saturating_sub(1),
            step,
            request: Arc::clone(request),
            op: names.get(op).into(),
            phase,
            limit,
            ledger,
            by_category: memory.by_category(),
            owners: owners.largest(),
            modules: modules.largest(),
            unusable: unusable(memory, names, request),
            short: over.unwrap_or_default().max(lacking),
            remedied: Arc::default(),
            tried: false,
        }
    }

    /// The same autopsy under a limit that was not in its stream.
    #[must_use]
    pub fn under(self, limit: Bytes) -> Self {
        let over = (self.ledger.reserved() + self.request.segment).saturating_sub(limit);
        let lacking = self.request.segment.saturating_sub(self.request.device_free);
        Self { limit: Some(limit), short: over.max(lacking), ..self }
    }
}

#[derive(Default)]
struct Owners(BTreeMap<String, ([Bytes; 9], u64)>);

impl Owners {
    fn add(&mut self, name: String, category: Category, size: Bytes) {
        let (bytes, blocks) = self.0.entry(name).or_default();
        bytes[category as usize] += size;
        *blocks += 1;
    }

    fn largest(self) -> Vec<Owner> {
        let owner = |(name, (bytes, blocks)): (String, ([Bytes; 9], u64))| {
            let most = Category::ALL.into_iter().rev().max_by_key(|category| bytes[*category as usize]);
            let category = most.unwrap_or_default();
            Owner { name: name.into(), category, bytes: bytes.into_iter().sum(), blocks }
        };
        let mut owners: Vec<Owner> = self.0.into_iter().map(owner).collect();
        owners.sort_by_key(|owner| std::cmp::Reverse(owner.bytes));
        owners.truncate(LISTED);
        owners
    }
}

/// All free pieces, by the first reason for which the search skips them.
fn unusable(memory: &MemoryModel, names: &Names, request: &FailedRequest) -> Vec<Unusable> {
    let mut reasons: BTreeMap<Why, Unusable> = BTreeMap::new();
    let mut count = |why: Why, piece: Bytes, holder: &dyn Fn() -> Option<SegmentHolder>| {
        let entry = reasons.entry(why).or_insert(Unusable {
            why,
            bytes: Bytes::ZERO,
            pieces: 0,
            largest: Bytes::ZERO,
            holder: None,
        });
        entry.bytes += piece;
        entry.pieces += 1;
        if piece > entry.largest {
            (entry.largest, entry.holder) = (piece, holder());
        }
    };
    for segment in memory.segments() {
        let mut end = Bytes::ZERO;
        let holder = || SegmentHolder::of(&segment, names);
        let mut gap = |piece: Bytes| {
            let why = if segment.pool() != request.pool {
                Why::OtherPool
            } else if segment.stream() != request.stream {
                Why::OtherStream
            } else if piece < request.rounded {
                Why::TooSmall
            } else {
                Why::NotSplit
            };
            if piece > Bytes::ZERO {
                count(why, piece, &holder);
            }
        };
        let mut pending = Vec::new();
        for block in segment.blocks() {
            gap(block.offset.saturating_sub(end));
            end = block.offset + block.size;
            if block.pending {
                pending.push(block.size);
            }
        }
        gap(segment.size().saturating_sub(end));
        for piece in pending {
            count(Why::Pending, piece, &|| None);
        }
    }
    let mut reasons: Vec<Unusable> = reasons.into_values().collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.bytes));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, EventKind, Micros, synthetic};
    use vramlab_allocator::PoolKind;
    use vramlab_allocator::units::{Address, MIB, StreamId};

    const OTHER: StreamId = StreamId(3);

    fn request(pool: PoolKind, rounded: Bytes) -> Arc<FailedRequest> {
        Arc::new(FailedRequest {
            requested: rounded,
            rounded,
            segment: rounded,
            pool,
            stream: StreamId::DEFAULT,
            device_free: Bytes::mib(1),
            name: NameId::NONE,
            attempts: Vec::new(),
        })
    }

    fn of(memory: &MemoryModel, request: &Arc<FailedRequest>) -> Autopsy {
        Autopsy::of(memory, &Names::default(), request, 7, (NameId::NONE, None))
    }

    /// Segments at multiples of 1 GiB, blocks at so many MiB in them.
    fn memory() -> MemoryModel {
        let mut memory = MemoryModel::new();
        let at = |segment: u64, mib: u64| Address((segment << 30) + mib * MIB);
        let segment = |n: u64, mib: u64, pool, stream| EventKind::SegmentAlloc {
            address: at(n, 0),
            size: Bytes::mib(mib),
            stream,
            pool,
        };
        let block = |n: u64, mib: u64, size: u64, stream| EventKind::Alloc {
            address: at(n, mib),
            size: Bytes::mib(size),
            requested: Bytes::mib(size),
            stream,
            category: Category::Activation,
            name: NameId::NONE,
        };
        let (own, large) = (StreamId::DEFAULT, PoolKind::Large);
        for kind in [
            // 3 and 4 MiB around a block: too small.
            segment(1, 8, large, own),
            block(1, 3, 1, own),
            // 50 MiB in one piece behind one block: large enough.
            segment(2, 60, large, own),
            block(2, 0, 10, own),
            // Of another stream: 20 MiB, nothing in it.
            segment(3, 20, large, OTHER),
            // Of the other pool.
            segment(4, 2, PoolKind::Small, own),
            // Of the other pool and another stream: the pool is looked at first.
            segment(5, 2, PoolKind::Small, OTHER),
            // 30 MiB that were given back, while another stream may read them.
            segment(6, 32, large, own),
            block(6, 0, 30, own),
            EventKind::FreeRequested { address: at(6, 0) },
            block(6, 30, 2, own),
        ] {
            memory.apply(&Event::new(Micros(0), kind)).unwrap();
        }
        memory
    }

    #[test]
    fn every_free_byte_has_the_reason_for_which_the_search_passes_it_over() {
        let memory = memory();
        let told = |rounded| -> Vec<(Why, u64, u64, u64)> {
            let autopsy = of(&memory, &request(PoolKind::Large, Bytes::mib(rounded)));
            let mib = |bytes: Bytes| bytes.get() / MIB;
            autopsy.unusable.iter().map(|part| (part.why, mib(part.bytes), part.pieces, mib(part.largest))).collect()
        };
        assert_eq!(
            told(40),
            [
                (Why::NotSplit, 50, 1, 50),
                (Why::Pending, 30, 1, 30),
                (Why::OtherStream, 20, 1, 20),
                (Why::TooSmall, 7, 2, 4),
                (Why::OtherPool, 4, 2, 2),
            ]
        );
        assert_eq!(
            told(51),
            [
                (Why::TooSmall, 57, 3, 50),
                (Why::Pending, 30, 1, 30),
                (Why::OtherStream, 20, 1, 20),
                (Why::OtherPool, 4, 2, 2),
            ]
        );
        let small = of(&memory, &request(PoolKind::Small, Bytes(512)));
        let reasons: Vec<(Why, u64)> = small.unusable.iter().map(|part| (part.why, part.bytes.get() / MIB)).collect();
        let expected = [(Why::OtherPool, 77), (Why::Pending, 30), (Why::OtherStream, 2), (Why::NotSplit, 2)];
        assert_eq!(reasons.len(), expected.len());
        assert!(expected.iter().all(|reason| reasons.contains(reason)), "{reasons:?}");
    }

    #[test]
    fn the_largest_piece_comes_with_what_holds_it() {
        let autopsy = of(&memory(), &request(PoolKind::Large, Bytes::mib(51)));
        let holder = autopsy.unusable[0].holder.clone().unwrap();
        assert_eq!((holder.segment, holder.free, holder.size), (Address(2 << 30), Bytes::mib(50), Bytes::mib(10)));
        assert_eq!(holder.others, 0);
        assert_eq!(&*holder.name, "activations", "a block without a name is told by what it is for");
        let other = autopsy.unusable.iter().find(|part| part.why == Why::OtherStream).unwrap();
        assert_eq!(other.holder, None, "nothing is in that segment");
    }

    #[test]
    fn what_could_not_serve_is_all_that_is_free() {
        let (setup, churn) = synthetic::churn(2000, 500);
        for events in [synthetic::training_run(), setup.into_iter().chain(churn).collect()] {
            let mut memory = MemoryModel::new();
            let mut pieces = 0;
            for (index, event) in events.iter().enumerate() {
                memory.apply(event).unwrap();
                if index % 61 != 0 {
                    continue;
                }
                for (pool, rounded) in [(PoolKind::Large, Bytes::mib(3)), (PoolKind::Small, Bytes(1024))] {
                    let autopsy = of(&memory, &request(pool, rounded));
                    let sum = |pending: bool| -> Bytes {
                        let parts = autopsy.unusable.iter().filter(|part| (part.why == Why::Pending) == pending);
                        parts.map(|part| part.bytes).sum()
                    };
                    let ledger = memory.ledger();
                    assert_eq!((sum(false), sum(true)), (ledger.free(), ledger.pending), "after event {index}");
                    pieces += autopsy.unusable.iter().map(|part| part.pieces).sum::<u64>();
                    let largest = autopsy.unusable.iter().map(|part| part.largest).max().unwrap_or_default();
                    assert!(largest >= ledger.largest_free);
                    assert!(autopsy.unusable.is_sorted_by(|a, b| a.bytes >= b.bytes));
                }
            }
            assert!(pieces > 1000);
        }
    }

    #[test]
    fn what_lacks_is_the_more_of_what_limit_and_driver_lack() {
        let mut memory = memory();
        let short = |memory: &MemoryModel| of(memory, &request(PoolKind::Large, Bytes::mib(40))).short;
        // The driver has 1 MiB.
        assert_eq!(short(&memory), Bytes::mib(39));
        let limit = |mib| Event::new(Micros(0), EventKind::Limit { limit: Some(Bytes::mib(mib)) });
        memory.apply(&limit(100)).unwrap();
        assert_eq!(memory.reserved(), Bytes::mib(124));
        assert_eq!(short(&memory), Bytes::mib(64));
        memory.apply(&limit(500)).unwrap();
        assert_eq!(short(&memory), Bytes::mib(39));
    }
}
