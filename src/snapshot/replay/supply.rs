//! What the driver gave at most, and from where on it refused, as far as a history tells.
//!
//! A driver refuses where other processes hold memory, and nothing in a snapshot says how much that is. A request that
//! failed has an entry with what the driver had left.

use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::Bytes;
use vramlab_allocator::{Seed, Settings, round, segment_size};

/// The driver's memory by what became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// The most that was held at once.
    most: Bytes,
    /// A request failed that would have held more than this, and no limit that is known forbade it.
    ceiling: Option<Bytes>,
}

impl Supply {
    /// What a history says that begins with `seed`, under a `limit` if one is known.
    pub fn of(seed: &Seed, trace: &[TraceEntry], settings: &Settings, limit: Option<Bytes>) -> Self {
        let mut held = seed.segments.iter().fold(0_u64, |held, segment| held.saturating_add(segment.size.0));
        let mut supply = Self { most: Bytes(held), ceiling: None };
        for entry in trace {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => {
                    held = held.saturating_add(entry.size.0);
                    supply.most = supply.most.max(Bytes(held));
                }
                Action::SegmentFree | Action::SegmentUnmap => held = held.saturating_sub(entry.size.0),
                Action::Oom => {
                    let rounded = round(entry.size, &settings.roundup_power2_divisions);
                    let needed = held.saturating_add(segment_size(rounded, settings.large_segment_size).0);
                    if limit.is_none_or(|limit| needed <= limit.0) {
                        let free = entry.device_free().unwrap_or_default();
                        let had = held.saturating_add(free.0).min(needed.saturating_sub(1));
                        supply.ceiling = Some(supply.ceiling.map_or(Bytes(had), |before| before.min(Bytes(had))));
                    }
                }
                _ => {}
            }
        }
        supply.ceiling = supply.ceiling.map(|ceiling| ceiling.max(supply.most));
        supply
    }

    /// Whether requests that failed show that there was not so much.
    pub fn lacks(self, needed: Bytes) -> bool {
        self.ceiling.is_some_and(|ceiling| needed > ceiling)
    }

    /// Whether the driver is known to have refused.
    pub const fn refuses(self) -> bool {
        self.ceiling.is_some()
    }

    /// Whether the history shows how much there was, or that there was so much.
    pub fn tells_of(self, needed: Bytes) -> bool {
        self.ceiling.is_some() || needed <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{StackId, TextId};
    use vramlab_allocator::units::Micros;
    use vramlab_allocator::units::{Address, MIB, StreamId};

    fn supply(entries: &[(Action, u64, u64)], limit: Option<Bytes>) -> Supply {
        let entry = |&(action, address, size)| TraceEntry {
            action,
            address: Address(address),
            size: Bytes::mib(size),
            stream: StreamId::DEFAULT,
            time: Micros::default(),
            stack: StackId::EMPTY,
            metadata: TextId::default(),
            pool: None,
        };
        let trace: Vec<TraceEntry> = entries.iter().map(entry).collect();
        Supply::of(&Seed::default(), &trace, &Settings::default(), limit)
    }

    #[test]
    fn a_request_that_fails_tells_what_the_driver_had() {
        let taken = (Action::SegmentAlloc, 1 << 30, 100);
        let failed = (Action::Oom, 6 * MIB, 20);
        let known = supply(&[taken, failed], None);
        assert_eq!(known, Supply { most: Bytes::mib(100), ceiling: Some(Bytes::mib(106)) });
        assert!(known.lacks(Bytes::mib(107)) && !known.lacks(Bytes::mib(106)) && known.tells_of(Bytes::mib(300)));
        // It was the limit that refused.
        let limited = supply(&[taken, failed], Some(Bytes::mib(119)));
        assert_eq!(limited.ceiling, None);
        assert!(!limited.lacks(Bytes::mib(300)) && !limited.tells_of(Bytes::mib(101)));
        assert!(limited.tells_of(Bytes::mib(100)));
        // So much was refused, even where the driver had enough.
        let unknown = supply(&[taken, (Action::Oom, 500 * MIB, 20)], None);
        assert_eq!(unknown.ceiling, Some(Bytes(120 * MIB - 1)));
        // Later there was more.
        let later = supply(&[taken, failed, (Action::SegmentAlloc, 2 << 30, 50)], None);
        assert_eq!(later.ceiling, Some(Bytes::mib(150)));
    }
}
