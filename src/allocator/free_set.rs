//! A pool's free blocks, in the order of PyTorch's set.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::block::{Block, BlockId};
use crate::size_class::{Members, SizeClass};
use crate::tie::Tie;
use crate::units::{Bytes, StreamId};

/// The order of free blocks: by stream handle, then by size, then by tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeKey {
    pub stream: StreamId,
    pub size: Bytes,
    pub tie: Tie,
}

impl FreeKey {
    /// The position of the first block of at least `size` bytes for `stream`.
    #[inline]
    pub const fn at_least(stream: StreamId, size: Bytes) -> Self {
        Self { stream, size, tie: Tie::FIRST }
    }

    #[inline]
    pub const fn of(block: &Block) -> Self {
        Self { stream: block.stream, size: block.size, tie: block.tie }
    }

    /// The next key in the order.
    pub const fn successor(self) -> Self {
        Self { tie: self.tie.next(), ..self }
    }

    #[inline]
    const fn place(&self) -> Place {
        Place { size: self.size, tie: self.tie }
    }
}

impl Ord for FreeKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.stream.cmp(&other.stream).then_with(|| self.place().cmp(&other.place()))
    }
}

impl PartialOrd for FreeKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A block's position among the free blocks of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    size: Bytes,
    tie: Tie,
}

impl Place {
    /// `self < other`, compared as one number each because searches compare most often.
    #[inline]
    const fn is_before(self, other: Self) -> bool {
        (((self.size.0 as u128) << 64) | self.tie.0 as u128) < (((other.size.0 as u128) << 64) | other.tie.0 as u128)
    }
}

/// Free blocks in order, by stream. Nearly all programs have one stream.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeSet {
    streams: Vec<(StreamId, SizeIndex)>,
}

impl FreeSet {
    /// Where the blocks of `stream` are, or would be inserted.
    #[inline]
    fn slot(&self, stream: StreamId) -> Result<usize, usize> {
        match &*self.streams {
            [(only, _)] if *only == stream => Ok(0),
            streams => streams.binary_search_by_key(&stream, |(stream, _)| *stream),
        }
    }

    #[inline]
    fn of(&self, stream: StreamId) -> Option<&SizeIndex> {
        self.slot(stream).ok().map(|slot| &self.streams[slot].1)
    }

    /// The first block of the same stream at or behind `key`.
    #[inline]
    pub fn first_from(&self, key: &FreeKey) -> Option<BlockId> {
        self.of(key.stream)?.first_from(key.place())
    }

    #[inline]
    pub fn insert(&mut self, key: FreeKey, id: BlockId) {
        let slot = self.slot(key.stream).unwrap_or_else(|slot| {
            self.streams.insert(slot, (key.stream, SizeIndex::default()));
            slot
        });
        self.streams[slot].1.insert(key.place(), id);
    }

    /// Removes the block with the key `old` and inserts one of the same stream: most often its rest, or what it was
    /// merged into.
    #[inline]
    pub fn replace(&mut self, old: &FreeKey, new: FreeKey, id: BlockId) {
        match self.slot(old.stream) {
            Ok(slot) if old.stream == new.stream => self.streams[slot].1.replace(old.place(), new.place(), id),
            _ => {
                self.remove(old);
                self.insert(new, id);
            }
        }
    }

    #[inline]
    pub fn remove(&mut self, key: &FreeKey) {
        if let Ok(slot) = self.slot(key.stream) {
            self.streams[slot].1.remove(key.place());
        }
    }

    pub fn get(&self, key: &FreeKey) -> Option<BlockId> {
        self.of(key.stream)?.get(key.place())
    }

    /// All entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (FreeKey, BlockId)> {
        self.streams.iter().flat_map(|(stream, index)| {
            let stream = *stream;
            index.iter().map(move |(Place { size, tie }, id)| (FreeKey { stream, size, tie }, id))
        })
    }

    /// The blocks in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = BlockId> {
        self.iter().map(|(_, id)| id)
    }

    /// How many free blocks a stream has, and the size of the largest.
    pub fn extent(&self, stream: StreamId) -> (u64, Bytes) {
        self.of(stream).map_or((0, Bytes::ZERO), |index| {
            let largest = index.iter().next_back().map_or(Bytes::ZERO, |(place, _)| place.size);
            (index.len() as u64, largest)
        })
    }

    pub fn len(&self) -> usize {
        self.streams.iter().map(|(_, index)| index.len()).sum()
    }
}

/// One stream's free blocks. A short list in order while they are few, as in ordinary programs; otherwise a table by
/// classes of sizes. A bit per class says whether it holds any block, so that a search reads a word or two and then the
/// blocks of one class.
#[derive(Clone, Debug, Default)]
struct SizeIndex {
    /// All free blocks, as long as `groups` is empty.
    few: FewBlocks,
    /// The groups that hold a block.
    groups: Members<u64>,
    /// The tables of the groups, as many as were needed: most sizes fall in a few groups, and a file may have thousands of streams.
    tables: Vec<Option<Box<Group>>>,
}

/// The classes of one group.
#[derive(Clone, Debug, Default)]
struct Group {
    /// The classes that hold a block.
    classes: Members<u16>,
    blocks: [ClassBlocks; SizeClass::IN_GROUP],
}

/// The blocks of one class, in order. Requests are served from the front.
#[derive(Clone, Debug, Default)]
struct ClassBlocks {
    /// The first blocks. Nearly always all of them: one or two.
    few: FewBlocks,
    /// The blocks behind `few`, once there are more than [`FEW`]: programs can have many thousands of one size. Empty
    /// while `few` is.
    #[expect(
        clippy::box_collection,
        reason = "nearly always none, in a table that stays in the nearest cache where it is small"
    )]
    many: Option<Box<BTreeMap<Place, BlockId>>>,
}

/// Blocks searched linearly. The first of the order is the last of the list: it serves the next request, and comes and
/// goes without moving the others.
#[derive(Clone, Debug, Default)]
struct FewBlocks(Vec<(Place, BlockId)>);

/// The most blocks that are searched linearly: of a class ([`FEW`]) and of a stream ([`FEW_OF_STREAM`]).
const FEW: usize = 64;
const FEW_OF_STREAM: usize = 24;

impl SizeIndex {
    #[inline]
    fn first_from(&self, place: Place) -> Option<BlockId> {
        match self.groups.is_empty() {
            true => self.few.first_from(place),
            false => self.first_of_classes(place),
        }
    }

    fn first_of_classes(&self, place: Place) -> Option<BlockId> {
        let SizeClass { group, class } = SizeClass::of(place.size);
        if let Some(Some(table)) = self.tables.get(group) {
            if table.classes.has(class)
                && let Some(found) = table.blocks[class].first_from(place)
            {
                return Some(found);
            }
            if let Some(next) = table.classes.first_behind(class) {
                return table.blocks[next].first();
            }
        }
        let table = self.tables.get(self.groups.first_behind(group)?)?.as_ref()?;
        table.blocks[table.classes.first()?].first()
    }

    fn get(&self, place: Place) -> Option<BlockId> {
        if self.groups.is_empty() {
            return self.few.get(place);
        }
        let SizeClass { group, class } = SizeClass::of(place.size);
        self.tables.get(group)?.as_ref()?.blocks[class].get(place)
    }

    #[inline]
    fn insert(&mut self, place: Place, id: BlockId) {
        if self.groups.is_empty() && self.few.0.len() < FEW_OF_STREAM {
            self.few.insert(place, id);
            return;
        }
        for (place, id) in std::mem::take(&mut self.few.0) {
            self.insert_by_class(place, id);
        }
        self.insert_by_class(place, id);
    }

    #[inline]
    fn replace(&mut self, old: Place, new: Place, id: BlockId) {
        if self.groups.is_empty() {
            self.few.replace(old, new, id);
            return;
        }
        self.remove_by_class(old);
        self.insert(new, id);
    }

    fn insert_by_class(&mut self, place: Place, id: BlockId) {
        let SizeClass { group, class } = SizeClass::of(place.size);
        if group >= self.tables.len() {
            self.tables.resize_with(group + 1, || None);
        }
        let table = self.tables[group].get_or_insert_default();
        table.blocks[class].insert(place, id);
        table.classes.add(class);
        self.groups.add(group);
    }

    #[inline]
    fn remove(&mut self, place: Place) {
        if self.groups.is_empty() {
            self.few.remove(place);
            return;
        }
        self.remove_by_class(place);
    }

    fn remove_by_class(&mut self, place: Place) {
        let SizeClass { group, class } = SizeClass::of(place.size);
        let Some(Some(table)) = self.tables.get_mut(group) else { return };
        if table.blocks[class].remove(place) {
            table.classes.remove(class);
            if table.classes.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    fn classes(&self) -> impl DoubleEndedIterator<Item = &ClassBlocks> {
        let tables = self.groups.iter().filter_map(|group| self.tables.get(group)?.as_ref());
        tables.flat_map(|table| table.classes.iter().map(|class| &table.blocks[class]))
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (Place, BlockId)> {
        self.few.iter().chain(self.classes().flat_map(ClassBlocks::iter))
    }

    fn len(&self) -> usize {
        self.few.0.len() + self.classes().map(ClassBlocks::len).sum::<usize>()
    }
}

impl ClassBlocks {
    #[inline]
    fn first_from(&self, place: Place) -> Option<BlockId> {
        self.few.first_from(place).or_else(|| Some(*self.many.as_ref()?.range(place..).next()?.1))
    }

    #[inline]
    fn first(&self) -> Option<BlockId> {
        self.few.0.last().map(|(_, id)| *id)
    }

    fn get(&self, place: Place) -> Option<BlockId> {
        self.few.get(place).or_else(|| self.many.as_ref()?.get(&place).copied())
    }

    #[inline]
    fn insert(&mut self, place: Place, id: BlockId) {
        match &mut self.many {
            Some(many) if self.few.0.first().is_some_and(|(last, _)| last.is_before(place)) => {
                many.insert(place, id);
            }
            _ => {
                self.few.insert(place, id);
                if self.few.0.len() > FEW {
                    let behind = self.few.0.len() - FEW / 2;
                    self.many.get_or_insert_default().extend(self.few.0.drain(..behind));
                }
            }
        }
    }

    /// Removes a block. Returns true if the class is empty afterwards.
    #[inline]
    fn remove(&mut self, place: Place) -> bool {
        let was_of_few = self.few.remove(place);
        if let Some(many) = &mut self.many {
            if !was_of_few {
                many.remove(&place);
            }
            if self.few.0.is_empty() {
                self.few.0.extend(std::iter::from_fn(|| many.pop_first()).take(FEW / 2));
                self.few.0.reverse();
            }
            if many.is_empty() {
                self.many = None;
            }
        }
        self.few.0.is_empty()
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (Place, BlockId)> {
        let many = self.many.iter().flat_map(|many| many.iter().map(|(place, id)| (*place, *id)));
        self.few.iter().chain(many)
    }

    fn len(&self) -> usize {
        self.few.0.len() + self.many.as_ref().map_or(0, |many| many.len())
    }
}

impl FewBlocks {
    /// How many blocks are not before `place`.
    #[inline]
    fn behind(&self, place: Place) -> usize {
        self.0.iter().rposition(|(there, _)| !there.is_before(place)).map_or(0, |last| last + 1)
    }

    #[inline]
    fn first_from(&self, place: Place) -> Option<BlockId> {
        self.0.iter().rfind(|(there, _)| !there.is_before(place)).map(|(_, id)| *id)
    }

    fn get(&self, place: Place) -> Option<BlockId> {
        self.position(place).map(|at| self.0[at].1)
    }

    #[inline]
    fn insert(&mut self, place: Place, id: BlockId) {
        self.0.insert(self.behind(place), (place, id));
    }

    /// Removes `old`, if it is there, and inserts a block. Only the blocks between the two move.
    #[inline]
    fn replace(&mut self, old: Place, new: Place, id: BlockId) {
        let Some(from) = self.position(old) else {
            self.insert(new, id);
            return;
        };
        let behind = self.behind(new);
        let blocks = &mut self.0;
        // The old block, which leaves, may count as one of those behind the new one.
        let at = if behind > from { behind - 1 } else { behind };
        match at.cmp(&from) {
            Ordering::Less => blocks[at..=from].rotate_right(1),
            Ordering::Greater => blocks[from..=at].rotate_left(1),
            Ordering::Equal => {}
        }
        blocks[at] = (new, id);
    }

    /// Removes a block. Returns whether it was there.
    #[inline]
    fn remove(&mut self, place: Place) -> bool {
        let at = self.position(place);
        if let Some(at) = at {
            self.0.remove(at);
        }
        at.is_some()
    }

    #[inline]
    fn position(&self, place: Place) -> Option<usize> {
        let at = self.behind(place).checked_sub(1)?;
        (self.0[at].0 == place).then_some(at)
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (Place, BlockId)> {
        self.0.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::btree_map::Entry;

    use super::*;
    use crate::block::{Blocks, PoolKind};
    use crate::units::Address;
    use crate::version::TorchVersion;

    /// A name for each entry, so that an entry is known by it.
    fn ids() -> impl FnMut() -> BlockId {
        let block = Block::new(Address(0), Bytes(512), StreamId(0), PoolKind::Small, None);
        let mut blocks = Blocks::new(TorchVersion::V2_11);
        move || blocks.insert(block)
    }

    /// Tests few sizes with many ties, and sizes of every magnitude with few ties.
    #[test]
    fn entries_stay_in_order_through_many_insertions_and_removals() {
        let mut id = ids();
        for spread in [0, 50] {
            let mut set = FreeSet::default();
            let mut model = std::collections::BTreeMap::new();
            let mut state = 1_u64;
            for step in 0..20_000_u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let n = state >> 33;
                let magnitude = if spread == 0 { 0 } else { n / 7 % spread };
                let size = Bytes((n / 3 % 50) << magnitude);
                let key = FreeKey { stream: StreamId(n % 3), size, tie: Tie(n / 150 % 4000) };
                // Grows to some thousand entries, then shrinks to nothing.
                if (n / 6000) % 4 < if step < 10_000 { 3 } else { 1 } {
                    if let Entry::Vacant(vacant) = model.entry(key) {
                        set.insert(key, *vacant.insert(id()));
                    }
                } else {
                    set.remove(&key);
                    model.remove(&key);
                }
                let behind = model.range(key..).next().map(|(key, _)| *key);
                // Removes one entry to make room for another, near or far.
                if let Some(old) = behind.filter(|_| n % 7 < 3) {
                    let new = FreeKey { size: Bytes(key.size.0 + n % 5 * 512), tie: Tie(10_000 + step), ..key };
                    model.remove(&old);
                    model.insert(new, id());
                    set.replace(&old, new, model[&new]);
                }
                assert_eq!(set.get(&key), model.get(&key).copied());
                let of_stream = model.range(key..).next().filter(|(found, _)| found.stream == key.stream);
                assert_eq!(set.first_from(&key), of_stream.map(|(_, id)| *id));
                if step % 500 == 0 {
                    assert!(set.iter().eq(model.iter().map(|(key, id)| (*key, *id))));
                    assert!(set.iter().rev().eq(model.iter().rev().map(|(key, id)| (*key, *id))));
                    assert_eq!(set.len(), model.len());
                    let largest =
                        model.keys().rfind(|key| key.stream == StreamId(1)).map_or(Bytes::ZERO, |key| key.size);
                    let blocks = model.keys().filter(|key| key.stream == StreamId(1)).count() as u64;
                    assert_eq!(set.extent(StreamId(1)), (blocks, largest));
                }
            }
            for key in model.into_keys() {
                set.remove(&key);
            }
            assert_eq!(set.len(), 0);
            assert!(set.first_from(&FreeKey::at_least(StreamId(0), Bytes::ZERO)).is_none());
        }
    }
}
