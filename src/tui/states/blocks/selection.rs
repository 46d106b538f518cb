//! What is selected on the map: an address, and what lies there.

use std::ops::Range;

use crate::model::{BlockView, SegmentPart, SegmentView};
use crate::units::Address;

/// What is selected: what lies at an address, at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The address.
    pub address: Address,
    /// The whole segment there.
    pub whole: bool,
}

/// What a selection is in the segments that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelectedPart {
    /// The segment, by its place.
    pub segment: usize,
    /// What of it; `None`: all.
    pub part: Option<SegmentPart>,
}

impl SelectedPart {
    /// The block, if that is one.
    pub fn block(self, segments: &[SegmentView]) -> Option<&BlockView> {
        match self.part? {
            SegmentPart::Block(index) => segments.get(self.segment)?.blocks.get(index),
            SegmentPart::Hole(_) => None,
        }
    }

    /// The bytes of the segment that it takes.
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
