//! How large a block is, when a history records only its address and the bytes asked for.

use vramlab_allocator::units::{Bytes, KIB, MIB};
use vramlab_allocator::{PoolKind, Settings, round};

/// The properties of a block's place that decide how blocks are split.
#[derive(Clone, Copy, Debug)]
pub struct BlockClass {
    pub pool: PoolKind,
    /// True if the place is part of an expandable segment.
    pub expandable: bool,
    /// True if the place belongs to a private pool.
    pub private: bool,
}

/// The size of a block for `requested` bytes when `room` bytes lie between its beginning and the next block or the
/// segment's end. The rest is a free block of its own, or part of this block.
///
/// The result holds when the block is allocated and for its whole life, because no block of a large segment is as small
/// as a rest that is not split off. Never more than `room`.
pub fn block_size(requested: Bytes, room: Bytes, place: BlockClass, settings: &Settings) -> Bytes {
    let rounded = round(requested, &settings.roundup_power2_divisions);
    let Some(rest) = room.0.checked_sub(rounded.0) else { return room };
    // With expandable segments on, blocks of older segments are split finely too. Pools of other allocators have no such segments.
    let finely = place.pool == PoolKind::Small || place.expandable || (settings.expandable_segments && !place.private);
    let cut = if finely { rest >= KIB / 2 } else { rounded < settings.max_split_size && rest > MIB };
    if cut { rounded } else { room }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_rest_of_a_large_segment_belongs_to_the_block() {
        let settings = Settings::default();
        let large = BlockClass { pool: PoolKind::Large, expandable: false, private: false };
        let small = BlockClass { pool: PoolKind::Small, ..large };
        let size = |asked, room, place| block_size(Bytes(asked), Bytes(room), place, &settings).0;
        assert_eq!(size(19 * MIB, 20 * MIB, large), 20 * MIB);
        assert_eq!(size(19 * MIB - 512, 20 * MIB, large), 19 * MIB - 512);
        assert_eq!(size(19 * MIB, 20 * MIB, BlockClass { expandable: true, ..large }), 19 * MIB);
        assert_eq!(size(1, 1024, small), 512);
        assert_eq!(size(1000, 1024, small), 1024);
        // A size that does not fit is cut to the room.
        assert_eq!(size(5000, 1024, small), 1024);
        let oversize = Settings::parse("max_split_size_mb:20").unwrap();
        assert_eq!(block_size(Bytes::mib(30), Bytes::mib(44), large, &oversize), Bytes::mib(44));
    }
}
