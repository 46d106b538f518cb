//! A pool's ordered sets of free blocks and of address space without memory.

use std::collections::BTreeMap;

use crate::allocator::block::{Block, BlockId};
use crate::units::{Address, Bytes, StreamId};

/// The order of free blocks: stream handle, then size, then address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeKey {
    pub stream: StreamId,
    pub size: Bytes,
    pub address: Address,
}

impl FreeKey {
    /// Where the first block of at least `size` bytes for `stream` stands.
    #[inline]
    pub const fn at_least(stream: StreamId, size: Bytes) -> Self {
        Self { stream, size, address: Address(0) }
    }

    #[inline]
    pub const fn of(block: &Block) -> Self {
        Self { stream: block.stream, size: block.size, address: block.address }
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
    runs: Vec<Vec<(FreeKey, BlockId)>>,
}

impl Default for FreeSet {
    fn default() -> Self {
        Self { runs: vec![Vec::with_capacity(RUN + 1)] }
    }
}

impl FreeSet {
    /// Run and place of the first entry that is not before `key`; behind the last entry if there is none.
    #[inline]
    fn locate(&self, key: &FreeKey) -> (usize, usize) {
        let last = self.runs.len() - 1;
        let run = if last == 0 {
            0
        } else {
            self.runs[..last].partition_point(|run| run.last().is_some_and(|(end, _)| end < key))
        };
        (run, self.runs[run].partition_point(|(entry, _)| entry < key))
    }

    #[inline]
    pub fn insert(&mut self, key: FreeKey, id: BlockId) {
        let (run, at) = self.locate(&key);
        self.runs[run].insert(at, (key, id));
        if self.runs[run].len() > RUN {
            let mut upper = Vec::with_capacity(RUN + 1);
            upper.extend(self.runs[run].drain(RUN / 2..));
            self.runs.insert(run + 1, upper);
        }
    }

    #[inline]
    pub fn remove(&mut self, key: &FreeKey) {
        let (run, at) = self.locate(key);
        if self.runs[run].get(at).is_some_and(|(entry, _)| entry == key) {
            self.runs[run].remove(at);
            if self.runs[run].is_empty() && self.runs.len() > 1 {
                self.runs.remove(run);
            }
        }
    }

    pub fn get(&self, key: &FreeKey) -> Option<BlockId> {
        let (run, at) = self.locate(key);
        self.runs[run].get(at).filter(|(entry, _)| entry == key).map(|&(_, id)| id)
    }

    /// The first entry at or behind `key`.
    #[inline]
    fn first_from(&self, key: &FreeKey) -> Option<(FreeKey, BlockId)> {
        let (run, at) = self.locate(key);
        self.runs[run].get(at).copied()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (FreeKey, BlockId)> {
        self.runs.iter().flatten().copied()
    }

    /// The blocks in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = BlockId> {
        self.iter().map(|(_, id)| id)
    }

    pub fn len(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
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

impl Pool {
    /// The first free block at or behind `key` that is of the same stream.
    #[inline]
    pub fn first_from(&self, key: FreeKey) -> Option<BlockId> {
        self.free.first_from(&key).filter(|(found, _)| found.stream == key.stream).map(|(_, id)| id)
    }

    /// The free block behind `key` that is of the same stream.
    pub fn next_after(&self, key: FreeKey) -> Option<BlockId> {
        self.first_from(FreeKey { address: key.address.offset(Bytes(1)), ..key })
    }

    /// Enters a free, mapped block; its age starts anew.
    #[inline]
    pub fn insert(&mut self, id: BlockId, block: &mut Block) {
        block.age_base = self.lookups;
        self.free.insert(FreeKey::of(block), id);
    }

    /// Takes a block out of the set it is in.
    #[inline]
    pub fn remove(&mut self, block: &Block) {
        if block.mapped {
            self.free.remove(&FreeKey::of(block));
        } else {
            self.unmapped.remove(&(block.stream, block.address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::PoolKind;
    use crate::allocator::block::Blocks;

    #[test]
    fn entries_stay_in_order_through_many_insertions_and_removals() {
        let id = Blocks::default().insert(Block::new(Address(0), Bytes(512), StreamId(0), PoolKind::Small, None));
        let mut set = FreeSet::default();
        let mut model = std::collections::BTreeSet::new();
        let mut state = 1_u64;
        for step in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = state >> 33;
            let key = FreeKey { stream: StreamId(n % 3), size: Bytes(n / 3 % 50), address: Address(n / 150 % 40) };
            // Grows to some thousand entries, then shrinks to nothing.
            if (n / 6000) % 4 < if step < 10_000 { 3 } else { 1 } {
                if model.insert(key) {
                    set.insert(key, id);
                }
            } else {
                set.remove(&key);
                model.remove(&key);
            }
            assert_eq!(set.get(&key).is_some(), model.contains(&key));
            assert_eq!(set.first_from(&key).map(|(found, _)| found), model.range(key..).next().copied());
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
