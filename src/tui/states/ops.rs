//! The ops: what the rows of their table are, in which order, and what is compared with what.

use crate::model::{Grouping, OpTotals, Sort};
use crate::source::{Move, Picture, StudyRequest, Window};

/// What the ops' own keys and clicks ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpsAction {
    /// Rows of the next kind.
    Totals,
    /// The next order.
    Sort,
    /// The step around the cursor, or all that is kept.
    Window,
    /// Set a tag at the cursor, or take it away: what survived since is told.
    Tag,
    /// Move the cursor to where the window is fullest.
    Peak,
}

impl OpsAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
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

/// What the ops remember.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpsState {
    /// What the rows are.
    pub totals: OpTotals,
    /// In their place, what each module's forward puts out.
    pub forward: bool,
    /// Their order.
    pub sort: Sort,
    /// The step around the cursor, or all that is kept.
    pub whole: bool,
    /// Events before the moment with which the present one is compared.
    pub tag: Option<u64>,
}

impl OpsState {
    /// What it wants to have studied.
    pub fn wanted(&self, picture: &Picture) -> StudyRequest {
        let here = picture.place();
        let window = match self.tag {
            Some(tag) => Window::Range(tag.min(here), tag.max(here)),
            None if self.whole => Window::Run,
            None => Window::Step,
        };
        StudyRequest { window, grouping: Grouping::Category }
    }

    /// Does it; says where the cursor is to go, if anywhere.
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
