//! The selection on the map: an address, and what lies there.

use std::ops::Range;

use crate::model::{BlockView, SegmentPart, SegmentView};
use crate::units::Address;

/// A selection: whatever lies at an address, at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The address.
    pub address: Address,
    /// True if the whole segment there is selected.
    pub whole: bool,
}

/// A selection in the segments that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectedPart {
    /// The index of the segment.
    pub segment: usize,
    /// The part of it; `None` for all of it.
    pub part: Option<SegmentPart>,
}

impl SelectedPart {
    /// The block, if the part is one.
    pub fn block(self, segments: &[SegmentView]) -> Option<&BlockView> {
        match self.part? {
            SegmentPart::Block(index) => segments.get(self.segment)?.blocks.get(index),
            SegmentPart::Hole(_) => None,
        }
    }

    /// The range of the segment's bytes that it covers.
    pub fn bytes(self, segments: &[SegmentView]) -> Range<u64> {
        let Some(segment) = segments.get(self.segment) else { return 0..0 };
        match self.part {
            None => 0..segment.size.get(),
            Some(SegmentPart::Hole(hole)) => hole.offset.get()..hole.end().get(),
            Some(SegmentPart::Block(index)) => {
                segment.blocks.get(index).map_or(0..0, |block| block.offset.get()..block.end().get())
            }
        }
    }
}
