//! The state of PyTorch's allocator at an event: all blocks, free ones too, and its statistics.

use std::collections::BTreeMap;

use super::bounds::{MOST_PIECES, most_segments};
use super::releases::{Releases, SegmentGrowth};
use super::{Event, EventKind};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{
    BlockSnapshot, BlockState, PoolId, PoolKind, SegmentSnapshot, Settings, Statistics, TorchVersion,
};

/// The allocator of one device after the events so far: the numbers of `torch.cuda.memory_stats()`, and every block of
/// every segment with the size asked for at its last use, as `torch.cuda.memory_snapshot()` shows them.
///
/// [`super::MemoryModel`] knows which memory is held and by whom. This reducer also knows how free memory is cut into
/// blocks, which half of PyTorch's statistics is about. It ignores an event that contradicts earlier ones.
#[derive(Clone, Debug)]
pub struct AllocatorState {
    /// Segments and expandable ranges by their first byte.
    homes: BTreeMap<u64, Home>,
    /// All blocks of all homes by their first byte. The blocks of a home cover it.
    blocks: BTreeMap<u64, MirrorBlock>,
    statistics: Statistics,
    settings: Settings,
    limit: Option<Bytes>,
    releases: Releases,
    /// True for a recorded history of PyTorch.
    of_history: bool,
}

/// A block that is handed out or pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedBlock {
    /// Bytes of the block.
    pub size: Bytes,
    /// Bytes asked for.
    pub requested: Bytes,
    /// The stream that its segment serves.
    pub stream: StreamId,
    /// The pool of its segment.
    pub pool: PoolKind,
}

/// Memory that blocks are cut from: a segment, or the address space of an expandable one.
#[derive(Clone, Copy, Debug)]
struct Home {
    pool: PoolKind,
    stream: StreamId,
    /// Page size of an expandable range.
    page: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct MirrorBlock {
    size: u64,
    requested: u64,
    state: BlockState,
    /// False for address space of an expandable range that has no memory behind it.
    mapped: bool,
    home: u64,
}

impl MirrorBlock {
    const fn is_free(&self) -> bool {
        self.mapped && matches!(self.state, BlockState::Inactive)
    }
}

/// The bound for counters. No device moves half as much, and a hostile stream could overflow them.
const MOST: i64 = 1 << 62;
/// The largest segment or block.
const LARGEST: u64 = 1 << 60;

impl Default for AllocatorState {
    fn default() -> Self {
        Self::new()
    }
}

impl AllocatorState {
    /// An allocator that holds nothing yet, under the default settings of PyTorch 2.11.
    #[must_use]
    pub fn new() -> Self {
        Self::of(TorchVersion::default())
    }

    /// An allocator of this version that holds nothing yet.
    fn of(torch: TorchVersion) -> Self {
        let settings = Settings::of(torch);
        Self {
            homes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            statistics: Statistics::new(settings.max_split_size, settings.torch()),
            settings,
            limit: None,
            releases: Releases::default(),
            of_history: false,
        }
    }

    /// The statistics of `torch.cuda.memory_stats()`.
    ///
    /// A successful retry leaves no event, but shows in what was released before more memory was taken. With garbage
    /// collection or oversize blocks, the number of retries is a conclusion. A reset of peaks leaves no event either:
    /// peaks here are those since the events began.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The allocator's settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The most that may be held.
    #[must_use]
    pub const fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    /// The block that is handed out or pending at `address`.
    #[must_use]
    pub fn block(&self, address: Address) -> Option<PlacedBlock> {
        let block = self.blocks.get(&address.0).filter(|block| block.state != BlockState::Inactive)?;
        let home = self.homes.get(&block.home)?;
        let (size, requested) = (Bytes(block.size), Bytes(block.requested));
        Some(PlacedBlock { size, requested, stream: home.stream, pool: home.pool })
    }

    /// Stream and pool of the segment or range that holds `address`.
    #[must_use]
    pub fn home(&self, address: Address) -> Option<(StreamId, PoolKind)> {
        let (_, block) = self.around(address.0)?;
        self.homes.get(&block.home).map(|home| (home.stream, home.pool))
    }

    /// All segments in address order with their blocks; of an expandable range each mapped run is one.
    pub fn segments(&self) -> impl Iterator<Item = SegmentSnapshot> {
        let mut mapped = self.blocks.iter().filter(|(_, block)| block.mapped).peekable();
        std::iter::from_fn(move || {
            let (&start, first) = mapped.next()?;
            let home = self.homes.get(&first.home)?;
            let mut segment = SegmentSnapshot {
                address: Address(start),
                size: Bytes(first.size),
                stream: home.stream,
                pool: home.pool,
                pool_id: PoolId::DEFAULT,
                expandable: home.page.is_some(),
                blocks: vec![snapshot(start, first)],
            };
            let mut end = start + first.size;
            while let Some((&start, block)) = mapped.next_if(|(at, block)| **at == end && block.home == first.home) {
                segment.blocks.push(snapshot(start, block));
                segment.size += Bytes(block.size);
                end += block.size;
            }
            Some(segment)
        })
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &Event) {
        // Every event adds less than `LARGEST` to any counter.
        let counters = [
            &self.statistics.allocated_bytes.all,
            &self.statistics.reserved_bytes.all,
            &self.statistics.inactive_split_bytes.all,
        ];
        if counters.iter().any(|counter| counter.allocated > MOST || counter.freed > MOST) {
            return;
        }
        // Contradicting events are ignored here; the memory model reports them.
        let _ = self.change(&event.kind);
    }

    /// Changes the state; `None` if the event contradicts earlier ones.
    fn change(&mut self, kind: &EventKind) -> Option<()> {
        match *kind {
            EventKind::Alloc { address, size, requested, .. } => {
                self.end_releases();
                self.alloc(address.0, size.0, requested.0)
            }
            EventKind::FreeRequested { address } => {
                self.end_releases();
                self.free_requested(address.0)
            }
            EventKind::FreeCompleted { address } => {
                self.releases.waited();
                self.free_completed(address.0)
            }
            EventKind::SegmentAlloc { address, size, stream, pool } => {
                self.settle_releases(size, stream);
                self.add_segment(address.0, size.0, Home { pool, stream, page: None })
            }
            EventKind::SegmentFree { address, size } => self.remove_segment(address.0, size.0),
            EventKind::SegmentMap { address, size, stream, pool, range, page } => {
                self.settle_releases(size, stream);
                self.map(address.0, size.0, range.0, Home { pool, stream, page: Some(page.0) })
            }
            EventKind::SegmentUnmap { address, size } => self.unmap(address.0, size.0),
            EventKind::EmptyCache => {
                self.statistics.num_sync_all_streams += 1;
                self.releases = Releases::Call;
                Some(())
            }
            EventKind::ResetPeaks => {
                self.statistics.reset_peak();
                Some(())
            }
            EventKind::Oom(_) => {
                self.statistics.num_ooms += 1;
                // The request failed once more after everything had been released.
                self.count_retry();
                self.releases = Releases::Nobodys;
                Some(())
            }
            EventKind::Limit { limit } => {
                self.limit = limit;
                Some(())
            }
            EventKind::Settings(ref settings) => {
                let conf = settings.get("alloc-conf")?;
                self.set_conf(if &*conf.value == "default" { "" } else { &conf.value })
            }
            EventKind::Begin(ref about) => {
                *self = Self { of_history: about.history.is_some(), ..Self::of(about.torch) };
                Some(())
            }
            _ => Some(()),
        }
    }

    /// Puts a configuration string in force.
    fn set_conf(&mut self, conf: &str) -> Option<()> {
        if conf == self.settings.text() {
            return Some(());
        }
        self.settings = Settings::parse_for(self.settings.torch(), conf).ok()?;
        if self.homes.is_empty() {
            self.statistics.max_split_size =
                Statistics::new(self.settings.max_split_size, self.settings.torch()).max_split_size;
        }
        Some(())
    }

    fn alloc(&mut self, address: u64, size: u64, requested: u64) -> Option<()> {
        let (mut start, block) = self.around(address)?;
        let end =
            address.checked_add(size).filter(|end| size > 0 && requested <= size && *end <= start + block.size)?;
        if !block.is_free() || self.blocks.len() >= MOST_PIECES {
            return None;
        }
        let home = *self.homes.get(&block.home)?;
        let (pool, plain) = (home.pool, home.page.is_none());
        if start < address {
            // Only a stream that rebuilds a state has blocks that begin inside a free block.
            let was_split = self.is_part(start, &block);
            self.cut(start, address - start)?;
            if plain && was_split {
                self.statistics.inactive_split.increase(pool, 1);
            } else if plain {
                self.statistics.inactive_split.increase(pool, 2);
                self.statistics.inactive_split_bytes.increase(pool, amount(block.size));
            }
            start = address;
        }
        let block = *self.blocks.get(&start)?;
        let was_split = self.is_part(start, &block);
        let rest = start + block.size - end;
        if rest > 0 {
            self.cut(start, size)?;
            if plain && was_split {
                self.statistics.inactive_split_bytes.decrease(pool, amount(size));
            } else if plain {
                self.statistics.inactive_split.increase(pool, 1);
                self.statistics.inactive_split_bytes.increase(pool, amount(rest));
            }
        } else if plain && was_split {
            self.statistics.inactive_split.decrease(pool, 1);
            self.statistics.inactive_split_bytes.decrease(pool, amount(size));
        }
        let block = self.blocks.get_mut(&start)?;
        (block.state, block.requested) = (BlockState::ActiveAllocated, requested);
        self.statistics.allocation.increase(pool, 1);
        self.statistics.allocated_bytes.increase(pool, amount(size));
        self.statistics.active.increase(pool, 1);
        self.statistics.active_bytes.increase(pool, amount(size));
        self.statistics.requested_bytes.increase(pool, amount(requested));
        if Bytes(size) >= self.settings.max_split_size {
            self.statistics.oversize_allocations.increase(1);
        }
        Some(())
    }

    fn free_requested(&mut self, address: u64) -> Option<()> {
        let block = self.blocks.get_mut(&address).filter(|block| block.state == BlockState::ActiveAllocated)?;
        block.state = BlockState::ActivePendingFree;
        let (size, pool) = (block.size, self.homes.get(&block.home)?.pool);
        self.statistics.allocation.decrease(pool, 1);
        self.statistics.allocated_bytes.decrease(pool, amount(size));
        if Bytes(size) >= self.settings.max_split_size {
            self.statistics.oversize_allocations.decrease(1);
        }
        Some(())
    }

    fn free_completed(&mut self, address: u64) -> Option<()> {
        let block = self.blocks.get_mut(&address).filter(|block| block.state == BlockState::ActivePendingFree)?;
        block.state = BlockState::Inactive;
        let MirrorBlock { size, requested, home, .. } = *block;
        let Home { pool, page, .. } = *self.homes.get(&home)?;
        let merged = self.merge(address)?;
        self.statistics.active.decrease(pool, 1);
        self.statistics.active_bytes.decrease(pool, amount(size));
        self.statistics.requested_bytes.decrease(pool, amount(requested));
        if page.is_none() {
            let (mut count, mut bytes) = (-merged.neighbours, -amount(merged.absorbed));
            if self.is_split(merged.start) {
                count += 1;
                bytes += amount(size + merged.absorbed);
            }
            self.statistics.inactive_split.change(pool, count);
            self.statistics.inactive_split_bytes.change(pool, bytes);
        }
        Some(())
    }

    fn add_segment(&mut self, address: u64, size: u64, home: Home) -> Option<()> {
        let end = address.checked_add(size).filter(|_| size > 0 && size <= LARGEST)?;
        let covered = self.around(address).is_some_and(|(start, block)| block.mapped || start == address);
        if covered
            || self.blocks.range(address..end).next().is_some()
            || self.homes.len() >= most_segments(self.of_history)
        {
            return None;
        }
        self.homes.insert(address, home);
        let state = BlockState::Inactive;
        self.blocks.insert(address, MirrorBlock { size, requested: 0, state, mapped: true, home: address });
        self.statistics.segment.increase(home.pool, 1);
        self.count_growth(home.pool, size);
        if Bytes(size) >= self.settings.max_split_size {
            self.statistics.oversize_segments.increase(1);
        }
        Some(())
    }

    fn remove_segment(&mut self, address: u64, size: u64) -> Option<()> {
        let home = *self.homes.get(&address).filter(|home| home.page.is_none())?;
        self.blocks.get(&address).filter(|block| block.is_free() && block.size == size && block.home == address)?;
        self.release(home.pool == PoolKind::Small, (Bytes(size), home.stream));
        self.homes.remove(&address);
        self.blocks.remove(&address);
        self.statistics.segment.decrease(home.pool, 1);
        self.count_release(home.pool, size);
        if Bytes(size) >= self.settings.max_split_size {
            self.statistics.oversize_segments.decrease(1);
        }
        Some(())
    }

    fn map(&mut self, address: u64, size: u64, range: u64, home: Home) -> Option<()> {
        address.checked_add(size).filter(|_| size > 0 && size <= LARGEST)?;
        if home.page == Some(0) || range > address || self.blocks.len() >= MOST_PIECES {
            return None;
        }
        if !self.homes.contains_key(&range) && !self.blocks.contains_key(&range) {
            self.homes.insert(range, home);
            // The end of the range is unknown, but nothing depends on it.
            let (size, state) = (u64::MAX - range, BlockState::Inactive);
            self.blocks.insert(range, MirrorBlock { size, requested: 0, state, mapped: false, home: range });
        }
        let (start, block) = self.around(address).filter(|(_, block)| block.home == range && !block.mapped)?;
        let end = address + size;
        let mut inside = self.blocks.range(start + 1..end);
        if end > start + block.size || inside.next().is_some() {
            return None;
        }
        if start < address {
            self.cut(start, address - start)?;
        }
        if address + size < start + block.size {
            self.cut(address, size)?;
            self.blocks.get_mut(&end)?.requested = 0;
        }
        self.blocks.get_mut(&address)?.mapped = true;
        self.merge(address)?;
        self.count_growth(self.homes.get(&range)?.pool, size);
        Some(())
    }

    fn unmap(&mut self, address: u64, size: u64) -> Option<()> {
        let (start, block) = self.around(address).filter(|(_, block)| block.is_free())?;
        let end = address.checked_add(size).filter(|end| size > 0 && *end <= start + block.size)?;
        let Home { pool, stream, .. } = *self.homes.get(&block.home).filter(|home| home.page.is_some())?;
        self.release(true, (Bytes(size), stream));
        if start < address {
            self.cut(start, address - start)?;
            self.blocks.get_mut(&start)?.requested = 0;
        }
        if end < start + block.size {
            self.cut(address, size)?;
            self.blocks.get_mut(&end)?.requested = 0;
        }
        let middle = self.blocks.get_mut(&address)?;
        (middle.mapped, middle.requested) = (false, block.requested);
        let merged = self.merge(address)?;
        self.count_release(pool, size);
        if !self.is_split(merged.start) {
            self.blocks.remove(&merged.start);
            self.homes.remove(&block.home);
        }
        Some(())
    }

    fn count_growth(&mut self, pool: PoolKind, size: u64) {
        self.statistics.num_device_alloc += 1;
        self.statistics.reserved_bytes.increase(pool, amount(size));
    }

    fn count_release(&mut self, pool: PoolKind, size: u64) {
        self.statistics.num_device_free += 1;
        self.statistics.reserved_bytes.decrease(pool, amount(size));
    }

    fn count_retry(&mut self) {
        self.statistics.num_alloc_retries += 1;
        self.statistics.num_sync_all_streams += 1;
    }

    /// Notes that memory is released to the driver.
    fn release(&mut self, of_last_resort: bool, segment: (Bytes, StreamId)) {
        let reserved = self.reserved();
        self.releases.release(reserved, of_last_resort, segment);
    }

    /// Notes that no more memory is taken: the releases so far came from a call that left no event.
    fn end_releases(&mut self) {
        if self.releases.end() {
            self.statistics.num_sync_all_streams += 1;
        }
    }

    /// Decides, now that at least `size` bytes more are taken, whether the releases just before were a retry's.
    fn settle_releases(&mut self, size: Bytes, stream: StreamId) {
        let mut releases = std::mem::take(&mut self.releases);
        let (reserved, settings, limit) = (self.reserved(), &self.settings, self.limit);
        if releases.settle(SegmentGrowth { size, stream, reserved, settings, limit }, || self.can_release()) {
            self.count_retry();
        }
    }

    /// Bytes held from the driver.
    fn reserved(&self) -> Bytes {
        Bytes(u64::try_from(self.statistics.reserved_bytes.all.current).unwrap_or(0))
    }

    /// True if something could be released to the driver: a whole segment, or whole pages.
    fn can_release(&self) -> bool {
        self.blocks.iter().filter(|(_, block)| block.is_free()).any(|(&start, block)| {
            match self.homes.get(&block.home).and_then(|home| home.page) {
                None => !self.is_part(start, block),
                Some(page) => {
                    let offset = start - block.home;
                    offset.div_ceil(page) < (offset + block.size) / page
                }
            }
        })
    }

    /// The block that holds `address`.
    fn around(&self, address: u64) -> Option<(u64, MirrorBlock)> {
        let (&start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.size).then_some((start, *block))
    }

    /// The neighbours of a block in its home, by their first bytes.
    fn neighbours(&self, start: u64) -> (Option<u64>, Option<u64>) {
        let Some(block) = self.blocks.get(&start) else { return (None, None) };
        let same = |(at, other): (&u64, &MirrorBlock)| (other.home == block.home).then_some(*at);
        let previous = self.blocks.range(..start).next_back().and_then(same);
        (previous, self.blocks.get_key_value(&(start + block.size)).and_then(same))
    }

    fn is_split(&self, start: u64) -> bool {
        self.blocks.get(&start).is_some_and(|block| self.is_part(start, block))
    }

    /// True if a block is smaller than its home.
    fn is_part(&self, start: u64, block: &MirrorBlock) -> bool {
        let next = || self.blocks.get(&(start + block.size)).is_some_and(|next| next.home == block.home);
        start != block.home || next()
    }

    /// Cuts `front` bytes off the start of a free block. The rest keeps the requested size, as PyTorch's does.
    fn cut(&mut self, start: u64, front: u64) -> Option<()> {
        let block = self.blocks.get_mut(&start)?;
        let rest = MirrorBlock { size: block.size - front, ..*block };
        block.size = front;
        self.blocks.insert(start + front, rest);
        Some(())
    }

    /// Merges a free block with free neighbours of its kind. The result has the block's requested size.
    fn merge(&mut self, start: u64) -> Option<MergedBlock> {
        let (previous, next) = self.neighbours(start);
        let mut block = *self.blocks.get(&start)?;
        let alike = |other: &MirrorBlock| other.state == BlockState::Inactive && other.mapped == block.mapped;
        let taken =
            |at: Option<u64>| at.and_then(|at| Some((at, self.blocks.get(&at).filter(|other| alike(other))?.size)));
        let (lower, upper) = (taken(previous), taken(next));
        let mut merged = MergedBlock { start, neighbours: 0, absorbed: 0 };
        if let Some((at, size)) = upper {
            self.blocks.remove(&at);
            block.size += size;
            merged = MergedBlock { neighbours: merged.neighbours + 1, absorbed: merged.absorbed + size, ..merged };
        }
        if let Some((at, size)) = lower {
            self.blocks.remove(&start);
            block.size += size;
            merged = MergedBlock { start: at, neighbours: merged.neighbours + 1, absorbed: merged.absorbed + size };
        }
        self.blocks.insert(merged.start, block);
        Some(merged)
    }
}

/// The result of a merge.
#[derive(Clone, Copy, Debug)]
struct MergedBlock {
    start: u64,
    neighbours: i64,
    /// The bytes of these neighbours.
    absorbed: u64,
}

fn snapshot(start: u64, block: &MirrorBlock) -> BlockSnapshot {
    let (size, requested) = (Bytes(block.size), Bytes(block.requested));
    BlockSnapshot { address: Address(start), size, requested, state: block.state }
}

/// A size as the statistics count it.
#[expect(clippy::cast_possible_wrap, reason = "sizes are at most 2^60")]
const fn amount(bytes: u64) -> i64 {
    bytes as i64
}

#[cfg(test)]
mod tests;
