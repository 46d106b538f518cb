//! Blocks and where they are kept.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use crate::home::{Home, OwnerId};
use crate::range::RangeId;
use crate::tie::{Tie, Ties};
use crate::units::{Address, Bytes, StreamId};
use crate::version::TorchVersion;

pub use crate::home::PoolKind;

/// Names a block for as long as it exists.
///
/// When a block is split, the *front* keeps the name; when neighbours merge, the lower one's name survives. The first
/// block of a segment or range therefore never changes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockId(NonZeroU32);

impl BlockId {
    const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// What the program does with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Handed out.
    Allocated,
    /// Given back by the program, but this many events of side streams are not done yet.
    Pending(u32),
    /// In a pool's set of free blocks, or not mapped.
    Free,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: Address,
    pub size: Bytes,
    /// Decides the order among free blocks of the same size.
    pub tie: Tie,
    /// Bytes asked for at the last use. Stale while the block is free; zero if the block was never used.
    pub requested: Bytes,
    pub stream: StreamId,
    pub pool: PoolKind,
    /// The private pool that the block belongs to.
    pub owner: Option<OwnerId>,
    pub usage: Usage,
    /// False for address space of an expandable range that has no memory behind it.
    pub mapped: bool,
    /// The neighbour below, in the same segment or range.
    pub previous: Option<BlockId>,
    /// The neighbour above, in the same segment or range.
    pub next: Option<BlockId>,
    /// The expandable range that the block lies in.
    pub range: Option<RangeId>,
    /// The pool's count of lookups when the block became free.
    pub age_base: u64,
}

impl Block {
    /// A free, mapped block without neighbours.
    #[inline]
    pub const fn new(address: Address, size: Bytes, stream: StreamId, pool: PoolKind, range: Option<RangeId>) -> Self {
        Self {
            address,
            size,
            tie: Tie(address.0),
            requested: Bytes::ZERO,
            stream,
            pool,
            owner: None,
            usage: Usage::Free,
            mapped: true,
            previous: None,
            next: None,
            range,
            age_base: 0,
        }
    }

    /// True if the block shares its segment or range with other blocks.
    #[inline]
    pub const fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    #[inline]
    pub const fn is_expandable(&self) -> bool {
        self.range.is_some()
    }

    #[inline]
    pub const fn is_free(&self) -> bool {
        matches!(self.usage, Usage::Free)
    }

    #[inline]
    pub const fn home(&self) -> Home {
        Home { owner: self.owner, kind: self.pool }
    }

    pub const fn end(&self) -> Address {
        self.address.offset(self.size)
    }
}

/// All blocks, by name.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<BlockId>,
    ties: Ties,
}

impl Blocks {
    /// An empty table whose blocks are ordered as this version of PyTorch orders them.
    pub fn new(version: TorchVersion) -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), ties: Ties::of(version) }
    }

    /// Stores the only block of a new segment or range, and names it.
    pub fn begin(&mut self, mut block: Block) -> BlockId {
        block.tie = self.ties.segment(block.address, block.size);
        self.insert(block)
    }

    /// Stores and names a block of a seeded allocator. The block lies right behind `below`, or at the beginning of a
    /// segment or range of `segment` bytes if `below` is `None`.
    pub fn found(&mut self, mut block: Block, below: Option<BlockId>, segment: Bytes) -> BlockId {
        block.tie = match below {
            Some(below) => self.ties.found_behind(self[below].tie, self[below].size),
            None => self.ties.segment(block.address, segment),
        };
        let id = self.insert(block);
        if let Some(below) = below {
            self[below].next = Some(id);
            self[id].previous = Some(below);
        }
        id
    }

    /// Stores `block` and names it.
    #[expect(clippy::expect_used, reason = "four billion blocks are at least 2 TiB of device memory")]
    #[inline]
    pub fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self.slots[id.index()] = block;
            return id;
        }
        self.slots.push(block);
        let count = u32::try_from(self.slots.len()).ok().and_then(NonZeroU32::new);
        BlockId(count.expect("fewer than four billion blocks"))
    }

    /// Forgets a block. Its name may be reused.
    #[inline]
    pub fn remove(&mut self, id: BlockId) {
        self.vacant.push(id);
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Cuts `front` bytes off the start of `id` and returns the rest: a free block of the same kind behind the front.
    /// The rest carries the stale requested size, as PyTorch's remainder does.
    #[inline]
    pub fn split(&mut self, id: BlockId, front: Bytes) -> BlockId {
        let ties = self.ties.cut(self[id].tie, front);
        self.cut(id, front, ties)
    }

    /// Like [`Blocks::split`], for splits where PyTorch makes a new block object for the rest and not for the front.
    pub fn split_off(&mut self, id: BlockId, front: Bytes) -> BlockId {
        let ties = self.ties.cut_off(self[id].tie, front);
        self.cut(id, front, ties)
    }

    #[inline]
    fn cut(&mut self, id: BlockId, front: Bytes, ties: (Tie, Tie)) -> BlockId {
        let block = &mut self[id];
        let above = block.next;
        let rest = Block {
            address: block.address.offset(front),
            size: block.size - front,
            tie: ties.1,
            usage: Usage::Free,
            previous: Some(id),
            age_base: 0,
            ..*block
        };
        (block.size, block.tie) = (front, ties.0);
        let rest = self.insert(rest);
        self[id].next = Some(rest);
        if let Some(above) = above {
            self[above].previous = Some(rest);
        }
        rest
    }

    /// Merges block `id` into the block below it. The result has the name of the lower block, but the tie and the
    /// requested size of `id`: in PyTorch `id` is the object that survives.
    #[inline]
    pub fn absorb_below(&mut self, lower: BlockId, id: BlockId) {
        let (requested, tie) = (self[id].requested, self[id].tie);
        self.join(lower, id);
        let tie = self.ties.absorbed(self[lower].tie, tie);
        let block = &mut self[lower];
        (block.requested, block.tie) = (requested, tie);
    }

    /// Merges a block with the one behind it. The result has the name of the lower block.
    #[inline]
    pub fn join(&mut self, lower: BlockId, upper: BlockId) {
        let &Block { size, next: above, .. } = &self[upper];
        let block = &mut self[lower];
        block.size += size;
        block.next = above;
        if let Some(above) = above {
            self[above].previous = Some(lower);
        }
        self.remove(upper);
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.slots[id.index()]
    }
}

impl IndexMut<BlockId> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.slots[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_and_joining_keep_the_first_name_and_the_chain() {
        let mut blocks = Blocks::new(TorchVersion::V2_11);
        let a = blocks.insert(Block::new(Address(0x1000), Bytes(4096), StreamId(0), PoolKind::Small, None));
        blocks[a].requested = Bytes(7);
        let c = blocks.split(a, Bytes(1024));
        let b = blocks.split(a, Bytes(512));
        assert_eq!((blocks[b].address, blocks[b].size), (Address(0x1200), Bytes(512)));
        assert_eq!((blocks[b].previous, blocks[b].next), (Some(a), Some(c)));
        assert_eq!(blocks[c].previous, Some(b));
        assert_eq!(blocks[c].requested, Bytes(7), "the remainder shows the size of the last use");
        blocks.join(a, b);
        assert_eq!((blocks[a].size, blocks[a].next, blocks[c].previous), (Bytes(1024), Some(c), Some(a)));
        blocks.join(a, c);
        assert!(!blocks[a].is_split());
        assert_eq!((blocks[a].size, blocks.len()), (Bytes(4096), 1));
    }
}
