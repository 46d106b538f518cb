//! Targets of jumps: the next block, the previous one, the largest, the largest hole.

use std::cmp::Reverse;

use crate::model::{BlockView, SegmentView};
use crate::units::Address;

/// The first block that begins at or after an address.
pub(super) fn next_block(segments: &[SegmentView], from: u64, accepts: impl Fn(&BlockView) -> bool) -> Option<Address> {
    let first = segments.partition_point(|segment| segment.end() <= from);
    segments[first..].iter().find_map(|segment| {
        let behind = segment.blocks.partition_point(|block| segment.address.offset(block.offset).0 < from);
        let found = segment.blocks[behind..].iter().find(|block| accepts(block));
        found.map(|block| segment.address.offset(block.offset))
    })
}

/// The last block that begins before an address.
pub(super) fn last_block(segments: &[SegmentView], to: u64, accepts: impl Fn(&BlockView) -> bool) -> Option<Address> {
    let end = segments.partition_point(|segment| segment.address.0 < to);
    segments[..end].iter().rev().find_map(|segment| {
        let behind = segment.blocks.partition_point(|block| segment.address.offset(block.offset).0 < to);
        let found = segment.blocks[..behind].iter().rev().find(|block| accepts(block));
        found.map(|block| segment.address.offset(block.offset))
    })
}

/// Stranded bytes of every hole, with its address.
pub(super) fn holes(segments: &[SegmentView]) -> impl Iterator<Item = (u64, Address)> {
    let of = |segment: &SegmentView| {
        let start = segment.address;
        let holes = segment.holes().filter(|hole| hole.stranded().get() > 0);
        holes.map(move |hole| (hole.stranded().get(), start.offset(hole.offset))).collect::<Vec<_>>()
    };
    segments.iter().flat_map(of)
}

pub(super) fn blocks(
    segments: &[SegmentView],
    accepts: impl Fn(&BlockView) -> bool + Copy,
) -> impl Iterator<Item = (u64, Address)> {
    segments.iter().flat_map(move |segment| {
        let own = segment.blocks.iter().filter(move |block| accepts(block));
        own.map(|block| (block.size.get(), segment.address.offset(block.offset)))
    })
}

/// The largest item; if one of the items is already selected, the one after it in size, and after the last the first again.
pub(super) fn next_largest<I: Iterator<Item = (u64, Address)>>(
    all: impl Fn() -> I,
    current: Option<Address>,
) -> Option<Address> {
    let key = |(size, address): (u64, Address)| (size, Reverse(address));
    let now = current.and_then(|current| all().find(|(_, address)| *address == current)).map(key);
    let next = all().map(key).filter(|each| now.is_none_or(|now| *each < now)).max();
    next.or_else(|| all().map(key).max()).map(|(_, Reverse(address))| address)
}
