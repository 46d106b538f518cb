//! A pool's ordered sets of free blocks and of address space without memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::block::{Block, BlockId};
use crate::tie::Tie;
use crate::units::{Address, Bytes, StreamId};

/// The order of free blocks: stream handle, then size, then what decides between equally large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeKey {
    pub stream: StreamId,
    pub size: Bytes,
    pub tie: Tie,
}

impl FreeKey {
    /// Where the first block of at least `size` bytes for `stream` stands.
    #[inline]
    pub const fn at_least(stream: StreamId, size: Bytes) -> Self {
        Self { stream, size, tie: Tie::FIRST }
    }

    #[inline]
    pub const fn of(block: &Block) -> Self {
        Self { stream: block.stream, size: block.size, tie: block.tie }
    }

    /// Size and tie as one number, which compares at once.
    #[inline]
    const fn place(&self) -> u128 {
        ((self.size.0 as u128) << 64) | self.tie.0 as u128
    }

    /// `self < other`, without branches: searches ask this most.
    #[inline]
    const fn is_before(&self, other: &Self) -> bool {
        (self.stream.0 < other.stream.0) | ((self.stream.0 == other.stream.0) & (self.place() < other.place()))
    }
}

impl Ord for FreeKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.stream.cmp(&other.stream).then_with(|| self.place().cmp(&other.place()))
    }
}

impl PartialOrd for FreeKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Most entries of a run; a longer one is cut in two.
const RUN: usize = 64;

/// Free blocks in order.
///
/// Sorted runs of bounded length: with the few dozen entries of ordinary programs this is one short array, which is
/// faster than a tree, and with many thousands it stays logarithmic but for moving half a run.
#[derive(Clone, Debug)]
pub(super) struct FreeSet {
    /// Never empty; no run is empty unless it is the only one.
    runs: Vec<FreeRun>,
    /// Where the set changed last. What is freed next often belongs there; among many runs one look saves the search.
    recent: Position,
}

#[derive(Clone, Debug)]
struct FreeRun {
    /// Key of the last entry, kept here so that looking for the run reads nothing else. Meaningless while empty.
    last: FreeKey,
    entries: Vec<(FreeKey, BlockId)>,
}

/// Where an entry stands in a [`FreeSet`] until the set is changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    run: usize,
    at: usize,
}

impl FreeRun {
    fn new(entries: impl Iterator<Item = (FreeKey, BlockId)>) -> Self {
        let mut run = Self { last: FreeKey::at_least(StreamId(0), Bytes::ZERO), entries: Vec::with_capacity(RUN + 1) };
        run.entries.extend(entries);
        run.update_last();
        run
    }

    /// The first entry that is not before `key`.
    #[inline]
    fn locate(&self, key: &FreeKey) -> usize {
        self.entries.partition_point(|(entry, _)| entry.is_before(key))
    }

    #[inline]
    fn update_last(&mut self) {
        if let Some((last, _)) = self.entries.last() {
            self.last = *last;
        }
    }
}

impl Default for FreeSet {
    fn default() -> Self {
        Self { runs: vec![FreeRun::new(std::iter::empty())], recent: Position { run: 0, at: 0 } }
    }
}

impl FreeSet {
    /// The first entry that is not before `key`; behind the last entry if there is none.
    #[inline(always)]
    fn locate(&self, key: &FreeKey) -> Position {
        match &*self.runs {
            [run] => Position { run: 0, at: run.locate(key) },
            _ => self.locate_among_runs(key),
        }
    }

    #[inline(never)]
    fn locate_among_runs(&self, key: &FreeKey) -> Position {
        if self.is_at(self.recent, key) {
            return self.recent;
        }
        let last = self.runs.len() - 1;
        let run = self.runs[..last].partition_point(|run| run.last.is_before(key));
        Position { run, at: self.runs[run].locate(key) }
    }

    /// True if `position` is between two entries of a run and `key` belongs there.
    #[inline]
    fn is_at(&self, Position { run, at }: Position, key: &FreeKey) -> bool {
        match self.runs.get(run).and_then(|run| run.entries.get(at.wrapping_sub(1)..=at)) {
            Some([(below, _), (entry, _)]) => below.is_before(key) & !entry.is_before(key),
            _ => false,
        }
    }

    #[inline]
    pub fn insert(&mut self, key: FreeKey, id: BlockId) {
        let Position { run, at } = self.locate(&key);
        self.recent = Position { run, at };
        let target = &mut self.runs[run];
        target.entries.insert(at, (key, id));
        target.update_last();
        if target.entries.len() > RUN {
            self.cut(run);
        }
    }

    #[cold]
    fn cut(&mut self, run: usize) {
        let upper = FreeRun::new(self.runs[run].entries.drain(RUN / 2..));
        self.runs[run].update_last();
        self.runs.insert(run + 1, upper);
    }

    #[inline]
    pub fn remove(&mut self, key: &FreeKey) {
        if let Some(position) = self.find(key) {
            self.remove_at(position);
        }
    }

    #[inline]
    pub fn remove_at(&mut self, Position { run, at }: Position) {
        self.recent = Position { run, at };
        let target = &mut self.runs[run];
        target.entries.remove(at);
        target.update_last();
        if target.entries.is_empty() && self.runs.len() > 1 {
            self.runs.remove(run);
        }
    }

    /// Removes the entry at `position` and inserts another, in its place if the order allows it.
    #[inline(always)]
    pub fn replace_at(&mut self, position: Position, key: FreeKey, id: BlockId) {
        let Position { run, at } = position;
        // Before the first and behind the last entry of a run the neighbouring runs decide: only a lone run is sure.
        let lone = self.runs.len() == 1;
        let target = &mut self.runs[run];
        let above_lower = target.entries.get(at.wrapping_sub(1)).map_or(lone, |(lower, _)| lower.is_before(&key));
        let below_upper = target.entries.get(at + 1).map_or(lone, |(upper, _)| key.is_before(upper));
        if above_lower && below_upper {
            target.entries[at] = (key, id);
            if at + 1 == target.entries.len() {
                target.last = key;
            }
            self.recent = position;
        } else {
            self.move_entry(position, key, id);
        }
    }

    #[inline(never)]
    fn move_entry(&mut self, from: Position, key: FreeKey, id: BlockId) {
        self.remove_at(from);
        self.insert(key, id);
    }

    /// Where the entry under `key` stands.
    #[inline]
    fn find(&self, key: &FreeKey) -> Option<Position> {
        let is_there = |position| self.at(position).is_some_and(|(entry, _)| entry == key);
        // A block is often merged with what was cut off from it last.
        if is_there(self.recent) {
            return Some(self.recent);
        }
        Some(self.locate(key)).filter(|&position| is_there(position))
    }

    pub fn get(&self, key: &FreeKey) -> Option<BlockId> {
        self.at(self.find(key)?).map(|&(_, id)| id)
    }

    #[inline]
    fn at(&self, Position { run, at }: Position) -> Option<&(FreeKey, BlockId)> {
        self.runs.get(run)?.entries.get(at)
    }

    /// The position behind.
    fn next(&self, Position { run, at }: Position) -> Position {
        if at + 1 < self.runs[run].entries.len() {
            Position { run, at: at + 1 }
        } else {
            Position { run: run + 1, at: 0 }
        }
    }

    /// Replaces the entry under `old` by another.
    #[inline]
    pub fn replace(&mut self, old: &FreeKey, key: FreeKey, id: BlockId) {
        match self.find(old) {
            Some(position) => self.replace_at(position, key, id),
            None => self.insert(key, id),
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (FreeKey, BlockId)> {
        self.runs.iter().flat_map(|run| &run.entries).copied()
    }

    /// The blocks in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = BlockId> {
        self.iter().map(|(_, id)| id)
    }

    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.entries.len()).sum()
    }
}

/// One of the two pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// Mapped blocks that can be handed out.
    pub free: FreeSet,
    /// Parts of expandable ranges without memory, by stream and address.
    pub unmapped: BTreeMap<(StreamId, Address), BlockId>,
    /// Searches so far: the clock by which free blocks age. It only runs while garbage collection is on.
    pub lookups: u64,
}

/// A free block that may serve a request, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: BlockId,
    pub position: Position,
}

impl Pool {
    /// The first free block at or behind `key` that is of the same stream.
    #[inline]
    pub fn first_from(&self, key: FreeKey) -> Option<Candidate> {
        self.candidate(self.free.locate(&key), key.stream)
    }

    /// The free block behind `candidate` that is of the same stream.
    pub fn next_after(&self, candidate: Candidate, stream: StreamId) -> Option<Candidate> {
        self.candidate(self.free.next(candidate.position), stream)
    }

    #[inline]
    fn candidate(&self, position: Position, stream: StreamId) -> Option<Candidate> {
        let &(ref found, id) = self.free.at(position)?;
        (found.stream == stream).then_some(Candidate { id, position })
    }

    /// Enters address space without memory.
    pub fn insert_space(&mut self, id: BlockId, block: &Block) {
        self.unmapped.insert((block.stream, block.address), id);
    }

    /// Takes address space out of its set.
    pub fn remove_space(&mut self, block: &Block) {
        self.unmapped.remove(&(block.stream, block.address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Blocks, PoolKind};
    use crate::version::TorchVersion;

    #[test]
    fn entries_stay_in_order_through_many_insertions_and_removals() {
        let id = Blocks::new(TorchVersion::V2_11).insert(Block::new(
            Address(0),
            Bytes(512),
            StreamId(0),
            PoolKind::Small,
            None,
        ));
        let mut set = FreeSet::default();
        let mut model = std::collections::BTreeSet::new();
        let mut state = 1_u64;
        for step in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = state >> 33;
            let key = FreeKey { stream: StreamId(n % 3), size: Bytes(n / 3 % 50), tie: Tie(n / 150 % 40) };
            // Grows to some thousand entries, then shrinks to nothing.
            if (n / 6000) % 4 < if step < 10_000 { 3 } else { 1 } {
                if model.insert(key) {
                    set.insert(key, id);
                }
            } else {
                set.remove(&key);
                model.remove(&key);
            }
            // One entry makes room for another, near or far.
            let old = model.range(key..).next().copied().filter(|_| n % 7 < 3);
            let new = FreeKey { size: Bytes(key.size.0 + n % 5), tie: Tie(1000 + step), ..key };
            if let Some(old) = old.filter(|_| model.insert(new)) {
                model.remove(&old);
                set.replace(&old, new, id);
            }
            assert_eq!(set.get(&key).is_some(), model.contains(&key));
            assert_eq!(set.at(set.locate(&key)).map(|(found, _)| *found), model.range(key..).next().copied());
            if step % 500 == 0 {
                assert!(set.iter().map(|(key, _)| key).eq(model.iter().copied()));
                assert_eq!(set.len(), model.len());
            }
        }
        for key in model {
            set.remove(&key);
        }
        assert_eq!((set.len(), set.runs.len()), (0, 1));
    }
}
