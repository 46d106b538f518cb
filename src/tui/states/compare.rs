//! The state of the comparison: the selected configuration, and the baseline.

use std::sync::Arc;

use crate::model::Configuration;
use crate::source::{Move, Picture};

/// An action of the comparison's own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareAction {
    /// Select the configuration this many places further on.
    Row(i8),
    /// Select the configuration with this index.
    Select(usize),
    /// Make the selected one the baseline.
    Baseline,
    /// Move the cursor to the beginning of the selected one.
    Go,
    /// Remove the file of the selected one.
    TakeAway,
}

impl CompareAction {
    /// The word for it in settings; empty for actions that only the mouse has.
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
            Self::TakeAway => "compare-no-file",
            Self::Select(_) => "",
        }
    }
}

/// The configurations of another file.
#[derive(Clone, Debug)]
pub struct OtherFile {
    /// The file's name.
    pub name: Arc<str>,
    /// Its configurations.
    pub all: Vec<Arc<Configuration>>,
}

/// Identifies a configuration while others come and go: of the run by its beginning, of another file by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigurationKey {
    Own(u64),
    Of(usize, usize),
}

/// The state of the comparison.
#[derive(Clone, Debug, Default)]
pub struct CompareState {
    /// The selected configuration; otherwise the newest of the run.
    selected: Option<ConfigurationKey>,
    /// The baseline; otherwise the first configuration.
    baseline: Option<ConfigurationKey>,
    /// The files to compare with the run.
    pub others: Vec<OtherFile>,
}

impl CompareState {
    /// All configurations with the names of their files. `own` are the run's, and come first.
    #[must_use]
    pub fn all(&self, own: &[Arc<Configuration>]) -> Vec<(Option<Arc<str>>, Arc<Configuration>)> {
        let others = self
            .others
            .iter()
            .flat_map(|file| file.all.iter().map(|one| (Some(Arc::clone(&file.name)), Arc::clone(one))));
        own.iter().map(|one| (None, Arc::clone(one))).chain(others).collect()
    }

    /// The index of the selected configuration; `None` if there are none.
    #[must_use]
    pub fn selected(&self, own: &[Arc<Configuration>]) -> Option<usize> {
        // The newest of the run; if the run has only the baseline, the first of the other files.
        let place = if own.len() == 1 && self.baseline(own) == Some(0) { 1 } else { own.len().saturating_sub(1) };
        let newest = self.count(own).checked_sub(1).map(|last| place.min(last));
        self.place_of(self.selected, own).or(newest)
    }

    /// The index of the baseline; `None` if there are no configurations.
    #[must_use]
    pub fn baseline(&self, own: &[Arc<Configuration>]) -> Option<usize> {
        self.place_of(self.baseline, own).or(if self.count(own) > 0 { Some(0) } else { None })
    }

    /// Performs an action. Returns where to move the cursor, if anywhere.
    pub fn act(&mut self, action: CompareAction, picture: &Picture) -> Option<Move> {
        let own = &*picture.configurations;
        let selected = self.selected(own)?;
        match action {
            CompareAction::Row(places) => {
                let place = selected.saturating_add_signed(isize::from(places)).min(self.count(own) - 1);
                self.selected = self.which(place, own);
            }
            CompareAction::Select(place) => self.selected = self.which(place, own).or(self.selected),
            CompareAction::Baseline => self.baseline = self.which(selected, own),
            CompareAction::Go => return own.get(selected).map(|one| Move::To(one.position)),
            CompareAction::TakeAway => {
                if let Some(ConfigurationKey::Of(file, _)) = self.which(selected, own) {
                    self.others.remove(file);
                    (self.selected, self.baseline) = (None, None);
                }
            }
        }
        None
    }

    fn count(&self, own: &[Arc<Configuration>]) -> usize {
        own.len() + self.others.iter().map(|file| file.all.len()).sum::<usize>()
    }

    fn which(&self, place: usize, own: &[Arc<Configuration>]) -> Option<ConfigurationKey> {
        if let Some(one) = own.get(place) {
            return Some(ConfigurationKey::Own(one.position));
        }
        let mut place = place - own.len();
        for (index, file) in self.others.iter().enumerate() {
            if place < file.all.len() {
                return Some(ConfigurationKey::Of(index, place));
            }
            place -= file.all.len();
        }
        None
    }

    fn place_of(&self, which: Option<ConfigurationKey>, own: &[Arc<Configuration>]) -> Option<usize> {
        match which? {
            ConfigurationKey::Own(position) => own.iter().position(|one| one.position == position),
            ConfigurationKey::Of(file, place) => {
                let before: usize = self.others.get(..file)?.iter().map(|file| file.all.len()).sum();
                Some(own.len() + before + place)
                    .filter(|_| self.others.get(file).is_some_and(|of| place < of.all.len()))
            }
        }
    }
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

    #[test]
    fn files_stand_behind_the_run_and_can_be_taken_away() {
        let mut state = CompareState::default();
        let own = began_at(&[3, 50]);
        let file = |name: &str, positions: &[u64]| OtherFile {
            name: name.into(),
            all: began_at(positions).configurations.to_vec(),
        };
        state.others = vec![file("a", &[3]), file("b", &[3, 7])];
        let names = |state: &CompareState| {
            let name = |(name, _): (Option<Arc<str>>, _)| name.map_or_else(String::new, |name| name.to_string());
            state.all(&own.configurations).into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(&state), ["", "", "a", "b", "b"]);
        assert_eq!(state.selected(&own.configurations), Some(1), "the newest of the run");
        assert_eq!(state.selected(&began_at(&[3]).configurations), Some(1), "nothing is compared with itself");
        state.act(CompareAction::Row(1), &own);
        assert_eq!(state.act(CompareAction::Go, &own), None, "its steps are not here");
        state.act(CompareAction::Baseline, &own);
        state.act(CompareAction::Row(2), &own);
        assert_eq!((state.selected(&own.configurations), state.baseline(&own.configurations)), (Some(4), Some(2)));
        assert_eq!(state.selected(&began_at(&[3, 50, 90]).configurations), Some(5), "it stays what it is");
        state.act(CompareAction::TakeAway, &own);
        assert_eq!(
            (names(&state), state.selected(&own.configurations)),
            (["", "", "a"].map(str::to_owned).into(), Some(1))
        );
        state.act(CompareAction::TakeAway, &own);
        assert_eq!(names(&state).len(), 3, "the run itself stays");
    }
}
