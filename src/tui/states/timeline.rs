//! The state of the timeline: its window, and the grouping of memory.

use crate::model::{Grouping, Study};
use crate::source::{Cursor, Move, Picture, StudyRequest, Window};

/// The fewest events in a window.
const CLOSEST: u64 = 8;

/// An action of the timeline's own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineAction {
    /// Halve the window, around the cursor.
    ZoomIn,
    /// Double the window, up to everything that is kept.
    ZoomOut,
    /// Switch between the step around the cursor and everything that is kept.
    Window,
    /// Group memory by the next property.
    Grouping,
    /// Move the cursor to the peak of the window.
    Peak,
    /// Move the cursor to a column of the chart: its index, and the number of columns.
    Column(u16, u16),
}

impl TimelineAction {
    /// The word for it in settings; empty for actions that only the mouse has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::ZoomIn => "step-zoom-in",
            Self::ZoomOut => "step-zoom-out",
            Self::Window => "step-window",
            Self::Grouping => "step-grouping",
            Self::Peak => "step-peak",
            Self::Column(..) => "",
        }
    }
}

/// The state of the timeline.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimelineState {
    /// The events that it shows.
    pub window: Window,
    /// The property by which memory is grouped.
    pub grouping: Grouping,
}

impl TimelineState {
    /// The study that it wants. A zoomed window follows a cursor that leaves it.
    pub fn wanted(&mut self, picture: &Picture) -> StudyRequest {
        if let (Window::Range(begin, end), Cursor::At(cursor)) = (self.window, picture.cursor)
            && !(begin..=end).contains(&cursor)
        {
            self.window = around(cursor, end - begin, picture);
        }
        StudyRequest { window: self.window, grouping: self.grouping }
    }

    /// Performs an action. Returns where to move the cursor, if anywhere.
    pub fn act(&mut self, action: TimelineAction, picture: &Picture) -> Option<Move> {
        match action {
            TimelineAction::ZoomIn => self.zoom(picture, |events| (events / 2).max(CLOSEST)),
            TimelineAction::ZoomOut => self.zoom(picture, |events| events.saturating_mul(2)),
            TimelineAction::Window => {
                self.window = if self.window == Window::Step { Window::Run } else { Window::Step };
            }
            TimelineAction::Grouping => {
                let at = Grouping::ALL.iter().position(|grouping| *grouping == self.grouping).unwrap_or(0);
                self.grouping = Grouping::ALL[(at + 1) % Grouping::ALL.len()];
            }
            TimelineAction::Peak => {
                return picture.study.as_ref()?.peak.map(|peak| Move::To(peak.position));
            }
            TimelineAction::Column(column, of) => return moment_of(picture.study.as_ref()?, column, of),
        }
        None
    }

    fn zoom(&mut self, picture: &Picture, scale: impl Fn(u64) -> u64) {
        let Some(study) = picture.study.as_deref().filter(|study| study.end > study.begin) else { return };
        let events = scale(study.end - study.begin);
        let whole = picture.extent.end - picture.extent.first;
        let middle = match picture.place() {
            place if (study.begin..=study.end).contains(&place) => place,
            _ => study.peak.map_or(study.begin.midpoint(study.end), |peak| peak.position),
        };
        self.window = if events >= whole { Window::Run } else { around(middle, events, picture) };
    }
}

/// `events` events around a middle one, as far as there are events.
fn around(middle: u64, events: u64, picture: &Picture) -> Window {
    let (first, end) = (picture.extent.first, picture.extent.end);
    let begin = middle.saturating_sub(events / 2).min(end.saturating_sub(events)).max(first);
    Window::Range(begin, (begin + events).min(end))
}

/// The moment that determines the height of a chart's column.
fn moment_of(study: &Study, column: u16, of: u16) -> Option<Move> {
    let index = study.fullest_in(usize::from(column), usize::from(of));
    study.moments.get(index).map(|moment| Move::To(moment.position))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::Lab;
    use crate::source::Extent;
    use crate::synthetic;

    /// A run and a study of all of it, the cursor somewhere.
    fn picture(cursor: Cursor) -> Picture {
        let events = synthetic::training_run();
        let end = events.len() as u64;
        let lab = Lab::new();
        let study = Study::of(0..end, lab.memory(), lab.names(), Grouping::Category, |each| {
            (0..).zip(&events).for_each(|(position, event)| each(position, event));
        });
        let extent = Extent { first: 0, end, ..Extent::default() };
        Picture { study: Some(Arc::new(study)), cursor, extent, ..Picture::default() }
    }

    #[test]
    fn zooming_halves_the_window_around_the_cursor_and_doubles_it_up_to_the_whole_run() {
        let picture = picture(Cursor::At(100));
        let end = picture.extent.end;
        let mut state = TimelineState::default();
        assert_eq!(state.act(TimelineAction::ZoomIn, &picture), None);
        let Window::Range(begin, until) = state.window else { panic!("{:?}", state.window) };
        assert_eq!(until - begin, end / 2);
        assert!((begin..until).contains(&100));
        state.act(TimelineAction::ZoomOut, &picture);
        assert_eq!(state.window, Window::Run, "the study is of the whole run: there is no more");
        state.act(TimelineAction::Window, &picture);
        assert_eq!(state.window, Window::Step);
    }

    #[test]
    fn a_window_follows_a_cursor_that_leaves_it() {
        let mut state = TimelineState { window: Window::Range(40, 60), ..TimelineState::default() };
        assert_eq!(state.wanted(&picture(Cursor::At(55))).window, Window::Range(40, 60));
        assert_eq!(state.wanted(&picture(Cursor::At(200))).window, Window::Range(190, 210));
        assert_eq!(state.wanted(&picture(Cursor::At(0))).window, Window::Range(0, 20), "no further than there is");
        assert_eq!(state.wanted(&picture(Cursor::Now)).window, Window::Range(0, 20));
    }

    #[test]
    fn columns_and_the_peak_lead_to_moments() {
        let picture = picture(Cursor::Now);
        let study = picture.study.as_ref().unwrap();
        let mut state = TimelineState::default();
        let first = state.act(TimelineAction::Column(0, 80), &picture);
        assert_eq!(first, Some(Move::To(study.moments[study.fullest_in(0, 80)].position)));
        let to_peak = Some(Move::To(study.peak.unwrap().position));
        let whole = state.act(TimelineAction::Column(0, 1), &picture);
        assert_eq!(whole, to_peak, "one column for all is as high as the peak");
        let peak = state.act(TimelineAction::Peak, &picture);
        assert_eq!(peak, study.peak.map(|peak| Move::To(peak.position)));
        for _ in Grouping::ALL {
            state.act(TimelineAction::Grouping, &picture);
        }
        assert_eq!(state.grouping, Grouping::Category, "round and round");
    }
}
