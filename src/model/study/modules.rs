//! The bytes that modules keep from their forward until backward begins.

use std::collections::BTreeMap;

use super::Study;
use crate::{NameId, Phase, naming};
use vramlab_allocator::units::Bytes;

impl Study {
    /// Bytes that the ops below the module at `path` allocated in its last forward pass and that are alive when
    /// backward begins; an empty `path` means the whole model. `None` if no backward pass follows a forward pass in the
    /// range.
    #[must_use]
    pub fn kept_by(&self, path: &str) -> Option<Bytes> {
        let passes = !self.kept.is_empty();
        passes.then(|| self.kept.get(path).copied().unwrap_or_default())
    }

    /// Bytes by module path, each including the modules below it, over the last pass in which it ran.
    pub(super) fn kept_by_modules(&self) -> BTreeMap<String, Bytes> {
        let (mut all, mut paths) = (BTreeMap::new(), BTreeMap::new());
        let mut lives = self.lives.iter().peekable();
        for (index, place) in self.phases.iter().enumerate().filter(|(_, place)| place.what == Some(Phase::Forward)) {
            let next = self.phases[index + 1..].iter().find(|next| next.what.is_some());
            let Some(next) = next.filter(|next| next.what == Some(Phase::Backward)) else { continue };
            let mut pass: BTreeMap<&str, Bytes> = BTreeMap::from([("", Bytes::ZERO)]);
            while lives.next_if(|life| life.born < place.position).is_some() {}
            while let Some(life) = lives.next_if(|life| life.born < next.position) {
                let path = *paths.entry(life.op).or_insert_with_key(|op: &NameId| naming::place(self.names.get(*op)));
                let bytes = if life.is_alive_at(next.position) { life.size } else { Bytes::ZERO };
                let ends = path.match_indices('.').map(|(end, _)| end).chain([path.len()]);
                for end in ends.filter(|end| *end > 0) {
                    *pass.entry(&path[..end]).or_default() += bytes;
                }
                *pass.entry("").or_default() += bytes;
            }
            all.extend(pass.into_iter().map(|(path, bytes)| (path.to_owned(), bytes)));
        }
        all
    }
}
