//! The comparison: which configuration is looked at, and which one the others are compared with.

use std::sync::Arc;

use crate::model::Configuration;
use crate::source::{Move, Picture};

/// What the comparison's own keys and clicks ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAction {
    /// Select a configuration so many places further on.
    Row(i8),
    /// Select the configuration at a place.
    Select(usize),
    /// Compare all others with the one selected.
    Baseline,
    /// Move the cursor to where the one selected began.
    Go,
}

impl CompareAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Row(places) => {
                if places < 0 {
                    "previous-configuration"
                } else {
                    "next-configuration"
                }
            }
            Self::Baseline => "baseline",
            Self::Go => "go-to-configuration",
            Self::Select(_) => "",
        }
    }
}

/// What the comparison remembers: configurations by where they began, as others may go.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompareState {
    /// The one that is looked at; else the newest.
    selected: Option<u64>,
    /// The one that all others are compared with; else the first.
    baseline: Option<u64>,
}

impl CompareState {
    /// The configuration that is looked at, by its place; `None`: there is none.
    #[must_use]
    pub fn selected(&self, all: &[Arc<Configuration>]) -> Option<usize> {
        place_of(self.selected, all).or(all.len().checked_sub(1))
    }

    /// The configuration that all others are compared with, by its place; `None`: there is none.
    #[must_use]
    pub fn baseline(&self, all: &[Arc<Configuration>]) -> Option<usize> {
        place_of(self.baseline, all).or(if all.is_empty() { None } else { Some(0) })
    }

    /// Does it; says where the cursor is to go, if anywhere.
    pub fn act(&mut self, action: CompareAction, picture: &Picture) -> Option<Move> {
        let all = &picture.configurations;
        let selected = self.selected(all)?;
        let position = |place: usize| all.get(place).map(|configuration| configuration.position);
        match action {
            CompareAction::Row(places) => {
                let place = selected.saturating_add_signed(isize::from(places)).min(all.len() - 1);
                self.selected = position(place);
            }
            CompareAction::Select(place) => self.selected = position(place).or(self.selected),
            CompareAction::Baseline => self.baseline = position(selected),
            CompareAction::Go => return position(selected).map(Move::To),
        }
        None
    }
}

fn place_of(position: Option<u64>, all: &[Arc<Configuration>]) -> Option<usize> {
    let position = position?;
    all.iter().position(|configuration| configuration.position == position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began_at(positions: &[u64]) -> Picture {
        let configuration = |position: &u64| {
            Arc::new(Configuration {
                settings: Arc::default(),
                step: 0,
                position: *position,
                steps: 1,
                measured: None,
                out_of_memory: false,
                curve: None,
            })
        };
        Picture { configurations: positions.iter().map(configuration).collect(), ..Picture::default() }
    }

    #[test]
    fn the_newest_is_looked_at_until_another_is_selected() {
        let mut state = CompareState::default();
        let (two, three) = (began_at(&[3, 50]), began_at(&[3, 50, 90]));
        assert_eq!(state.selected(&two.configurations), Some(1));
        assert_eq!(state.selected(&three.configurations), Some(2));
        assert_eq!(state.act(CompareAction::Row(-1), &three), None);
        assert_eq!(state.selected(&three.configurations), Some(1));
        assert_eq!(state.selected(&began_at(&[50, 90, 120]).configurations), Some(0), "the oldest has gone");
        assert_eq!(state.act(CompareAction::Go, &three), Some(Move::To(50)));
        state.act(CompareAction::Row(9), &three);
        assert_eq!(state.selected(&three.configurations), Some(2), "no further than there are");
        assert_eq!(state.selected(&[]), None);
        assert_eq!(state.act(CompareAction::Go, &began_at(&[])), None);
    }

    #[test]
    fn the_first_is_the_baseline_until_another_is_chosen() {
        let mut state = CompareState::default();
        let all = began_at(&[3, 50, 90]);
        assert_eq!(state.baseline(&all.configurations), Some(0));
        state.act(CompareAction::Select(1), &all);
        state.act(CompareAction::Baseline, &all);
        state.act(CompareAction::Select(2), &all);
        assert_eq!((state.baseline(&all.configurations), state.selected(&all.configurations)), (Some(1), Some(2)));
        assert_eq!(state.baseline(&[]), None);
    }
}
