//! The caching allocator: its state, and the operations that its parts share.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use super::source::{EventToken, SegmentSource};
use crate::block::{Block, BlockId, Blocks, PoolKind};
use crate::free_set::FreeKey;
use crate::home::{Home, OwnerId};
use crate::live::LiveBlocks;
use crate::pool::Pool;
use crate::private::PrivatePools;
use crate::range::Ranges;
use crate::settings::{Settings, SettingsError};
use crate::statistics::Statistics;
use crate::trace::TraceSink;
use crate::units::{Address, Bytes, StreamId};
use crate::version::TorchVersion;

/// A memory fraction outside 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("a memory fraction of {fraction} is not possible; give a number from 0 to 1")]
pub struct InvalidFraction {
    /// The fraction.
    pub fraction: f64,
}

/// PyTorch's native CUDA caching allocator for one device.
///
/// Generic over where memory comes from (`S`) and who listens to its history (`T`). The rules are those of the
/// PyTorch that the settings name; every decision, statistic and trace event is meant to be the same.
#[derive(Clone, Debug)]
pub struct CachingAllocator<S, T = ()> {
    pub(super) source: S,
    pub(super) sink: T,
    pub(super) settings: Settings,
    pub(super) statistics: Statistics,
    pub(super) blocks: Blocks,
    pub(super) small: Pool,
    pub(super) large: Pool,
    pub(super) private: PrivatePools,
    /// Allocated blocks.
    pub(super) live: LiveBlocks,
    /// The first block of each segment and range.
    pub(super) heads: BTreeMap<Address, BlockId>,
    pub(super) ranges: Ranges,
    /// Side streams of each allocated block (`record_stream`), by the block's address.
    pub(super) side_streams: BTreeMap<Address, Vec<StreamId>>,
    /// Events that pending blocks wait for, oldest first, by side stream.
    pub(super) events: BTreeMap<StreamId, VecDeque<(EventToken, BlockId)>>,
    /// Blocks freed while events were held back. Their events are recorded later.
    pub(super) deferred: Vec<BlockId>,
    /// Side streams recorded while events were held back, by a block's address.
    pub(super) captured_streams: BTreeMap<Address, Vec<StreamId>>,
    pub(super) limit: Option<Bytes>,
    /// Bytes held from the driver.
    pub(super) reserved: Bytes,
    /// The device's memory when the allocator was created.
    pub(super) device_total: Bytes,
    /// Operations so far. Counted in debug builds only, which check all invariants now and then.
    pub(super) operations: u64,
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// An allocator that holds nothing yet. The settings' `per_process_memory_fraction` becomes its limit.
    pub fn new(source: S, settings: Settings, sink: T) -> Self {
        let device_total = source.memory().total;
        Self {
            statistics: Statistics::new(settings.max_split_size, settings.torch()),
            limit: limit_of(settings.per_process_memory_fraction, device_total, settings.torch()),
            source,
            sink,
            blocks: Blocks::new(settings.torch()),
            settings,
            small: Pool::default(),
            large: Pool::default(),
            private: PrivatePools::default(),
            live: LiveBlocks::default(),
            heads: BTreeMap::new(),
            ranges: Ranges::default(),
            side_streams: BTreeMap::new(),
            events: BTreeMap::new(),
            deferred: Vec::new(),
            captured_streams: BTreeMap::new(),
            reserved: Bytes::ZERO,
            device_total,
            operations: 0,
        }
    }

    /// A copy of the allocator with another source of memory and another listener. Costs as much as a clone.
    pub fn fork<U, V>(&self, source: U, sink: V) -> CachingAllocator<U, V> {
        CachingAllocator {
            source,
            sink,
            settings: self.settings.clone(),
            statistics: self.statistics.clone(),
            blocks: self.blocks.clone(),
            small: self.small.clone(),
            large: self.large.clone(),
            private: self.private.clone(),
            live: self.live.clone(),
            heads: self.heads.clone(),
            ranges: self.ranges.clone(),
            side_streams: self.side_streams.clone(),
            events: self.events.clone(),
            deferred: self.deferred.clone(),
            captured_streams: self.captured_streams.clone(),
            limit: self.limit,
            reserved: self.reserved,
            device_total: self.device_total,
            operations: self.operations,
        }
    }

    /// Sets the most that may be held from the driver; `None` removes the limit. Lowering the limit gives nothing back.
    pub const fn set_limit(&mut self, limit: Option<Bytes>) {
        self.limit = limit;
    }

    /// Sets the limit as a share of the device's memory (`set_per_process_memory_fraction`); 1 removes the limit.
    ///
    /// # Errors
    /// [`InvalidFraction`] outside 0 to 1.
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), InvalidFraction> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(InvalidFraction { fraction });
        }
        self.limit = limit_of(fraction, self.device_total, self.settings.torch());
        Ok(())
    }

    /// Reads a configuration string at run time, as [`Settings::apply`] does. Blocks that are handed out stay as they are.
    ///
    /// # Errors
    /// [`SettingsError`]; the settings before the refused one are applied.
    pub fn apply_settings(&mut self, text: &str) -> Result<(), SettingsError> {
        self.settings.apply(text)
    }

    /// Makes every peak the current value.
    pub fn reset_peak_statistics(&mut self) {
        self.statistics.reset_peak();
    }

    #[inline]
    pub(super) fn pool(&self, home: Home) -> &Pool {
        match (home.owner, home.kind) {
            (None, PoolKind::Small) => &self.small,
            (None, PoolKind::Large) => &self.large,
            (Some(owner), kind) => self.private_pool(owner, kind),
        }
    }

    #[inline]
    pub(super) fn pool_mut(&mut self, home: Home) -> &mut Pool {
        pool_of(&mut self.small, &mut self.large, &mut self.private, home)
    }

    /// A function of its own, so that the default pools, which serve nearly all requests, stay on the fast path.
    #[cold]
    fn private_pool(&self, owner: OwnerId, kind: PoolKind) -> &Pool {
        match (self.private.of(owner), kind) {
            (None, PoolKind::Small) => &self.small,
            (None, PoolKind::Large) => &self.large,
            (Some(pool), PoolKind::Small) => &pool.small,
            (Some(pool), PoolKind::Large) => &pool.large,
        }
    }

    /// Garbage is collected, and free blocks age, only under a limit.
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// True if the limit allows another `segment` bytes. All of them count, even if fewer will be mapped.
    pub(super) fn within_limit(&self, segment: Bytes) -> bool {
        self.limit.is_none_or(|limit| self.reserved.0.saturating_add(segment.0) <= limit.0)
    }

    /// Enters a free block in its set.
    #[inline]
    pub(super) fn insert_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        let pool = pool_of(&mut self.small, &mut self.large, &mut self.private, block.home());
        // The block's age starts over.
        block.age_base = pool.lookups;
        pool.insert(id, block);
    }

    /// Enters a free block in its set, in place of the one with the key `old`.
    #[inline]
    pub(super) fn replace_free(&mut self, old: &FreeKey, id: BlockId) {
        let block = &mut self.blocks[id];
        let pool = pool_of(&mut self.small, &mut self.large, &mut self.private, block.home());
        block.age_base = pool.lookups;
        pool.replace(old, id, block);
    }

    /// Merges a free mapped block that is in no set with its free mapped neighbours, and enters the result in the set
    /// in their place.
    #[inline]
    pub(super) fn insert_merged(&mut self, id: BlockId) -> MergeResult {
        let block = &self.blocks[id];
        let (previous, next, pool) = (block.previous, block.next, block.home());
        let lower = self.mergeable(previous, true);
        let upper = self.mergeable(next, true);
        let mut merged = MergeResult { id, neighbours: 0, absorbed: Bytes::ZERO };
        let mut replaced = None;
        if let Some((lower, key)) = lower {
            replaced = Some(key);
            self.blocks.absorb_below(lower, id);
            merged = MergeResult { id: lower, neighbours: 1, absorbed: key.size };
        }
        if let Some((upper, key)) = upper {
            match replaced {
                Some(_) => self.pool_mut(pool).free.remove(&key),
                None => replaced = Some(key),
            }
            self.blocks.join(merged.id, upper);
            merged.neighbours += 1;
            merged.absorbed += key.size;
        }
        match replaced {
            Some(old) => self.replace_free(&old, merged.id),
            None => self.insert_free(merged.id),
        }
        merged
    }

    /// Merges unmapped address space that is in no set with its unmapped neighbours, and enters the result in the set
    /// of unmapped space.
    pub(super) fn insert_merged_space(&mut self, id: BlockId) -> BlockId {
        let block = &self.blocks[id];
        let (previous, next, pool) = (block.previous, block.next, block.home());
        let mut merged = id;
        if let Some((lower, _)) = self.mergeable(previous, false) {
            self.remove_space(lower);
            self.blocks.absorb_below(lower, id);
            merged = lower;
        }
        if let Some((upper, _)) = self.mergeable(next, false) {
            self.remove_space(upper);
            self.blocks.join(merged, upper);
        }
        self.insert_space(pool, merged);
        merged
    }

    /// Enters unmapped address space in its set.
    pub(super) fn insert_space(&mut self, pool: Home, id: BlockId) {
        let block = self.blocks[id];
        self.pool_mut(pool).insert_space(id, &block);
    }

    /// Removes unmapped address space from its set.
    pub(super) fn remove_space(&mut self, id: BlockId) {
        let block = self.blocks[id];
        self.pool_mut(block.home()).remove_space(&block);
    }

    /// The neighbour if it can be merged, and its key among the free blocks.
    #[inline]
    fn mergeable(&self, neighbour: Option<BlockId>, mapped: bool) -> Option<(BlockId, FreeKey)> {
        let id = neighbour?;
        let block = &self.blocks[id];
        (block.is_free() && block.mapped == mapped).then(|| (id, FreeKey::of(block)))
    }

    /// The blocks of a segment or range, from its first block on.
    pub(super) fn chain(&self, head: BlockId) -> impl Iterator<Item = &Block> {
        std::iter::successors(Some(head), |&id| self.blocks[id].next).map(|id| &self.blocks[id])
    }
}

/// The result of a merge.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeResult {
    pub id: BlockId,
    /// How many neighbours were absorbed.
    pub neighbours: i64,
    /// The bytes of these neighbours.
    pub absorbed: Bytes,
}

/// The pool that `home` names. A default pool stands in for a private pool that no longer exists.
#[inline]
fn pool_of<'a>(small: &'a mut Pool, large: &'a mut Pool, private: &'a mut PrivatePools, home: Home) -> &'a mut Pool {
    let owned = match home.owner {
        None => None,
        Some(owner) => private.of_mut(owner),
    };
    match (owned, home.kind) {
        (None, PoolKind::Small) => small,
        (None, PoolKind::Large) => large,
        (Some(pool), PoolKind::Small) => &mut pool.small,
        (Some(pool), PoolKind::Large) => &mut pool.large,
    }
}

/// The limit that a share of the device's memory amounts to; `None` for all of it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "PyTorch computes the limit in floating point and cuts it off, or rounds it from 2.13 on"
)]
fn limit_of(fraction: f64, total: Bytes, torch: TorchVersion) -> Option<Bytes> {
    let limit = fraction * total.0 as f64;
    let limit = if torch < TorchVersion::V2_13 { limit } else { limit.round() };
    (fraction < 1.0).then_some(Bytes(limit as u64))
}
