//! What is drawn in one cell of a map.

use super::plan::{Plan, RowStart};
use vramlab_allocator::units::Address;
use vramlab_model::{BlockView, SegmentPart, SegmentView};

/// A cell of a map, and what it is a map of.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    plan: &'a Plan,
    segments: &'a [SegmentView],
    place: RowStart,
    /// Which of the place's cells.
    cell: usize,
}

impl<'a> Cell<'a> {
    /// The cell in a row and column of the map; `None` where nothing is drawn.
    pub fn at(plan: &'a Plan, segments: &'a [SegmentView], [row, column]: [usize; 2]) -> Option<Self> {
        let (place, cell) = plan.at(row, column)?;
        Some(Self { plan, segments, place, cell })
    }

    /// The blocks that are drawn there, of those that are accepted: how many of its bytes, and its address.
    pub fn blocks(self, accepts: impl Fn(&BlockView) -> bool) -> Vec<(u64, Address)> {
        let bytes = self.place.bytes_of(self.cell);
        let mut drawn: Vec<(u64, Address)> = Vec::new();
        for &(index, base) in self.plan.members(self.place).iter().take_while(|(_, base)| *base < bytes.end) {
            let Some(segment) = self.segments.get(index) else { continue };
            let inside = bytes.start.saturating_sub(base)..bytes.end - base;
            let first = segment.blocks.partition_point(|block| block.end().get() <= inside.start);
            let blocks = segment.blocks[first..].iter().take_while(|block| block.offset.get() < inside.end);
            drawn.extend(blocks.filter(|block| accepts(block)).map(|block| {
                let shown = block.end().get().min(inside.end) - block.offset.get().max(inside.start);
                (shown, segment.address.offset(block.offset))
            }));
        }
        drawn
    }

    /// The block, or else the hole, that its first byte lies in.
    pub fn first(self) -> Option<Address> {
        let (index, offset) = self.plan.segment_at(self.place, self.place.bytes_of(self.cell).start)?;
        let segment = self.segments.get(index)?;
        match segment.part_at(Address(segment.address.0 + offset))? {
            SegmentPart::Hole(hole) => Some(segment.address.offset(hole.offset)),
            SegmentPart::Block(index) => segment.blocks.get(index).map(|block| segment.address.offset(block.offset)),
        }
    }
}

/// Of blocks in a cell the one of which most is drawn there; of several the first.
pub fn largest(drawn: &[(u64, Address)]) -> Option<Address> {
    drawn.iter().rev().max_by_key(|(shown, _)| *shown).map(|(_, address)| *address)
}
