//! A pool: its free blocks, and address space without memory.

use std::collections::BTreeMap;

use crate::block::{Block, BlockId};
use crate::free_set::{FreeKey, FreeSet};
use crate::units::{Address, StreamId};

/// One of the two pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// Mapped blocks that can be handed out.
    pub free: FreeSet,
    /// Parts of expandable ranges without memory, by stream and address.
    pub unmapped: BTreeMap<(StreamId, Address), BlockId>,
    /// Searches so far: the clock by which free blocks age. It only runs while garbage collection is on.
    pub lookups: u64,
    /// Where free blocks are that are whole segments.
    pub whole: Whereabouts,
    /// Where free blocks of expandable ranges are, whose pages may go back to the driver.
    pub expandable: Whereabouts,
}

/// Where the free blocks of a kind are. Who asks the driver in vain asks again, and need not look through all of a pool each time.
#[derive(Clone, Debug, Default)]
pub(super) enum Whereabouts {
    /// Anywhere in the pool.
    #[default]
    Anywhere,
    /// Among these. Some may be taken again, some stand here twice.
    Among(Vec<FreeKey>),
}

impl Whereabouts {
    /// The most that are kept by name.
    const MOST: usize = 4096;

    /// One more came.
    #[inline]
    fn add(&mut self, key: FreeKey) {
        if let Self::Among(keys) = self {
            match keys.len() < Self::MOST {
                true => keys.push(key),
                false => *self = Self::Anywhere,
            }
        }
    }

    /// All of the kind, and maybe others, in order.
    pub fn look(&self, free: &FreeSet) -> Vec<BlockId> {
        let Self::Among(keys) = self else { return free.ids().collect() };
        let mut keys = keys.clone();
        keys.sort_unstable();
        keys.dedup();
        keys.iter().filter_map(|key| free.get(key)).collect()
    }

    /// Those that are of the kind are known.
    pub fn note(&mut self, keys: Vec<FreeKey>) {
        *self = if keys.len() < Self::MOST { Self::Among(keys) } else { Self::Anywhere };
    }
}

/// A free block that may serve a request, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub id: BlockId,
    pub key: FreeKey,
}

impl Pool {
    /// The first free block at or behind `key` that is of the same stream.
    #[inline]
    pub fn first_from(&self, key: FreeKey) -> Option<Candidate> {
        let (key, id) = self.free.first_from(&key)?;
        Some(Candidate { id, key })
    }

    /// Enters a free block in its set.
    #[inline]
    pub fn insert(&mut self, id: BlockId, block: &Block) {
        let key = FreeKey::of(block);
        self.free.insert(key, id);
        if !block.is_split() {
            self.whole.add(key);
        }
        if block.is_expandable() {
            self.expandable.add(key);
        }
    }

    /// The free block behind `candidate` that is of the same stream.
    pub fn next_after(&self, candidate: Candidate) -> Option<Candidate> {
        self.first_from(candidate.key.successor())
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
