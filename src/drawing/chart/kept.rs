//! Keeps the areas of the last frames: a frame in which only a cursor moved has the same.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::stack::{Areas, Stack};
use crate::theme::Theme;
use vramlab_allocator::units::Bytes;

/// The areas of the last charts.
#[derive(Clone, Debug, Default)]
pub struct KeptAreas(RefCell<VecDeque<(AreasKey, Arc<Areas>)>>);

/// What areas depend on: the stacks, the height of the plot in bytes, its width and rows, and whether a cell shows one
/// part only.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AreasKey {
    stacks: Vec<Stack>,
    top: Bytes,
    size: (u16, u16),
    whole_cells: bool,
}

impl KeptAreas {
    /// How many are kept: a curve, the one beside it, and each once more above a legend of other height.
    const MOST: usize = 4;

    /// [`Areas::of`], unless one of the last charts had the same.
    pub fn areas(&self, stacks: Vec<Stack>, top: Bytes, theme: &Theme, size: (u16, u16)) -> Arc<Areas> {
        let key = AreasKey { stacks, top, size, whole_cells: theme.has_whole_cells() };
        let mut kept = self.0.borrow_mut();
        if let Some((_, areas)) = kept.iter().find(|(known, _)| *known == key) {
            return Arc::clone(areas);
        }
        let areas = Arc::new(Areas::of(&key.stacks, top, theme, size));
        kept.truncate(Self::MOST - 1);
        kept.push_front((key, Arc::clone(&areas)));
        areas
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Ink;
    use crate::theme::{ColorTier, ThemeCatalog, Token};

    #[test]
    fn areas_are_made_anew_only_if_something_changed() {
        let theme = |name, tier| ThemeCatalog::default().load(name, tier).unwrap().0;
        let (dark, letters) = (theme("dark", ColorTier::True), theme("dark", ColorTier::None));
        let stacks = |height: u64| {
            let mut stack = Stack::default();
            stack.add(Bytes(height), Ink { token: Token::Allocated, fill: "█" });
            vec![stack]
        };
        let kept = KeptAreas::default();
        let first = kept.areas(stacks(5), Bytes(8), &dark, (1, 4));
        assert!(Arc::ptr_eq(&first, &kept.areas(stacks(5), Bytes(8), &dark, (1, 4))));
        for other in [
            kept.areas(stacks(6), Bytes(8), &dark, (1, 4)),
            kept.areas(stacks(5), Bytes(9), &dark, (1, 4)),
            kept.areas(stacks(5), Bytes(8), &dark, (1, 5)),
            kept.areas(stacks(5), Bytes(8), &letters, (1, 4)),
        ] {
            assert!(!Arc::ptr_eq(&first, &other));
        }
        assert_eq!(kept.0.borrow().len(), KeptAreas::MOST);
    }
}
