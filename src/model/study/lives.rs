//! The life of a block.

use std::collections::BTreeMap;

use super::Study;
use crate::{Category, NameId, naming};
use vramlab_allocator::units::{Address, Bytes, StreamId};

/// A block from its birth to its end, or to where it became something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// First byte.
    pub address: Address,
    /// Size of the block.
    pub size: Bytes,
    /// Bytes asked for.
    pub requested: Bytes,
    /// The stream it was taken for.
    pub stream: StreamId,
    /// What it is for.
    pub category: Category,
    /// What it is called.
    pub name: NameId,
    /// The op that took it; none between ops.
    pub op: NameId,
    /// Events before the one that took it; fewer than before the range where it is older.
    pub born: u64,
    /// Events before the one that gave it back; `None`: it outlives the range.
    pub freed: Option<u64>,
    /// It was taken as something else and became this at `born`: a temporary that became a gradient.
    pub relabelled: bool,
}

impl Life {
    /// Alive after so many events.
    #[must_use]
    pub fn is_alive_at(&self, position: u64) -> bool {
        self.born < position && self.freed.is_none_or(|freed| freed >= position)
    }
}

/// Blocks of one name that have something in common: taken in a range and still there at its end, there before and gone,
/// alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The name, layers taken together.
    pub name: String,
    /// What most of them are for.
    pub category: Category,
    /// Their bytes.
    pub bytes: Bytes,
    /// How many.
    pub blocks: u64,
}

impl Study {
    /// The block at an address that is alive after `position` events.
    #[must_use]
    pub fn life_of(&self, address: Address, position: u64) -> Option<&Life> {
        self.lives.iter().find(|life| life.address == address && life.is_alive_at(position))
    }

    /// Blocks that were taken in the range and are alive at its end: what survived. The most bytes first.
    #[must_use]
    pub fn survivors(&self) -> Vec<Survivor> {
        self.by_name(|life| life.born >= self.begin && life.freed.is_none())
    }

    /// Blocks that were there before the range and were given back in it.
    #[must_use]
    pub fn departed(&self) -> Vec<Survivor> {
        self.by_name(|life| life.born < self.begin && life.freed.is_some())
    }

    /// Blocks that are alive after so many events, by name; the most bytes first.
    #[must_use]
    pub fn alive_at(&self, position: u64) -> Vec<Survivor> {
        self.by_name(|life| life.is_alive_at(position))
    }

    /// Blocks of a category that are alive at the peak, by name; the most bytes first.
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
