//! The figures of a run at several moments.

use std::collections::BTreeMap;

use super::table::Figures;

/// The current figures, and those of marked moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// The current figures, for names without a mark.
    pub now: Figures,
    marked: BTreeMap<String, Figures>,
}

impl Moments {
    /// Moments without any mark.
    #[must_use]
    pub const fn new(now: Figures) -> Self {
        Self { now, marked: BTreeMap::new() }
    }

    /// Sets a mark: from now on `name.reserved` is read from `figures`. An earlier mark of this name is replaced.
    pub fn mark(&mut self, name: &str, figures: Figures) {
        self.marked.insert(name.to_owned(), figures);
    }

    /// The figures of a mark, or the current ones.
    #[must_use]
    pub fn at(&self, mark: Option<&str>) -> Option<&Figures> {
        mark.map_or(Some(&self.now), |mark| self.marked.get(mark))
    }

    /// The names of all marks.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        self.marked.keys().map(String::as_str)
    }
}
