//! The accounts of the bytes in some segments.

use std::sync::Arc;

use super::{Ledger, SegmentView};
use vramlab_allocator::units::Bytes;

/// Segments at one moment, and the accounts of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// In address order.
    pub segments: Arc<Vec<SegmentView>>,
    /// The five accounts.
    pub ledger: Ledger,
    /// The largest free piece in a segment that contains a block; expandable ranges are not included.
    pub largest_hole: Bytes,
}

impl Occupancy {
    /// The occupancy of these segments, which are in address order.
    #[must_use]
    pub fn of(segments: Vec<SegmentView>) -> Self {
        let (mut ledger, mut largest_hole) = (Ledger::default(), Bytes::ZERO);
        for segment in &segments {
            for block in segment.blocks.iter() {
                if block.pending {
                    ledger.pending += block.size;
                } else {
                    ledger.live += block.requested;
                    ledger.rounding += block.rounding();
                }
            }
            for hole in segment.holes() {
                ledger.releasable += hole.releasable;
                ledger.stranded += hole.stranded();
                ledger.largest_free = ledger.largest_free.max(hole.size);
                if !segment.expandable && !segment.blocks.is_empty() {
                    largest_hole = largest_hole.max(hole.size);
                }
            }
        }
        Self { segments: Arc::new(segments), ledger, largest_hole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lab, synthetic};

    #[test]
    fn segments_come_to_the_ledger_that_the_events_told() {
        let mut lab = Lab::new();
        let mut held = 0;
        for event in synthetic::training_run() {
            lab.apply(&event);
            let view = lab.view();
            let occupancy = Occupancy::of(view.segments.to_vec());
            assert_eq!((occupancy.ledger, occupancy.largest_hole), (view.ledger, view.largest_hole));
            held += usize::from(view.largest_hole > Bytes::ZERO && view.ledger.pending > Bytes::ZERO);
        }
        assert!(held > 0, "holes and pending blocks were among them");
    }
}
