//! Converts a state of a history into one that an allocator can start with.

use std::collections::{BTreeMap, HashSet};

use super::card;
use super::tape::waiting_stream;
use crate::history::{Beginning, Home, Range, Space};
use vramlab_allocator::units::{Address, Bytes};
use vramlab_allocator::{RangeSeed, Seed, range_size};

/// What an allocator holds at one moment of the history, without private pools.
pub fn seed(beginning: &Beginning, space: &Space, aside: &HashSet<Address>) -> Seed {
    let mut ranges: BTreeMap<Address, RangeSeed> = BTreeMap::new();
    let ours = |address: Address, home: &Home| home.pool_id.is_default() && !aside.contains(&address);
    for (_, home) in space.homes().filter(|(address, home)| ours(*address, home)) {
        if let Some(range) = home.range.and_then(|index| beginning.ranges.get(index)) {
            ranges.entry(range.base).or_insert_with(|| range_seed(range));
        }
    }
    let lies = |address| space.home(address).is_some_and(|(start, home)| ours(start, home));
    let pending = space.blocks().filter(|(address, held)| held.pending && lies(*address));
    Seed {
        segments: space.segments(ours),
        ranges: ranges.into_values().collect(),
        waiting: pending.map(|(address, _)| (address, waiting_stream(address))).collect(),
    }
}

/// A range's length is not recorded. It is taken to reach as far as nothing else lies in it.
fn range_seed(range: &Range) -> RangeSeed {
    let Range { base, end, page, stream, pool, ceiling, .. } = *range;
    let longest = range_size(card::UNKNOWN, page).unwrap_or(Bytes(u64::MAX));
    let free = ceiling.map_or(longest, |ceiling| ceiling.distance(base).min(longest));
    let size = Bytes(free.0 / page.0 * page.0).max(end.distance(base));
    RangeSeed { base, size, page, stream, pool }
}
