//! Expandable segments: ranges of address space whose pages are mapped from the low end as they are needed.

use super::source::SegmentSource;
use crate::block::{Block, BlockId};
use crate::caching::CachingAllocator;
use crate::free_set::FreeKey;
use crate::pool::Pool;
use crate::range::Range;
use crate::request::Request;
use crate::rounding;
use crate::statistics::amount;
use crate::trace::{TraceEvent, TraceSink};
use crate::units::{Address, Bytes};

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Among the free expandable blocks from `first` on, prefers a block with less room to grow: a hole between blocks
    /// rather than the growing end of a range. Stops at the first block that is no better than the one before.
    pub(super) fn prefer_hole(&self, pool: &Pool, first: BlockId) -> BlockId {
        let mut best = first;
        while self.blocks[best].is_expandable() {
            match pool.next_after(&self.blocks[best]) {
                Some(other) if self.reach(other) < self.reach(best) => best = other,
                _ => break,
            }
        }
        best
    }

    /// The bytes of a block and of the unmapped space behind it.
    fn reach(&self, id: BlockId) -> Bytes {
        let block = &self.blocks[id];
        let space = block.next.filter(|&next| !self.blocks[next].mapped).map(|next| self.blocks[next].size);
        block.size + space.unwrap_or_default()
    }

    /// The first block behind `first` that is not expandable, for when expandable segments have been switched off meanwhile.
    pub(super) fn skip_expandable(&self, pool: &Pool, first: BlockId) -> Option<BlockId> {
        let mut found = first;
        while self.blocks[found].is_expandable() {
            found = pool.next_after(&self.blocks[found])?;
        }
        Some(found)
    }

    /// Maps pages for a request at the lowest address that has room. The returned block is in no set, and often larger
    /// than the request.
    ///
    /// If the driver has too few pages, the pages mapped so far stay mapped and free.
    pub(super) fn grow_expandable(&mut self, request: &Request) -> Option<BlockId> {
        let mut id = match self.expandable_room(request) {
            Some(id) => id,
            None => self.reserve_range(request)?,
        };
        if !self.blocks[id].mapped {
            id = self.map_block(id, self.blocks[id].size.min(request.rounded))?;
        }
        while self.blocks[id].size < request.rounded {
            let next = self.blocks[id].next?;
            let missing = request.rounded - self.blocks[id].size;
            id = self.map_block(next, self.blocks[next].size.min(missing))?;
        }
        let key = FreeKey::of(&self.blocks[id]);
        self.pool_mut(request.home()).free.remove(&key);
        Some(id)
    }

    /// The lowest unmapped block of the stream (or the free block before it) from which enough usable blocks follow.
    fn expandable_room(&self, request: &Request) -> Option<BlockId> {
        let unmapped = &self.pool(request.home()).unmapped;
        unmapped
            .range((request.stream, Address(0))..)
            .take_while(|((stream, _), _)| *stream == request.stream)
            .map(|(_, &id)| self.blocks[id].previous.filter(|&before| self.blocks[before].is_free()).unwrap_or(id))
            .find(|&start| self.room_from(start, request.rounded))
    }

    fn room_from(&self, start: BlockId, wanted: Bytes) -> bool {
        let mut room = Bytes::ZERO;
        let mut at = Some(start);
        while let Some(id) = at.filter(|&id| room < wanted && self.blocks[id].is_free()) {
            room += self.blocks[id].size;
            at = self.blocks[id].next;
        }
        room >= wanted
    }

    /// Reserves a range of nine eighths of the device's memory, or of the configured size. Nothing is mapped yet.
    fn reserve_range(&mut self, request: &Request) -> Option<BlockId> {
        let page = rounding::page_size(request.pool, &self.settings);
        let mut size = rounding::range_size(self.device_total, page)?;
        if let Some(reserve) = self.settings.expandable_segments_reserve {
            let pages = reserve.bytes(self.device_total).0.div_ceil(page.0);
            size = size.min(Bytes(pages.saturating_mul(page.0)));
        }
        let base = self.source.reserve_range(size).ok()?;
        if size < request.rounded {
            // A block never spans two ranges; PyTorch checks this only here.
            self.source.release_range(base, size);
            return None;
        }
        let range = self.ranges.insert(Range { base, size, page });
        let mut block = Block::new(base, size, request.stream, request.pool, Some(range));
        block.mapped = false;
        block.owner = request.owner;
        let id = self.blocks.begin(block);
        self.count_segment(request.home(), true);
        self.heads.insert(base, id);
        self.insert_space(request.home(), id);
        Some(id)
    }

    /// Maps the first pages of an unmapped block, as many as `wanted` bytes need. Returns the free mapped block that contains them.
    fn map_block(&mut self, id: BlockId, wanted: Bytes) -> Option<BlockId> {
        let block = &self.blocks[id];
        let (address, stream, pool, home) = (block.address, block.stream, block.pool, block.home());
        let range = self.ranges.get(block.range?);
        let size = Bytes(wanted.0.next_multiple_of(range.page.0));
        self.source.map(address, size, range.page).ok()?;
        self.remove_space(id);
        if size < self.blocks[id].size {
            let rest = self.blocks.split_off(id, size);
            self.blocks[rest].requested = Bytes::ZERO;
            self.insert_space(home, rest);
        }
        self.blocks[id].mapped = true;
        let merged = self.insert_merged(id);
        self.reserved += size;
        self.statistics.num_device_alloc += 1;
        self.statistics.reserved_bytes.increase(pool, amount(size));
        self.count_private(home, size, Bytes::ZERO);
        self.sink.trace(&TraceEvent::SegmentMap { address, size, stream, pool, range: range.base, page: range.page });
        Some(merged.id)
    }

    /// Gives back the pages that lie wholly inside a free block, and the range once none of its pages is mapped.
    pub(super) fn unmap_block(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (pool, stream, home) = (block.pool, block.stream, block.home());
        let Some(range_id) = block.range else { return };
        let range = self.ranges.get(range_id);
        let Some((start, size)) = whole_pages(block, &range) else { return };
        let (before, end) = (start.distance(block.address), start.offset(size));
        let (after, requested) = (block.end().distance(end), block.requested);

        let key = FreeKey::of(block);
        self.pool_mut(home).free.remove(&key);
        let mut middle = id;
        if before > Bytes::ZERO {
            middle = self.blocks.split(id, before);
            self.blocks[id].requested = Bytes::ZERO;
            self.insert_free(id);
        }
        if after > Bytes::ZERO {
            let rest = self.blocks.split_off(middle, size);
            self.blocks[rest].requested = Bytes::ZERO;
            self.insert_free(rest);
        }
        self.blocks[middle].requested = requested;
        self.blocks[middle].mapped = false;
        let merged = self.insert_merged_space(middle);
        self.source.unmap(start, size);
        self.reserved -= size;
        self.statistics.num_device_free += 1;
        self.statistics.reserved_bytes.decrease(pool, amount(size));
        self.count_private(home, Bytes::ZERO, size);
        self.sink.trace(&TraceEvent::SegmentUnmap { address: start, size, stream });

        if !self.blocks[merged].is_split() {
            self.remove_space(merged);
            self.heads.remove(&range.base);
            self.count_segment(home, false);
            self.blocks.remove(merged);
            self.ranges.remove(range_id);
            self.source.release_range(range.base, range.size);
        }
    }
}

/// Start and size of the pages that lie wholly inside `block`.
pub(super) fn whole_pages(block: &Block, range: &Range) -> Option<(Address, Bytes)> {
    let page = range.page.0;
    let start = block.address.distance(range.base).0.next_multiple_of(page);
    let end = block.end().distance(range.base).0 / page * page;
    (end > start).then(|| (range.base.offset(Bytes(start)), Bytes(end - start)))
}
