//! The most memory that the driver gave, and the amount from which on it refused, as far as a history tells.
//!
//! A driver refuses when other processes hold memory, and no snapshot says how much they hold. The entry of a failed
//! request says how much the driver had left.

use crate::types::{Action, TraceEntry};
use vramlab_allocator::units::Bytes;
use vramlab_allocator::{Seed, Settings, round, segment_size};

/// The driver's memory, as concluded from successful and failed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// The most memory held at once.
    most: Bytes,
    /// The most memory that can have been available: a request that needed more failed, and no known limit forbade it.
    ceiling: Option<Bytes>,
}

impl Supply {
    /// What a history that begins with `seed` reveals, under a `limit` if one is known.
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

    /// True if failed requests show that less than `needed` was available.
    pub fn lacks(self, needed: Bytes) -> bool {
        self.ceiling.is_some_and(|ceiling| needed > ceiling)
    }

    /// True if the driver is known to have refused a request.
    pub const fn refuses(self) -> bool {
        self.ceiling.is_some()
    }

    /// True if the history shows how much was available, or that at least `needed` was.
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
        // The limit refused the request.
        let limited = supply(&[taken, failed], Some(Bytes::mib(119)));
        assert_eq!(limited.ceiling, None);
        assert!(!limited.lacks(Bytes::mib(300)) && !limited.tells_of(Bytes::mib(101)));
        assert!(limited.tells_of(Bytes::mib(100)));
        // The request was refused although the driver had enough.
        let unknown = supply(&[taken, (Action::Oom, 500 * MIB, 20)], None);
        assert_eq!(unknown.ceiling, Some(Bytes(120 * MIB - 1)));
        // More memory was available later.
        let later = supply(&[taken, failed, (Action::SegmentAlloc, 2 << 30, 50)], None);
        assert_eq!(later.ceiling, Some(Bytes::mib(150)));
    }
}
