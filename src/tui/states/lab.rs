//! The state of the Lab: the zoom of its history, and the moments of its charts' columns.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use crate::drawing::map::{Coloring, KeptPlans, KeptStrips, Plan, Survey};
use crate::model::{History, Profile, SegmentView, View};
use crate::source::{Move, Picture};

/// The most steps per column of the history, as a power of two.
const FURTHEST: usize = 40;

/// An action of the Lab's own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabAction {
    /// Fewer steps per column of the history.
    ZoomIn,
    /// More steps per column of the history.
    ZoomOut,
    /// Move the cursor to a column of the history: its index, and the number of columns.
    HistoryColumn(u16, u16),
    /// Move the cursor to a column of the step's curve: its index, and the number of columns.
    StepColumn(u16, u16),
    /// Show the content of a cell of the map on Blocks, by column and row.
    Cell(u16, u16),
}

impl LabAction {
    /// The word for it in settings; empty for actions that only the mouse has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ZoomIn => "zoom-in",
            Self::ZoomOut => "zoom-out",
            Self::HistoryColumn(..) | Self::StepColumn(..) | Self::Cell(..) => "",
        }
    }
}

/// The state of the Lab.
#[derive(Clone, Debug, Default)]
pub struct LabState {
    /// Steps per column of the history as a power of two; `None` to show all steps.
    pub zoom: Option<usize>,
    /// The last plan of the map of all segments.
    plans: KeptPlans,
    pub(crate) strips: KeptStrips,
    /// Its blocks by age, while something leaks.
    ages: RefCell<Survey>,
}

/// How many of `width` cells a column of the history takes: one while steps go by; in a run that has ended or stands
/// still, so many that few columns take half of the width, or all of it if that is little.
pub(crate) fn cells_of_column(picture: &Picture, columns: usize, width: usize) -> usize {
    /// A wider column would be mistaken for several steps.
    const MOST: usize = 8;
    const LITTLE: usize = 40;
    let room = if width < LITTLE { width } else { width / 2 };
    if picture.is_live() { 1 } else { (room / columns.max(1)).clamp(1, MOST) }
}

impl LabState {
    /// Performs an action, given the number of history columns in the last frame. Returns where to move the cursor, if anywhere.
    pub fn act(&mut self, action: LabAction, picture: &Picture, columns: usize) -> Option<Move> {
        let whole = || picture.history.level_of_run(columns.max(1));
        match action {
            LabAction::ZoomIn => {
                self.zoom = Some(self.zoom.unwrap_or_else(whole).saturating_sub(1));
                None
            }
            LabAction::ZoomOut => {
                // The furthest zoom shows all steps, and continues to do so as the run grows.
                self.zoom = self.zoom.map(|level| level + 1).filter(|&level| level < whole().min(FURTHEST));
                None
            }
            LabAction::HistoryColumn(column, of) => self.history_column(picture, column, of),
            LabAction::StepColumn(column, of) => step_column(picture, column, of),
            // Another screen shows the cell.
            LabAction::Cell(..) => None,
        }
    }

    /// The places of all segments in a map of this size, sorted by size within each stream's pool.
    pub(crate) fn overview(&self, segments: &[SegmentView], cells: (usize, usize)) -> Arc<Plan> {
        self.plans.plan(segments, |_, segment| u64::MAX - segment.size.get(), cells, None)
    }

    /// The ages of the blocks in all segments.
    pub(crate) fn ages(&self, view: &View, history: &History) -> Ref<'_, Survey> {
        self.ages.borrow_mut().update(view, history, Coloring::Age, &Arc::default());
        self.ages.borrow()
    }

    /// The moment of a column of the history.
    fn history_column(&self, picture: &Picture, column: u16, of: u16) -> Option<Move> {
        let level = self.zoom.unwrap_or_else(|| picture.history.level_of_run(usize::from(of)));
        let page = picture.history.page(level, usize::from(of));
        let cells = cells_of_column(picture, page.columns.len(), usize::from(of));
        page.columns.get(usize::from(column) / cells).map(|column| Move::To(column.position + 1))
    }
}

/// The moment of a column of the step's curve.
fn step_column(picture: &Picture, column: u16, of: u16) -> Option<Move> {
    let profile = picture.shown_step()?;
    let event = u128::from(column) * u128::from(profile.events) / u128::from(of.max(1));
    Some(Move::To(Profile::position_of(profile, u64::try_from(event).unwrap_or(u64::MAX)) + 1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::Lab;
    use crate::synthetic;

    /// A run of 31 steps.
    fn run() -> Picture {
        let mut lab = Lab::new();
        for event in synthetic::training_run() {
            lab.apply(&event);
        }
        let view = lab.view();
        Picture { history: Arc::clone(&view.history), view: Arc::new(view), ..Picture::default() }
    }

    #[test]
    fn the_history_zooms_in_and_out_to_the_whole_run_and_stays_where_it_was_put() {
        let run = run();
        let mut state = LabState::default();
        // 5 columns with 8 steps each.
        let mut zoomed = |action, times| {
            for _ in 0..times {
                assert_eq!(state.act(action, &run, 5), None);
            }
            state.zoom
        };
        assert_eq!(zoomed(LabAction::ZoomIn, 0), None, "all that there are");
        assert_eq!(zoomed(LabAction::ZoomIn, 1), Some(2));
        assert_eq!(zoomed(LabAction::ZoomIn, 4), Some(0), "no closer than a step");
        assert_eq!(zoomed(LabAction::ZoomOut, 1), Some(1));
        assert_eq!(zoomed(LabAction::ZoomOut, 2), None, "and out to the whole run again");
        assert_eq!(zoomed(LabAction::ZoomOut, 2), None);
    }

    #[test]
    fn columns_of_both_charts_lead_to_their_moments() {
        let run = run();
        let mut state = LabState { zoom: Some(0), ..LabState::default() };
        let page = run.history.page(0, 40);
        let to = |state: &mut LabState, action| match state.act(action, &run, 40) {
            Some(Move::To(position)) => Some(position),
            _ => None,
        };
        let third = page.columns[3].position + 1;
        assert_eq!(to(&mut state, LabAction::HistoryColumn(3, 40)), Some(third));
        assert_eq!(to(&mut state, LabAction::HistoryColumn(39, 40)), None, "no step lies there");
        state.zoom = None;
        assert!(to(&mut state, LabAction::HistoryColumn(3, 5)) > Some(third), "a column of 8 steps lies further on");
        let begin = to(&mut state, LabAction::StepColumn(0, 60)).unwrap();
        let end = to(&mut state, LabAction::StepColumn(59, 60)).unwrap();
        let step = run.shown_step().unwrap();
        assert!(step.position < begin && begin < end, "{} {begin} {end}", step.position);
        assert!(step.event_at(end - 1) < step.events);
    }
}
