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
    /// Since everything that can be given back was, no free block came that can be. Who asks the driver in vain asks again, and
    /// need not look through all blocks each time.
    pub is_drained: bool,
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
