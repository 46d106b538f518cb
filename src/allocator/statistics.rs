//! The statistics of `torch.cuda.memory_stats()`: 122 numbers under PyTorch's names, one more from 2.12 on.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::block::PoolKind;
use crate::pool_id::PoolId;
use crate::units::Bytes;
use crate::version::TorchVersion;

/// One counted quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The value now. Signed: the oversize counters can go below zero when `max_split_size_mb` changes at run time.
    pub current: i64,
    /// The highest value so far.
    pub peak: i64,
    /// The sum of all increases.
    pub allocated: i64,
    /// The sum of all decreases.
    pub freed: i64,
}

impl Counter {
    /// Adds to the value.
    #[inline]
    pub fn increase(&mut self, amount: i64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    /// Subtracts from the value.
    #[inline]
    pub fn decrease(&mut self, amount: i64) {
        self.current -= amount;
        self.freed += amount;
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// A quantity for both pools together and for each pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Both pools together.
    pub all: Counter,
    /// The small pool: blocks of up to 1 MiB.
    pub small_pool: Counter,
    /// The large pool: larger blocks.
    pub large_pool: Counter,
}

impl PoolCounters {
    #[inline]
    fn of(&mut self, pool: PoolKind) -> &mut Counter {
        match pool {
            PoolKind::Small => &mut self.small_pool,
            PoolKind::Large => &mut self.large_pool,
        }
    }

    /// Adds to the value of one pool.
    #[inline]
    pub fn increase(&mut self, pool: PoolKind, amount: i64) {
        self.all.increase(amount);
        self.of(pool).increase(amount);
    }

    /// Subtracts from the value of one pool.
    #[inline]
    pub fn decrease(&mut self, pool: PoolKind, amount: i64) {
        self.all.decrease(amount);
        self.of(pool).decrease(amount);
    }

    /// Applies a net change to one pool, as one increase or one decrease.
    pub fn change(&mut self, pool: PoolKind, amount: i64) {
        if amount >= 0 {
            self.increase(pool, amount);
        } else {
            self.decrease(pool, -amount);
        }
    }
}

/// Everything that `torch.cuda.memory_stats()` reports for one device.
///
/// Serialises as PyTorch's flat dictionary: names joined by dots, in sorted order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Allocated blocks.
    pub allocation: PoolCounters,
    /// Segments from cudaMalloc.
    pub segment: PoolCounters,
    /// Blocks allocated or pending.
    pub active: PoolCounters,
    /// Free blocks in split segments.
    pub inactive_split: PoolCounters,
    /// Bytes of allocated blocks.
    pub allocated_bytes: PoolCounters,
    /// Bytes held from the driver.
    pub reserved_bytes: PoolCounters,
    /// Bytes of blocks allocated or pending.
    pub active_bytes: PoolCounters,
    /// Bytes of free blocks in split segments.
    pub inactive_split_bytes: PoolCounters,
    /// Bytes that the program asked for, of blocks allocated or pending.
    pub requested_bytes: PoolCounters,
    /// Blocks of at least `max_split_size`.
    pub oversize_allocations: Counter,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Counter,
    /// Requests that gave all cached memory back and tried once more.
    pub num_alloc_retries: i64,
    /// Requests that failed.
    pub num_ooms: i64,
    /// How often all events of all streams were waited for.
    pub num_sync_all_streams: i64,
    /// Calls that took memory from the driver.
    pub num_device_alloc: i64,
    /// Calls that gave memory back to the driver.
    pub num_device_free: i64,
    /// Requests refused before the driver was asked (`throw_on_cudamalloc_oom`); `None` before 2.12, where PyTorch does
    /// not count them.
    pub num_oom_rejections: Option<i64>,
    /// Bytes held from the driver by each private pool that ever held any; `None` before 2.13, where PyTorch does not count them.
    pub reserved_bytes_by_private_pools: Option<BTreeMap<PoolId, PoolCounters>>,
    /// `max_split_size` in bytes when the allocator was created; -1: unlimited.
    pub max_split_size: i64,
}

/// The prefix of a private pool's keys.
const BY_PRIVATE_POOLS: &str = "reserved_bytes_by_private_pools";
/// How many keys 2.11 has.
const KEYS: usize = 122;

impl Statistics {
    /// Statistics of an allocator that has done nothing yet, under this `max_split_size`.
    #[expect(clippy::cast_possible_wrap, reason = "PyTorch shows 2^64 - 1 as -1, and so do we")]
    #[must_use]
    pub fn new(max_split: Bytes, torch: TorchVersion) -> Self {
        let pools = PoolCounters::default();
        let counter = Counter::default();
        Self {
            allocation: pools,
            segment: pools,
            active: pools,
            inactive_split: pools,
            allocated_bytes: pools,
            reserved_bytes: pools,
            active_bytes: pools,
            inactive_split_bytes: pools,
            requested_bytes: pools,
            oversize_allocations: counter,
            oversize_segments: counter,
            num_alloc_retries: 0,
            num_ooms: 0,
            num_sync_all_streams: 0,
            num_device_alloc: 0,
            num_device_free: 0,
            num_oom_rejections: (torch >= TorchVersion::V2_12).then_some(0),
            reserved_bytes_by_private_pools: (torch >= TorchVersion::V2_13).then(BTreeMap::new),
            max_split_size: max_split.0 as i64,
        }
    }

    /// All numbers under PyTorch's flattened names, in sorted order.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, i64)> {
        let mut entries = Vec::with_capacity(KEYS);
        for (name, pools) in self.per_pool() {
            push_pools(&mut entries, name, pools);
        }
        for (id, pools) in self.reserved_bytes_by_private_pools.iter().flatten() {
            push_pools(&mut entries, &format!("{BY_PRIVATE_POOLS}.{id}"), pools);
        }
        push_counter(&mut entries, "oversize_allocations", self.oversize_allocations);
        push_counter(&mut entries, "oversize_segments", self.oversize_segments);
        for (name, value) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("max_split_size", self.max_split_size),
        ] {
            entries.push((name.to_owned(), value));
        }
        entries.extend(self.num_oom_rejections.map(|count| ("num_oom_rejections".to_owned(), count)));
        entries.sort();
        entries
    }

    /// PyTorch's flattened names of the numbers that any version has, in sorted order.
    #[must_use]
    pub fn names() -> Vec<String> {
        Self::new(Bytes::ZERO, TorchVersion::V2_15).entries().into_iter().map(|(name, _)| name).collect()
    }

    /// Makes every peak the current value, as `torch.cuda.reset_peak_memory_stats()` does.
    pub fn reset_peak(&mut self) {
        self.each_counter(Counter::reset_peak);
    }

    /// Counts bytes that a private pool took from the driver and gave back.
    pub(super) fn count_private(&mut self, id: PoolId, kind: PoolKind, taken: Bytes, given_back: Bytes) {
        let Some(pools) = &mut self.reserved_bytes_by_private_pools else { return };
        let counters = pools.entry(id).or_default();
        if taken > Bytes::ZERO {
            counters.increase(kind, amount(taken));
        }
        if given_back > Bytes::ZERO {
            counters.decrease(kind, amount(given_back));
        }
    }

    fn per_pool(&self) -> [(&'static str, &PoolCounters); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    fn each_counter(&mut self, change: fn(&mut Counter)) {
        for pools in [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ] {
            change(&mut pools.all);
            change(&mut pools.small_pool);
            change(&mut pools.large_pool);
        }
        for pools in self.reserved_bytes_by_private_pools.iter_mut().flat_map(BTreeMap::values_mut) {
            change(&mut pools.all);
            change(&mut pools.small_pool);
            change(&mut pools.large_pool);
        }
        change(&mut self.oversize_allocations);
        change(&mut self.oversize_segments);
    }
}

fn push_pools(entries: &mut Vec<(String, i64)>, name: &str, pools: &PoolCounters) {
    for (pool, counter) in [("all", pools.all), ("small_pool", pools.small_pool), ("large_pool", pools.large_pool)] {
        push_counter(entries, &format!("{name}.{pool}"), counter);
    }
}

pub(super) fn push_counter(entries: &mut Vec<(String, i64)>, name: &str, counter: Counter) {
    let Counter { current, peak, allocated, freed } = counter;
    for (field, value) in [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)] {
        entries.push((format!("{name}.{field}"), value));
    }
}

impl Serialize for Statistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.entries();
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (name, value) in entries {
            map.serialize_entry(&name, &value)?;
        }
        map.end()
    }
}

/// A size as a signed number for the statistics.
#[expect(clippy::cast_possible_wrap, reason = "requests stay below 2^60 bytes")]
#[inline]
pub(super) const fn amount(bytes: Bytes) -> i64 {
    bytes.0 as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_122_sorted_names() {
        let entries = Statistics::new(Bytes(u64::MAX), TorchVersion::V2_11).entries();
        assert_eq!(entries.len(), KEYS);
        assert!(entries.is_sorted());
        assert_eq!(entries[0].0, "active.all.allocated");
        assert!(entries.contains(&("max_split_size".to_owned(), -1)));
        assert!(entries.iter().any(|(name, _)| name == "allocation.small_pool.peak"));
    }

    #[test]
    fn a_reset_of_peaks_touches_what_pytorchs_does() {
        let mut statistics = Statistics::new(Bytes(0), TorchVersion::V2_11);
        statistics.active.increase(PoolKind::Small, 5);
        statistics.active.decrease(PoolKind::Small, 3);
        statistics.oversize_segments.increase(4);
        statistics.oversize_segments.decrease(4);
        statistics.reset_peak();
        assert_eq!(statistics.active.all, Counter { current: 2, peak: 2, allocated: 5, freed: 3 });
        assert_eq!(statistics.oversize_segments.peak, 0);
    }

    #[test]
    fn a_net_change_counts_once() {
        let mut pools = PoolCounters::default();
        pools.change(PoolKind::Large, 2);
        pools.change(PoolKind::Large, -1);
        pools.change(PoolKind::Large, 0);
        assert_eq!(pools.large_pool, Counter { current: 1, peak: 2, allocated: 2, freed: 1 });
        assert_eq!(pools.all, pools.large_pool);
        assert_eq!(pools.small_pool, Counter::default());
    }
}
