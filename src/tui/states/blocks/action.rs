//! The actions of Blocks.

use super::selection::Selection;

/// An action of Blocks' own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocksAction {
    /// Select the next block in address order that matches the filter.
    Next,
    /// Select the previous one.
    Previous,
    /// Select the next segment in drawing order.
    NextSegment,
    /// Select the previous one.
    PreviousSegment,
    /// Select the largest hole; repeated, the next smaller one.
    LargestHole,
    /// Select the largest block that matches the filter; repeated, the next smaller one.
    LargestBlock,
    /// Select a block of the current op; repeated, its next one.
    OfOp,
    /// Select the block in a cell of the map, by column and row; repeated, the other blocks there.
    Cell(u16, u16),
    /// Select what lies at an address.
    Select(Selection),
    /// Clear the selection; without a selection, clear the filter.
    Leave,
    /// Halve the bytes per cell.
    ZoomIn,
    /// Double the bytes per cell, until all segments are visible.
    ZoomOut,
    /// Show all segments.
    ZoomAll,
    /// Colour blocks by the next property.
    Coloring,
    /// Sort segments by the next order.
    Order,
    /// Move the cursor to the fullest moment of the step.
    Peak,
}

impl BlocksAction {
    /// The word for it in settings; empty for actions that only the mouse has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Next => "next-block",
            Self::Previous => "previous-block",
            Self::NextSegment => "next-segment",
            Self::PreviousSegment => "previous-segment",
            Self::LargestHole => "largest-hole",
            Self::LargestBlock => "largest-block",
            Self::OfOp => "block-of-op",
            Self::Leave => "select-nothing",
            Self::ZoomIn => "blocks-zoom-in",
            Self::ZoomOut => "blocks-zoom-out",
            Self::ZoomAll => "blocks-zoom-all",
            Self::Coloring => "blocks-colouring",
            Self::Order => "blocks-order",
            Self::Peak => "blocks-peak",
            Self::Cell(..) | Self::Select(_) => "",
        }
    }
}
