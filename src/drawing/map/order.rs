//! The order in which segments are drawn.

use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_model::SegmentView;

/// Segments by stream and pool, and then by a key.
#[derive(Clone, Debug, Default)]
pub struct DrawOrder {
    /// The sort keys of all segments.
    segments: Vec<SortedSegment>,
    /// The segments' indices in drawing order.
    drawn: Vec<usize>,
}

/// A segment's sort key, most significant field first. Its size is part of it because it moves the segments behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortedSegment {
    stream: StreamId,
    small: bool,
    expandable: bool,
    key: u64,
    address: Address,
    size: Bytes,
}

impl SortedSegment {
    fn new(segment: &SegmentView, key: u64) -> Self {
        let SegmentView { stream, pool, expandable, address, size, .. } = *segment;
        Self { stream, small: pool == PoolKind::Small, expandable, key, address, size }
    }
}

impl DrawOrder {
    /// Sorts segments.
    pub fn new(segments: &[SegmentView], key: impl Fn(usize, &SegmentView) -> u64) -> Self {
        let segments: Vec<SortedSegment> = segments
            .iter()
            .enumerate()
            .map(|(index, segment)| SortedSegment::new(segment, key(index, segment)))
            .collect();
        let mut drawn: Vec<usize> = (0..segments.len()).collect();
        drawn.sort_by_key(|&index| segments[index]);
        Self { segments, drawn }
    }

    /// True if these are the segments that were sorted, unchanged.
    pub fn is_of(&self, segments: &[SegmentView], key: impl Fn(usize, &SegmentView) -> u64) -> bool {
        self.segments.len() == segments.len()
            && self
                .segments
                .iter()
                .zip(segments)
                .enumerate()
                .all(|(index, (known, segment))| *known == SortedSegment::new(segment, key(index, segment)))
    }

    /// The segments' indices in drawing order.
    pub fn drawn(&self) -> &[usize] {
        &self.drawn
    }
}

/// The group of a segment. Segments of one stream's pool are drawn side by side.
pub(super) const fn group(segment: &SegmentView) -> (StreamId, PoolKind, bool) {
    (segment.stream, segment.pool, segment.expandable)
}
