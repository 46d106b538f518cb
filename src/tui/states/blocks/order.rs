//! The order of segments on the map.

use crate::model::SegmentView;

/// The order of the segments of one stream and pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentOrder {
    /// By address.
    #[default]
    Address,
    /// The largest first.
    Size,
    /// The most stranded bytes first.
    Stranded,
    /// The smallest share in use first.
    Used,
}

impl SegmentOrder {
    pub(super) const ALL: [Self; 4] = [Self::Address, Self::Size, Self::Stranded, Self::Used];

    /// The sort key of a segment; lower keys come first.
    pub(super) fn key(self, segment: &SegmentView, held: u64, stranded: u64) -> u64 {
        let size = segment.size.get();
        match self {
            Self::Address => segment.address.0,
            Self::Size => u64::MAX - size,
            Self::Stranded => u64::MAX - stranded,
            Self::Used => (u128::from(held) * (1 << 20) / u128::from(size.max(1))) as u64,
        }
    }

    /// The order's name on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Address => "by address",
            Self::Size => "largest first",
            Self::Stranded => "most stranded first",
            Self::Used => "least used first",
        }
    }
}
