//! The input of a screen's own actions.

use crate::model::{Occupancy, View};
use crate::source::Picture;

/// The input of a screen's own action.
#[derive(Clone, Copy, Debug)]
pub struct ActionInput<'a> {
    /// The source at its cursor.
    pub picture: &'a Picture,
    /// The view whose blocks are drawn.
    pub shown: &'a View,
    /// The ghost's memory at that moment.
    pub ghost: Option<&'a Occupancy>,
    /// The number of history columns in the last frame.
    pub history_columns: usize,
    /// The size of the block map in the last frame: cells per row, and visible rows.
    pub map: (usize, usize),
    /// The number of rows that scroll, and how many were visible in the last frame.
    pub rows: (usize, usize),
    /// The first visible row.
    pub scroll: usize,
}
