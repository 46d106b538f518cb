//! How much memory the recorded device has, as far as addresses reveal it.
//!
//! No snapshot records the device's memory, but it matters for expandable segments: each address range spans nine
//! eighths of it. A range ends before everything that lies above it while it exists, so the nearest neighbour above
//! gives an upper bound. As the driver places ranges next to each other, a history with two ranges gives a close bound.

use std::collections::BTreeMap;

use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{Seed, Settings, largest_device};

/// The assumed device memory if it is unknown and addresses give no bound either: more than any device has.
pub const UNKNOWN: Bytes = Bytes::gib(1024);

/// What the addresses of expandable segments reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeFacts {
    /// The longest distance from a range's beginning to its last page.
    reach: Bytes,
    /// An upper bound for the length of ranges, as something else lay above; `None` if nothing lay above any range.
    longest: Option<Bytes>,
}

/// A range that exists.
#[derive(Clone, Copy, Debug)]
struct CardRange {
    stream: StreamId,
    /// Where the pages mapped so far end.
    end: Address,
    mapped: Bytes,
}

/// Segments and ranges that exist at one moment.
#[derive(Debug, Default)]
struct CardSpace {
    ranges: BTreeMap<Address, CardRange>,
    segments: BTreeMap<Address, Bytes>,
    reach: Bytes,
    longest: Option<Bytes>,
}

impl RangeFacts {
    /// What a history that begins with `seed` reveals; `None` if it has no expandable segments.
    pub fn of(seed: &Seed, trace: &[TraceEntry]) -> Option<Self> {
        if seed.ranges.is_empty() && !trace.iter().any(|entry| entry.action == Action::SegmentMap) {
            return None;
        }
        let mut space = CardSpace::default();
        space.begin(seed);
        for entry in trace {
            match entry.action {
                Action::SegmentMap => space.map(entry),
                Action::SegmentUnmap => space.unmap(entry),
                Action::SegmentAlloc => {
                    space.bound_below(entry.address);
                    space.segments.insert(entry.address, entry.size);
                }
                Action::SegmentFree => {
                    space.segments.remove(&entry.address);
                }
                _ => {}
            }
        }
        Some(Self { reach: space.reach, longest: space.longest })
    }

    /// The most memory that the device can have; `None` if addresses give no bound.
    pub fn bound(self) -> Option<Bytes> {
        // If ranges are longer than the room they have, the history contradicts itself and nothing follows from it.
        let longest = self.longest.filter(|longest| *longest >= self.reach)?;
        let largest = (u128::from(longest.0) * 8).div_ceil(9);
        Some(Bytes(u64::try_from(largest).unwrap_or(u64::MAX)))
    }

    /// A device whose ranges, of either pool, fit wherever the history has a range. It behaves like the recorded device,
    /// unless a range there ran full.
    pub fn device(self, settings: &Settings) -> Bytes {
        let fitting = self.bound().and(self.longest).map(|longest| largest_device(longest, settings));
        fitting.map_or(UNKNOWN, |device| device.min(UNKNOWN))
    }
}

impl CardSpace {
    /// Adds the segments and ranges that existed when the history began.
    fn begin(&mut self, seed: &Seed) {
        for range in &seed.ranges {
            self.bound_below(range.base);
            let end = range.base.offset(range.size);
            let first = seed.segments.partition_point(|run| run.address < range.base);
            let runs = seed.segments[first..].iter().take_while(|run| run.address < end);
            let (mut last, mut mapped) = (range.base, Bytes::ZERO);
            for run in runs.filter(|run| run.expandable) {
                last = run.address.offset(run.size);
                mapped += run.size;
            }
            self.ranges.insert(range.base, CardRange { stream: range.stream, end: last, mapped });
            self.reach = self.reach.max(last.distance(range.base));
        }
        for segment in seed.segments.iter().filter(|segment| !segment.expandable) {
            self.bound_below(segment.address);
            self.segments.insert(segment.address, segment.size);
        }
    }

    fn map(&mut self, entry: &TraceEntry) {
        let end = entry.address.offset(entry.size);
        let below = self.ranges.range_mut(..=entry.address).next_back();
        // Ranges grow at the lowest address that has room, so a map beyond every page ever mapped begins a new range.
        if let Some((base, range)) =
            below.filter(|(_, range)| range.stream == entry.stream && entry.address <= range.end)
        {
            range.end = range.end.max(end);
            range.mapped = Bytes(range.mapped.0.saturating_add(entry.size.0));
            self.reach = self.reach.max(range.end.distance(*base));
            return;
        }
        self.bound_below(entry.address);
        let above = self.ranges.range(entry.address..).next().map(|(base, _)| *base);
        let segment = self.segments.range(entry.address..).next().map(|(address, _)| *address);
        if let Some(next) = above.into_iter().chain(segment).min() {
            self.bound(next.distance(entry.address));
        }
        self.ranges.insert(entry.address, CardRange { stream: entry.stream, end, mapped: entry.size });
        self.reach = self.reach.max(entry.size);
    }

    /// Unmaps pages, and removes the range with its last page.
    fn unmap(&mut self, entry: &TraceEntry) {
        let Some((base, range)) = self.ranges.range_mut(..=entry.address).next_back() else { return };
        let base = *base;
        range.mapped = range.mapped.saturating_sub(entry.size);
        if range.mapped == Bytes::ZERO {
            self.ranges.remove(&base);
        }
    }

    /// Notes that something new lies at `address`: the range below ends there at the latest.
    fn bound_below(&mut self, address: Address) {
        if let Some((base, _)) = self.ranges.range(..address).next_back() {
            self.bound(address.distance(*base));
        }
    }

    fn bound(&mut self, length: Bytes) {
        self.longest = Some(self.longest.map_or(length, |longest| longest.min(length)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{StackId, TextId};
    use vramlab_allocator::range_size;
    use vramlab_allocator::units::MIB;
    use vramlab_allocator::units::Micros;

    const BASE: u64 = 0x3_0200_0000;

    fn history(entries: &[(Action, u64, u64)]) -> Vec<TraceEntry> {
        let entry = |&(action, address, mebibytes)| TraceEntry {
            action,
            address: Address(address),
            size: Bytes::mib(mebibytes),
            stream: StreamId::DEFAULT,
            time: Micros::default(),
            stack: StackId::EMPTY,
            metadata: TextId::default(),
            pool: None,
        };
        entries.iter().map(entry).collect()
    }

    fn largest(entries: &[(Action, u64, u64)]) -> Option<Bytes> {
        RangeFacts::of(&Seed::default(), &history(entries)).unwrap().bound()
    }

    #[test]
    fn a_neighbour_bounds_the_device() {
        use Action::{SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap};
        let next = BASE + 90 * 20 * MIB;
        let bound = Some(Bytes::mib(1600));
        // Another range above or below, or a segment.
        assert_eq!(largest(&[(SegmentMap, BASE, 20), (SegmentMap, next, 2)]), bound);
        assert_eq!(largest(&[(SegmentMap, next, 20), (SegmentMap, BASE, 2)]), bound);
        assert_eq!(largest(&[(SegmentMap, BASE, 20), (SegmentAlloc, next, 2)]), bound);
        assert_eq!(largest(&[(SegmentAlloc, next, 2), (SegmentMap, BASE, 20)]), bound);
        // Growth is not a neighbour, and neither is something that is already gone.
        assert_eq!(largest(&[(SegmentMap, BASE, 20), (SegmentMap, BASE + 20 * MIB, 20)]), None);
        assert_eq!(largest(&[(SegmentAlloc, next, 2), (SegmentFree, next, 2), (SegmentMap, BASE, 20)]), None);
        assert_eq!(largest(&[(SegmentMap, next, 20), (SegmentUnmap, next, 20), (SegmentMap, BASE, 20)]), None);
        assert_eq!(RangeFacts::of(&Seed::default(), &history(&[(SegmentAlloc, BASE, 20)])), None);
    }

    #[test]
    fn a_history_that_contradicts_itself_bounds_nothing() {
        let map = |at, size| (Action::SegmentMap, BASE + at * MIB, size);
        assert_eq!(largest(&[map(0, 20), map(30, 20), map(20, 2000)]), None);
        let entries = history(&[map(0, 20), map(30, 20), map(20, 2000)]);
        assert_eq!(RangeFacts::of(&Seed::default(), &entries).unwrap().device(&Settings::default()), UNKNOWN);
    }

    #[test]
    fn no_range_of_the_largest_device_is_longer_than_its_room() {
        for longest in (40..4000).step_by(7).map(Bytes::mib) {
            for conf in ["", "large_segment_size_mb:21"] {
                let settings = Settings::parse(conf).unwrap();
                let device = largest_device(longest, &settings);
                for page in [Bytes::mib(2), settings.large_segment_size] {
                    assert!(range_size(device, page).unwrap() <= longest, "{longest} {conf}");
                }
            }
        }
    }
}
