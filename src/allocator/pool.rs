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
    pub returnable: Returnable,
}

/// Where the free blocks are that can go back to the driver. Who asks it in vain asks again, and need not look through all of a
/// pool each time.
#[derive(Clone, Debug, Default)]
pub(super) enum Returnable {
    /// Anywhere.
    #[default]
    Anywhere,
    /// Among these, which came since all that could go back did. Some may be taken again, some stand here twice.
    Among(Vec<FreeKey>),
}

impl Returnable {
    /// The most that are kept by name.
    const MOST: usize = 4096;

    /// A free block came that can go back.
    #[inline]
    pub fn add(&mut self, key: FreeKey) {
        if let Self::Among(keys) = self {
            match keys.len() < Self::MOST {
                true => keys.push(key),
                false => *self = Self::Anywhere,
            }
        }
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

    /// Free blocks that may go back, in order, and some that may not: all that can are among them.
    pub fn take_returnable(&mut self) -> Vec<BlockId> {
        match std::mem::take(&mut self.returnable) {
            Returnable::Anywhere => self.free.ids().collect(),
            Returnable::Among(mut keys) => {
                keys.sort_unstable();
                keys.dedup();
                keys.iter().filter_map(|key| self.free.get(key)).collect()
            }
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
