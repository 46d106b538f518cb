//! Names: texts of events, each defined once, and the names of blocks within a module.

use std::collections::HashMap;
use std::sync::Arc;

use vramlab_model::NameId;

/// All names so far.
#[derive(Default)]
pub(super) struct NameTable {
    texts: HashMap<Arc<str>, NameId>,
    known: Vec<Arc<str>>,
    /// By module. A module has a handful of names: a linear search is faster than a hash.
    within: Vec<Vec<(&'static str, NameId)>>,
}

impl NameTable {
    /// The name that is known by `text`.
    pub fn get(&self, text: &str) -> Option<NameId> {
        self.texts.get(text).copied()
    }

    /// Defines `text`, which has no name yet.
    pub fn define(&mut self, text: &Arc<str>) -> NameId {
        let id = NameId(u32::try_from(self.known.len() + 1).unwrap_or(u32::MAX));
        self.known.push(Arc::clone(text));
        self.texts.insert(Arc::clone(text), id);
        id
    }

    /// The text of `name`.
    pub fn text(&self, name: NameId) -> Option<&Arc<str>> {
        self.known.get((name.0 as usize).checked_sub(1)?)
    }

    /// The name of `what` within the module `scope`, if it was asked for before.
    pub fn within(&self, scope: NameId, what: &'static str) -> Option<NameId> {
        let names = self.within.get(scope.0 as usize)?;
        names.iter().find(|(known, _)| *known == what).map(|(_, name)| *name)
    }

    /// Remembers the name of `what` within the module `scope`.
    pub fn keep_within(&mut self, scope: NameId, what: &'static str, name: NameId) {
        let place = scope.0 as usize;
        if self.within.len() <= place {
            self.within.resize_with(place + 1, Vec::new);
        }
        self.within[place].push((what, name));
    }
}
