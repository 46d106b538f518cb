//! How much of the past the memory chart shows.

use crate::model::View;

/// The highest level: 2^20 events per column.
const HIGHEST: usize = 20;
/// A page of the chart shows at least this many steps …
const STEPS: f64 = 8.0;
/// … and takes at least this long to fill, in seconds: what sweeps past faster can't be read.
const SECONDS: f64 = 2.0;

/// The level of the chart: chosen from the pace of the run until a person chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zoom {
    level: usize,
    by_hand: bool,
    /// Columns of the chart that the level was chosen for.
    columns: usize,
}

impl Zoom {
    /// 2^level events per column.
    #[must_use]
    pub fn level(self) -> usize {
        self.level
    }

    /// Half as many events per column.
    pub fn closer(&mut self) {
        self.by_hand = true;
        self.level = self.level.saturating_sub(1);
    }

    /// Twice as many events per column.
    pub fn further(&mut self) {
        self.by_hand = true;
        self.level = (self.level + 1).min(HIGHEST);
    }

    /// Follows the pace of the run on a chart of so many columns. True if the level changed.
    ///
    /// On a chart of the same width it moves only when the wish is clear (most of a level off), so that it does not
    /// swing between two.
    pub fn follow(&mut self, view: &View, columns: usize) -> bool {
        if self.by_hand || columns == 0 || view.steps.finished == 0 {
            return false;
        }
        let events = view.history.events() as f64;
        let per_step = events / (view.steps.finished + 1) as f64;
        let seconds = view.time.0 as f64 / 1e6;
        let per_second = if seconds > 0.0 { events / seconds } else { 0.0 };
        let page = (per_step * STEPS).max(per_second * SECONDS);
        let wish = (page / columns as f64).max(1.0).log2();
        let off = wish - self.level as f64;
        let resized = std::mem::replace(&mut self.columns, columns) != columns;
        if resized || off.abs() > 0.8 {
            let level = (wish.round() as usize).min(HIGHEST);
            return std::mem::replace(&mut self.level, level) != level;
        }
        false
    }
}
