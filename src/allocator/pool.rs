//! A pool: its free blocks, and address space without memory.

use std::collections::BTreeMap;

use crate::block::{Block, BlockId, Blocks};
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
    /// Where to look for what may go back to the driver, if that is known. Most programs never need it.
    returnable: Option<Box<Returnable>>,
}

/// The free blocks that may go back. Who asks the driver in vain asks again, and need not look through all of a pool each time.
#[derive(Clone, Debug, Default)]
struct Returnable {
    /// Those that are whole segments.
    whole: Whereabouts,
    /// Those of expandable ranges.
    expandable: Whereabouts,
}

/// Where the free blocks of a kind are.
#[derive(Clone, Debug, Default)]
enum Whereabouts {
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
    fn add(&mut self, key: FreeKey) {
        if let Self::Among(keys) = self {
            match keys.len() < Self::MOST {
                true => keys.push(key),
                false => *self = Self::Anywhere,
            }
        }
    }

    /// All of the kind, and maybe others, in order.
    fn look(&self, free: &FreeSet) -> Vec<BlockId> {
        let Self::Among(keys) = self else { return free.ids().collect() };
        let mut keys = keys.clone();
        keys.sort_unstable();
        keys.dedup();
        keys.iter().filter_map(|key| free.get(key)).collect()
    }

    /// Once all of them are known.
    fn among(keys: Vec<FreeKey>) -> Self {
        if keys.len() < Self::MOST { Self::Among(keys) } else { Self::Anywhere }
    }
}

impl Returnable {
    /// One more free block came. None where nothing is known any more.
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
        if self.returnable.is_some() {
            self.note(key, block);
        }
    }

    /// Notes whether a free block that came may go back.
    #[cold]
    fn note(&mut self, key: FreeKey, block: &Block) {
        self.returnable = self.returnable.take().and_then(|known| known.with(key, block));
    }

    /// Among these are all that are whole segments, in order.
    pub fn whole(&self) -> Vec<BlockId> {
        self.returnable.as_ref().map_or_else(|| self.free.ids().collect(), |known| known.whole.look(&self.free))
    }

    /// Among these are all of expandable ranges, in order.
    pub fn expandable(&self) -> Vec<BlockId> {
        self.returnable.as_ref().map_or_else(|| self.free.ids().collect(), |known| known.expandable.look(&self.free))
    }

    /// All that could go back to the driver is gone.
    pub fn note_returned(&mut self) {
        let none = || Whereabouts::among(Vec::new());
        self.returnable = Some(Box::new(Returnable { whole: none(), expandable: none() }));
    }

    /// Finds out which blocks are whole segments, if that is not known.
    pub fn find_whole(&mut self, blocks: &Blocks) {
        let known = self.returnable.get_or_insert_default();
        if matches!(known.whole, Whereabouts::Anywhere) {
            let whole = self.free.iter().filter(|&(_, id)| !blocks[id].is_split());
            known.whole = Whereabouts::among(whole.map(|(key, _)| key).collect());
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
