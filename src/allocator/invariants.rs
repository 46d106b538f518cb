//! What must hold after every operation; checked in debug builds only.
//!
//! Each operation checks the block it touched and its neighbours. Every [`EVERYTHING`] operations all blocks are walked
//! and compared with the sets, the tables and the statistics.

use super::source::SegmentSource;
use crate::block::{BlockId, Usage};
use crate::caching::CachingAllocator;
use crate::free_set::FreeKey;
use crate::statistics::amount;
use crate::trace::TraceSink;
use crate::units::{Address, Bytes};

/// Operations between two walks over all blocks.
const EVERYTHING: u64 = 4096;

/// Returns `Err` with the sentence unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($sentence:tt)+) => {
        if !$condition {
            return Err(format!($($sentence)+));
        }
    };
}

/// The sums over all blocks.
#[derive(Default)]
struct Totals {
    blocks: usize,
    mapped: Bytes,
    segments: i64,
    active: i64,
    active_bytes: Bytes,
    allocated_bytes: Bytes,
    requested_bytes: Bytes,
    inactive_split: i64,
    inactive_split_bytes: Bytes,
    free: usize,
    unmapped: usize,
    live: usize,
}

impl<S: SegmentSource, T: TraceSink> CachingAllocator<S, T> {
    /// Checks the block handed out at `touched` and its neighbours, and everything now and then. Debug builds only.
    #[inline]
    pub(super) fn verify(&mut self, touched: Option<Address>) {
        if cfg!(debug_assertions) {
            self.operations += 1;
            let mut found = touched.and_then(|address| self.live.get(address)).map_or(Ok(()), |id| self.check_near(id));
            if self.operations.is_multiple_of(EVERYTHING) {
                found = found.and_then(|()| self.check_invariants());
            }
            debug_assert!(found.is_ok(), "allocator invariant: {}", found.err().unwrap_or_default());
        }
    }

    fn check_near(&self, id: BlockId) -> Result<(), String> {
        let block = &self.blocks[id];
        for near in [block.previous, Some(id), block.next].into_iter().flatten() {
            self.check_block(near)?;
        }
        Ok(())
    }

    /// Checks the block's links and its set, and that it could not merge with the block behind it.
    fn check_block(&self, id: BlockId) -> Result<(), String> {
        let block = &self.blocks[id];
        let at = block.address;
        ensure!(block.size > Bytes::ZERO, "block {at} is empty");
        if let Some(next) = block.next {
            let above = &self.blocks[next];
            ensure!(above.previous == Some(id), "the block behind {at} does not link back");
            ensure!(above.address == block.end(), "a gap or overlap follows block {at}");
            ensure!(above.range == block.range, "block {at} and the one behind lie in different ranges");
            ensure!(
                !(block.is_free() && above.is_free() && block.mapped == above.mapped),
                "block {at} and the one behind are both free but not merged"
            );
        }
        let pool = self.pool(block.home());
        let free = pool.free.get(&FreeKey::of(block)) == Some(id);
        let unmapped = pool.unmapped.get(&(block.stream, at)) == Some(&id);
        ensure!(free == (block.is_free() && block.mapped), "the set of free blocks is wrong about {at}");
        ensure!(unmapped != block.mapped, "the set of unmapped blocks is wrong about {at}");
        let live = self.live.get(at) == Some(id);
        ensure!(live == (block.usage == Usage::Allocated), "the table of live blocks is wrong about {at}");
        ensure!(block.mapped || block.is_free(), "block {at} is in use but not mapped");
        Ok(())
    }

    /// Walks over all blocks and checks that they cover their segments, that each is in exactly the set it belongs to,
    /// that free neighbours are merged, and that the statistics are their sums. Slow; debug builds call it every few
    /// thousand operations.
    ///
    /// # Errors
    /// A sentence that says which invariant does not hold.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut totals = Totals::default();
        let mut last_end = Address(0);
        for (&address, &head) in &self.heads {
            ensure!(self.blocks[head].previous.is_none(), "segment {address} does not begin with its first block");
            ensure!(self.blocks[head].address == address, "segment {address} begins elsewhere");
            ensure!(address >= last_end, "segment {address} overlaps the one before");
            totals.segments += i64::from(!self.blocks[head].is_expandable());
            let mut next = Some(head);
            while let Some(id) = next {
                self.check_block(id)?;
                self.add_block(&mut totals, id);
                last_end = self.blocks[id].end();
                next = self.blocks[id].next;
            }
            if let Some(range) = self.blocks[head].range.map(|id| self.ranges.get(id)) {
                ensure!(last_end == range.base.offset(range.size), "blocks do not cover range {address}");
            }
        }
        self.check_totals(&totals)
    }

    fn add_block(&self, totals: &mut Totals, id: BlockId) {
        let block = &self.blocks[id];
        totals.blocks += 1;
        if !block.mapped {
            totals.unmapped += 1;
            return;
        }
        totals.mapped += block.size;
        match block.usage {
            Usage::Free => {
                totals.free += 1;
                if block.is_split() && !block.is_expandable() {
                    totals.inactive_split += 1;
                    totals.inactive_split_bytes += block.size;
                }
                return;
            }
            Usage::Allocated => {
                totals.live += 1;
                totals.allocated_bytes += block.size;
            }
            Usage::Pending(_) => {}
        }
        totals.active += 1;
        totals.active_bytes += block.size;
        totals.requested_bytes += block.requested;
    }

    fn check_totals(&self, totals: &Totals) -> Result<(), String> {
        ensure!(totals.blocks == self.blocks.len(), "{} blocks lie in no segment", self.blocks.len() - totals.blocks);
        ensure!(totals.live == self.live.len(), "the table of live blocks has strangers");
        let pools =
            || [&self.small, &self.large].into_iter().chain(self.private.iter().flat_map(|p| [&p.small, &p.large]));
        let (free, unmapped): (Vec<_>, Vec<_>) = pools().map(|pool| (pool.free.len(), pool.unmapped.len())).unzip();
        ensure!(totals.free == free.iter().sum::<usize>(), "the sets of free blocks have strangers");
        ensure!(totals.unmapped == unmapped.iter().sum::<usize>(), "the sets of unmapped blocks have strangers");
        ensure!(totals.mapped == self.reserved, "blocks hold {} but {} is reserved", totals.mapped, self.reserved);
        let statistics = &self.statistics;
        for (name, pools, sum) in [
            ("allocation", &statistics.allocation, i64::try_from(totals.live).unwrap_or(i64::MAX)),
            ("allocated_bytes", &statistics.allocated_bytes, amount(totals.allocated_bytes)),
            ("active", &statistics.active, totals.active),
            ("active_bytes", &statistics.active_bytes, amount(totals.active_bytes)),
            ("requested_bytes", &statistics.requested_bytes, amount(totals.requested_bytes)),
            ("reserved_bytes", &statistics.reserved_bytes, amount(totals.mapped)),
            ("segment", &statistics.segment, totals.segments),
            ("inactive_split", &statistics.inactive_split, totals.inactive_split),
            ("inactive_split_bytes", &statistics.inactive_split_bytes, amount(totals.inactive_split_bytes)),
        ] {
            let (all, parts) = (pools.all.current, pools.small_pool.current + pools.large_pool.current);
            ensure!(all == sum, "{name} says {all}, the blocks add up to {sum}");
            ensure!(all == parts, "{name} says {all}, its pools add up to {parts}");
        }
        let streams_agree = pools().all(|pool| pool.free.iter().all(|(key, id)| key == FreeKey::of(&self.blocks[id])));
        ensure!(streams_agree, "a free block stands under another's key");
        Ok(())
    }
}
