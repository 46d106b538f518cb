//! A pool: its free blocks, and address space without memory behind it.

use std::collections::BTreeMap;

use crate::block::{Block, BlockId, Blocks};
use crate::free_set::{FreeKey, FreeSet};
use crate::units::{Address, StreamId};

/// A small or a large pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    /// Free blocks, all mapped.
    pub free: FreeSet,
    /// Unmapped parts of expandable ranges, by stream and address.
    pub unmapped: BTreeMap<(StreamId, Address), BlockId>,
    /// Searches so far: the clock by which free blocks age. It runs only while garbage collection is on.
    pub lookups: u64,
    /// Where the free blocks are that may go back to the driver, if known. Most programs never need it.
    returnable: Option<Box<Returnable>>,
}

/// The free blocks that may go back to the driver. A program whose requests the driver refuses keeps asking, and should
/// not have to search the whole pool each time.
#[derive(Clone, Debug, Default)]
struct Returnable {
    /// Blocks that are whole segments.
    whole: Whereabouts,
    /// Blocks of expandable ranges.
    expandable: Whereabouts,
}

/// Where the free blocks of one kind are.
#[derive(Clone, Debug, Default)]
enum Whereabouts {
    /// Anywhere in the pool.
    #[default]
    Anywhere,
    /// Among the blocks with these keys. Some keys may have been taken again, some may be here twice.
    Among(Vec<FreeKey>),
}

impl Whereabouts {
    /// The most keys that are kept.
    const MOST: usize = 4096;

    /// Keys that take no time to put in order, so that not even the streams of free blocks are counted.
    const FEW: usize = 32;
    /// How many free blocks are listed in the time that it takes to put one key in order, at least.
    const SORTED: usize = 4;

    /// Notes one more block.
    fn add(&mut self, key: FreeKey) {
        if let Self::Among(keys) = self {
            match keys.len() < Self::MOST {
                true => keys.push(key),
                false => *self = Self::Anywhere,
            }
        }
    }

    /// A list of free blocks, in order, that includes all of the kind and maybe others.
    fn look(&self, free: &FreeSet) -> Vec<BlockId> {
        // Many keys take longer to put in order than all free blocks take to list.
        let keys = match self {
            Self::Among(keys) if keys.len() <= Self::FEW || keys.len() * Self::SORTED <= free.len() => keys,
            _ => return free.ids().collect(),
        };
        let mut keys = keys.clone();
        keys.sort_unstable();
        keys.dedup();
        keys.iter().filter_map(|key| free.get(key)).collect()
    }

    /// Keeps a complete list of keys, unless it is too long.
    fn among(keys: Vec<FreeKey>) -> Self {
        if keys.len() < Self::MOST { Self::Among(keys) } else { Self::Anywhere }
    }
}

impl Returnable {
    /// Notes one more free block. Returns `None` if the whereabouts of no kind are known any more.
    fn with(mut self: Box<Self>, key: FreeKey, block: &Block) -> Option<Box<Self>> {
        if !block.is_split() {
            self.whole.add(key);
        }
        if block.is_expandable() {
            self.expandable.add(key);
        }
        let is_known = |place: &Whereabouts| matches!(place, Whereabouts::Among(_));
        (is_known(&self.whole) || is_known(&self.expandable)).then_some(self)
    }
}

impl Pool {
    /// The first free block of the same stream at or behind `key`.
    #[inline]
    pub fn first_from(&self, key: FreeKey) -> Option<BlockId> {
        self.free.first_from(&key)
    }

    /// Enters a free block in its set.
    #[inline]
    pub fn insert(&mut self, id: BlockId, block: &Block) {
        let key = FreeKey::of(block);
        self.free.insert(key, id);
        self.note(key, block);
    }

    /// Enters a free block in its set, in place of the one with the key `old`.
    #[inline]
    pub fn replace(&mut self, old: &FreeKey, id: BlockId, block: &Block) {
        let key = FreeKey::of(block);
        self.free.replace(old, key, id);
        self.note(key, block);
    }

    /// Notes that a free block was added, in case it may go back to the driver.
    #[inline]
    fn note(&mut self, key: FreeKey, block: &Block) {
        if self.returnable.is_some() {
            self.note_returnable(key, block);
        }
    }

    #[cold]
    fn note_returnable(&mut self, key: FreeKey, block: &Block) {
        self.returnable = self.returnable.take().and_then(|known| known.with(key, block));
    }

    /// Free blocks in order, including all that are whole segments.
    pub fn whole(&self) -> Vec<BlockId> {
        self.returnable.as_ref().map_or_else(|| self.free.ids().collect(), |known| known.whole.look(&self.free))
    }

    /// Free blocks in order, including all of expandable ranges.
    pub fn expandable(&self) -> Vec<BlockId> {
        self.returnable.as_ref().map_or_else(|| self.free.ids().collect(), |known| known.expandable.look(&self.free))
    }

    /// Notes that every block that could go back to the driver has gone back.
    pub fn note_returned(&mut self) {
        let none = || Whereabouts::among(Vec::new());
        self.returnable = Some(Box::new(Returnable { whole: none(), expandable: none() }));
    }

    /// Finds the blocks that are whole segments, unless they are known.
    pub fn find_whole(&mut self, blocks: &Blocks) {
        let known = self.returnable.get_or_insert_default();
        if matches!(known.whole, Whereabouts::Anywhere) {
            let whole = self.free.iter().filter(|&(_, id)| !blocks[id].is_split());
            known.whole = Whereabouts::among(whole.map(|(key, _)| key).collect());
        }
    }

    /// The next free block of the same stream behind `block`.
    pub fn next_after(&self, block: &Block) -> Option<BlockId> {
        self.first_from(FreeKey::of(block).successor())
    }

    /// Enters unmapped address space.
    pub fn insert_space(&mut self, id: BlockId, block: &Block) {
        self.unmapped.insert((block.stream, block.address), id);
    }

    /// Removes unmapped address space.
    pub fn remove_space(&mut self, block: &Block) {
        self.unmapped.remove(&(block.stream, block.address));
    }
}
