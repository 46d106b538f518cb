//! What a screen's own action may look at.

use crate::model::{Occupancy, View};
use crate::source::Picture;

/// What a screen's own action may look at.
#[derive(Clone, Copy, Debug)]
pub struct ActionInput<'a> {
    /// The source at its cursor.
    pub picture: &'a Picture,
    /// The view whose blocks are drawn.
    pub shown: &'a View,
    /// Where the memory of a ghost stands then.
    pub ghost: Option<&'a Occupancy>,
    /// Columns of the history in the last frame.
    pub history_columns: usize,
    /// Cells of a row of the map of blocks in the last frame, and rows that were seen.
    pub map: (usize, usize),
    /// Rows of what scrolls in all, and how many were seen in the last frame.
    pub rows: (usize, usize),
    /// The first row of what scrolls.
    pub scroll: usize,
}
