//! The figures of a run at several moments.

use std::collections::BTreeMap;

use super::table::Figures;

/// Figures of now, and of moments that were marked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// What names without a mark mean.
    pub now: Figures,
    marked: BTreeMap<String, Figures>,
}

impl Moments {
    /// Nothing was marked yet.
    #[must_use]
    pub const fn new(now: Figures) -> Self {
        Self { now, marked: BTreeMap::new() }
    }

    /// From here on `name.reserved` is what `figures` say; what was marked so before is forgotten.
    pub fn mark(&mut self, name: &str, figures: Figures) {
        self.marked.insert(name.to_owned(), figures);
    }

    /// The figures of a mark, or of now.
    #[must_use]
    pub fn at(&self, mark: Option<&str>) -> Option<&Figures> {
        mark.map_or(Some(&self.now), |mark| self.marked.get(mark))
    }

    /// All marks, by name.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        self.marked.keys().map(String::as_str)
    }
}
