//! The content of one cell of a map.

use super::plan::{Plan, RowStart};
use vramlab_allocator::units::Address;
use vramlab_model::{BlockView, SegmentPart, SegmentView};

/// A cell of a map, with the plan and the segments.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    plan: &'a Plan,
    segments: &'a [SegmentView],
    place: RowStart,
    /// The cell's index within its place.
    cell: usize,
}

impl<'a> Cell<'a> {
    /// The cell at a row and column of the map; `None` if nothing is drawn there.
    pub fn at(plan: &'a Plan, segments: &'a [SegmentView], [row, column]: [usize; 2]) -> Option<Self> {
        let (place, cell) = plan.at(row, column)?;
        Some(Self { plan, segments, place, cell })
    }

    /// The blocks in the cell that `accepts` takes: how many of their bytes are in it, and their addresses.
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

    /// The address of the block or hole at the cell's first byte.
    pub fn first(self) -> Option<Address> {
        let (index, offset) = self.plan.segment_at(self.place, self.place.bytes_of(self.cell).start)?;
        let segment = self.segments.get(index)?;
        match segment.part_at(Address(segment.address.0 + offset))? {
            SegmentPart::Hole(hole) => Some(segment.address.offset(hole.offset)),
            SegmentPart::Block(index) => segment.blocks.get(index).map(|block| segment.address.offset(block.offset)),
        }
    }
}

/// The block with most bytes in a cell; the first of several.
pub fn largest(drawn: &[(u64, Address)]) -> Option<Address> {
    drawn.iter().rev().max_by_key(|(shown, _)| *shown).map(|(_, address)| *address)
}
