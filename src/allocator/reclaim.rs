//! Giving memory back to the driver: by garbage collection, from oversize blocks, or the whole cache.

use super::source::SegmentSource;
use crate::block::{BlockId, PoolKind};
use crate::caching::CachingAllocator;
use crate::free_set::FreeKey;
use crate::home::Home;
use crate::request::Request;
use crate::settings::Settings;
use crate::statistics::amount;
use crate::trace::{TraceEvent, TraceSink};
use crate::units::Bytes;

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Waits for all pending blocks, then gives back every segment and page that no block occupies
    /// (`torch.cuda.empty_cache`). During a graph capture only private pools without users give memory back.
    pub fn empty_cache(&mut self) {
        self.release_cached();
        self.verify(None);
    }

    /// Gives back large segments, then small ones, then those of private pools without users. In each pool, whole
    /// segments go in the order of the free set, then pages.
    pub(super) fn release_cached(&mut self) {
        if !self.holds_events() {
            self.synchronize_events();
            self.release_home(Home { owner: None, kind: PoolKind::Large });
            self.release_home(Home { owner: None, kind: PoolKind::Small });
        }
        self.release_private(None);
    }

    pub(super) fn release_home(&mut self, pool: Home) {
        for id in self.pool(pool).whole() {
            if self.is_releasable(id) {
                self.release_block(id);
            }
        }
        // Looked up only now: the splits below reuse the ids of the blocks that went above.
        for id in self.pool(pool).expandable() {
            self.unmap_block(id);
        }
        self.pool_mut(pool).note_returned();
    }

    /// Gives a whole cudaMalloc segment back.
    fn release_block(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let home = block.home();
        let (address, size, stream, pool, key) =
            (block.address, block.size, block.stream, block.pool, FreeKey::of(block));
        self.statistics.num_device_free += 1;
        self.sink.trace(&TraceEvent::SegmentFree { address, size, stream });
        self.source.free(address, size);
        self.reserved -= size;
        self.statistics.segment.decrease(pool, 1);
        self.statistics.reserved_bytes.decrease(pool, amount(size));
        if size >= self.settings.max_split_size {
            self.statistics.oversize_segments.decrease(1);
        }
        self.pool_mut(home).free.remove(&key);
        self.count_segment(home, false);
        self.count_private(home, Bytes::ZERO, size);
        self.heads.remove(&address);
        self.blocks.remove(id);
    }

    /// Gives back cached oversize segments of the request's pool and stream: the smallest that is large enough, or else
    /// the largest ones until their sum is large enough. They stay given back even if the sum is too small.
    ///
    /// PyTorch 2.11 can give back part of a split segment here after settings changed at run time, which corrupts
    /// memory. This allocator skips blocks of split segments instead.
    pub(super) fn release_oversize(&mut self, request: &Request) -> bool {
        let max_split = self.settings.max_split_size;
        if max_split == Settings::UNLIMITED {
            return false;
        }
        let wanted = request.rounded.max(max_split);
        let first = FreeKey::at_least(request.stream, wanted);
        let pool = self.pool(request.home());
        if let Some(found) = pool.first_from(first)
            && self.is_releasable(found)
        {
            self.release_block(found);
            return true;
        }
        let least = FreeKey::at_least(request.stream, max_split);
        let oversize = std::iter::successors(pool.first_from(least), |&id| pool.next_after(&self.blocks[id]));
        let smaller: Vec<BlockId> = oversize
            .take_while(|&id| FreeKey::of(&self.blocks[id]) < first)
            .filter(|&id| self.is_releasable(id))
            .collect();
        let mut released = Bytes::ZERO;
        for id in smaller.into_iter().rev() {
            if released >= wanted {
                break;
            }
            released += self.blocks[id].size;
            self.release_block(id);
        }
        released >= wanted
    }

    fn is_releasable(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        !block.is_expandable() && !block.is_split()
    }

    /// Gives back the cached large segments that have been unused for longest, once the allocator holds more than the
    /// threshold's share of the limit.
    pub(super) fn collect_garbage(&mut self) {
        if self.beyond_threshold().is_none() {
            return;
        }
        self.large.find_whole(&self.blocks);
        for id in self.garbage(self.large.lookups) {
            self.release_block(id);
        }
    }

    /// How much more is held than the threshold's share of the limit; `None` if garbage collection is off.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "PyTorch computes the threshold in floating point"
    )]
    fn beyond_threshold(&self) -> Option<Bytes> {
        let limit = self.limit.filter(|_| self.collects_garbage())?;
        let threshold = Bytes((self.settings.garbage_collection_threshold * limit.0 as f64) as u64);
        (self.reserved > threshold).then(|| self.reserved - threshold)
    }

    /// The blocks that a garbage collection would give back, in order, if the large pool's clock stood at `lookups`.
    ///
    /// Each pass takes the segments that are at least as old as the average of those left when the pass began, until
    /// enough is found or a pass finds nothing.
    #[expect(clippy::cast_precision_loss, reason = "PyTorch computes the average age in floating point")]
    pub(super) fn garbage(&self, lookups: u64) -> Vec<BlockId> {
        let mut victims = Vec::new();
        let Some(target) = self.beyond_threshold() else { return victims };
        let age = |id: BlockId| lookups.saturating_sub(self.blocks[id].age_base) as f64;
        let mut unsplit = self.large.whole();
        unsplit.retain(|&id| !self.blocks[id].is_split());
        let mut ages: f64 = unsplit.iter().map(|&id| age(id)).sum();
        let mut reclaimed = Bytes::ZERO;
        let mut found = true;
        while reclaimed < target && found && !unsplit.is_empty() {
            let average = ages / unsplit.len() as f64;
            found = false;
            unsplit.retain(|&id| {
                let taken = !self.blocks[id].is_expandable() && age(id) >= average;
                if taken {
                    reclaimed += self.blocks[id].size;
                    ages -= age(id);
                    victims.push(id);
                    found = true;
                }
                !taken
            });
        }
        victims
    }
}
