//! The life of a block.

use std::collections::BTreeMap;

use super::Study;
use crate::{Category, NameId, naming};
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// A block from its allocation to its end, or to where it changed its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// First byte.
    pub address: Address,
    /// Size of the block.
    pub size: Bytes,
    /// Bytes asked for.
    pub requested: Bytes,
    /// The stream it was allocated for.
    pub stream: StreamId,
    /// Its category.
    pub category: Category,
    /// Its name.
    pub name: NameId,
    /// The op that allocated it; none between ops.
    pub op: NameId,
    /// Events before its allocation; for a block from before the range, fewer than before the range.
    pub born: u64,
    /// Events before its free; `None` if it outlives the range.
    pub freed: Option<u64>,
    /// True if it was allocated as something else and became this at `born`: a temporary that became a gradient.
    pub relabelled: bool,
}

impl Life {
    /// True if it is alive after `position` events.
    #[must_use]
    pub fn is_alive_at(&self, position: u64) -> bool {
        self.born < position && self.freed.is_none_or(|freed| freed >= position)
    }
}

/// Blocks of one name with a common property: allocated in a range and alive at its end, alive before it and freed in
/// it, or alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The name, layers taken together.
    pub name: String,
    /// The category of most of their bytes.
    pub category: Category,
    /// Their bytes.
    pub bytes: Bytes,
    /// The number of blocks.
    pub blocks: u64,
}

impl Study {
    /// The block at an address that is alive after `position` events.
    #[must_use]
    pub fn life_of(&self, address: Address, position: u64) -> Option<&Life> {
        self.lives.iter().find(|life| life.address == address && life.is_alive_at(position))
    }

    /// Blocks that were allocated in the range and are alive at its end, the most bytes first.
    #[must_use]
    pub fn survivors(&self) -> Vec<Survivor> {
        self.by_name(|life| life.born >= self.begin && life.freed.is_none())
    }

    /// Blocks that existed before the range and were freed in it.
    #[must_use]
    pub fn departed(&self) -> Vec<Survivor> {
        self.by_name(|life| life.born < self.begin && life.freed.is_some())
    }

    /// Blocks that are alive after `position` events, by name, the most bytes first.
    #[must_use]
    pub fn alive_at(&self, position: u64) -> Vec<Survivor> {
        self.by_name(|life| life.is_alive_at(position))
    }

    /// Blocks of a category that are alive at the peak, by name, the most bytes first.
    #[must_use]
    pub fn alive_at_peak_of(&self, category: Category) -> Vec<Survivor> {
        let Some(peak) = self.peak else { return Vec::new() };
        self.by_name(|life| life.category == category && life.is_alive_at(peak.position))
    }

    fn by_name(&self, wanted: impl Fn(&Life) -> bool) -> Vec<Survivor> {
        let mut names: BTreeMap<String, ([Bytes; Category::ALL.len()], u64)> = BTreeMap::new();
        for life in self.lives.iter().filter(|life| wanted(life)) {
            let name = match self.names.get(life.name) {
                "" => life.category.label().to_owned(),
                name => naming::starred(name),
            };
            let (by_category, blocks) = names.entry(name).or_default();
            by_category[life.category as usize] += life.size;
            *blocks += 1;
        }
        let survivor = |(name, (by_category, blocks)): (String, ([Bytes; Category::ALL.len()], u64))| {
            let most = Category::ALL.into_iter().rev().max_by_key(|category| by_category[*category as usize]);
            Survivor { name, category: most.unwrap_or_default(), bytes: by_category.into_iter().sum(), blocks }
        };
        let mut names: Vec<Survivor> = names.into_iter().map(survivor).collect();
        names.sort_by_key(|survivor| std::cmp::Reverse(survivor.bytes));
        names
    }
}
