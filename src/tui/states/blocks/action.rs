//! What the blocks' keys and clicks ask for.

use super::selection::Selection;

/// What the blocks' own keys and clicks ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocksAction {
    /// Select the next block in address order, of those that are looked for.
    Next,
    /// Select the one before.
    Previous,
    /// Select the next segment, in the order in which they are drawn.
    NextSegment,
    /// Select the one before.
    PreviousSegment,
    /// Select the largest hole; again, the next smaller one.
    LargestHole,
    /// Select the largest block of those that are looked for; again, the next smaller one.
    LargestBlock,
    /// Select a block of the op under way; again, its next one.
    OfOp,
    /// Select what is drawn in a cell of the map, by its column and row; again, what else is drawn there.
    Cell(u16, u16),
    /// Select what lies there.
    Select(Selection),
    /// Select nothing; where nothing is selected, look for nothing.
    Leave,
    /// Half as many bytes to a cell.
    ZoomIn,
    /// Twice as many, at last so many that all segments are seen.
    ZoomOut,
    /// All segments.
    ZoomAll,
    /// Tell blocks apart by the next of the ways.
    Coloring,
    /// Sort segments by the next of the ways.
    Order,
    /// Move the cursor to the fullest moment of the step.
    Peak,
}

impl BlocksAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
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
