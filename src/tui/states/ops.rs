//! The state of Ops: the rows of its table, their order, and the comparison with a tag.

use crate::model::{Grouping, OpTotals, Sort};
use crate::source::{Move, Picture, StudyRequest, Window};

/// An action of Ops' own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpsAction {
    /// Show the next kind of rows.
    Totals,
    /// Sort by the next figure.
    Sort,
    /// Switch between the step around the cursor and everything that is kept.
    Window,
    /// Set a tag at the cursor, or remove it. What survived since the tag is listed.
    Tag,
    /// Move the cursor to the peak of the window.
    Peak,
}

impl OpsAction {
    /// The word for it in settings; empty for actions that only the mouse has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Totals => "ops-rows",
            Self::Sort => "ops-sort",
            Self::Window => "ops-window",
            Self::Tag => "tag",
            Self::Peak => "ops-peak",
        }
    }
}

/// The state of Ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpsState {
    /// The kind of rows.
    pub totals: OpTotals,
    /// True to show the outputs of modules instead.
    pub forward: bool,
    /// The figure by which rows are sorted.
    pub sort: Sort,
    /// True to show everything that is kept, false for the step around the cursor.
    pub whole: bool,
    /// The number of events before the tagged moment, which is compared with the present one.
    pub tag: Option<u64>,
}

impl OpsState {
    /// The study that it wants.
    pub fn wanted(&self, picture: &Picture) -> StudyRequest {
        let here = picture.place();
        let window = match self.tag {
            Some(tag) => Window::Range(tag.min(here), tag.max(here)),
            None if self.whole => Window::Run,
            None => Window::Step,
        };
        StudyRequest { window, grouping: Grouping::Category }
    }

    /// Performs an action. Returns where to move the cursor, if anywhere.
    pub fn act(&mut self, action: OpsAction, picture: &Picture) -> Option<Move> {
        match action {
            OpsAction::Totals if self.forward => (self.forward, self.totals) = (false, OpTotals::ALL[0]),
            OpsAction::Totals if Some(&self.totals) == OpTotals::ALL.last() => self.forward = true,
            OpsAction::Totals => self.totals = next(&OpTotals::ALL, self.totals),
            OpsAction::Sort => self.sort = next(&Sort::ALL, self.sort),
            OpsAction::Window => self.whole = !self.whole,
            OpsAction::Tag => self.tag = if self.tag.is_some() { None } else { Some(picture.place()) },
            OpsAction::Peak => return picture.study.as_ref()?.peak.map(|peak| Move::To(peak.position)),
        }
        None
    }
}

fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|of| *of == now).unwrap_or(0);
    all[(at + 1) % all.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Cursor, Extent};

    #[test]
    fn a_tag_compares_its_moment_with_the_present_one_in_either_direction() {
        let at = |cursor| Picture { cursor, extent: Extent { end: 900, ..Extent::default() }, ..Picture::default() };
        let mut state = OpsState::default();
        assert_eq!(state.wanted(&at(Cursor::Now)).window, Window::Step);
        state.act(OpsAction::Window, &at(Cursor::Now));
        assert_eq!(state.wanted(&at(Cursor::Now)).window, Window::Run);
        state.act(OpsAction::Tag, &at(Cursor::At(300)));
        assert_eq!(state.wanted(&at(Cursor::Now)).window, Window::Range(300, 900));
        assert_eq!(state.wanted(&at(Cursor::At(120))).window, Window::Range(120, 300));
        state.act(OpsAction::Tag, &at(Cursor::At(120)));
        assert_eq!(state.wanted(&at(Cursor::Now)).window, Window::Run);
    }

    #[test]
    fn rows_and_orders_go_round() {
        let mut state = OpsState::default();
        for _ in OpTotals::ALL {
            assert!(!state.forward);
            state.act(OpsAction::Totals, &Picture::default());
        }
        assert!(state.forward, "the modules follow");
        state.act(OpsAction::Totals, &Picture::default());
        assert_eq!((state.totals, state.forward), (OpTotals::default(), false));
        state.act(OpsAction::Sort, &Picture::default());
        assert_eq!(state.sort, Sort::Taken);
    }
}
