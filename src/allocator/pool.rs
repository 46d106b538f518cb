//! A pool's ordered sets of free blocks and of address space without memory.

use std::collections::BTreeMap;
use std::ops::Bound;

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
    pub const fn at_least(stream: StreamId, size: Bytes) -> Self {
        Self { stream, size, address: Address(0) }
    }

    pub const fn of(block: &Block) -> Self {
        Self { stream: block.stream, size: block.size, address: block.address }
    }
}

/// One of the two pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// Mapped blocks that can be handed out.
    pub free: BTreeMap<FreeKey, BlockId>,
    /// Parts of expandable ranges without memory, by stream and address.
    pub unmapped: BTreeMap<(StreamId, Address), BlockId>,
    /// Searches so far: the clock by which free blocks age. It only runs while garbage collection is on.
    pub lookups: u64,
}

impl Pool {
    /// The first free block at or behind `key` that is of the same stream.
    pub fn first_from(&self, key: FreeKey) -> Option<BlockId> {
        self.free.range(key..).next().filter(|(found, _)| found.stream == key.stream).map(|(_, &id)| id)
    }

    /// The free block behind `key` that is of the same stream.
    pub fn next_after(&self, key: FreeKey) -> Option<BlockId> {
        let mut behind = self.free.range((Bound::Excluded(key), Bound::Unbounded));
        behind.next().filter(|(found, _)| found.stream == key.stream).map(|(_, &id)| id)
    }

    /// Enters a free, mapped block; its age starts anew.
    pub fn insert(&mut self, id: BlockId, block: &mut Block) {
        block.age_base = self.lookups;
        self.free.insert(FreeKey::of(block), id);
    }

    /// Takes a block out of the set it is in.
    pub fn remove(&mut self, block: &Block) {
        if block.mapped {
            self.free.remove(&FreeKey::of(block));
        } else {
            self.unmapped.remove(&(block.stream, block.address));
        }
    }
}
