//! The screens: each is a file (or a folder of panes) and one line of the list.

pub(crate) mod blocks;
pub(crate) mod compare;
mod entry;
pub(crate) mod lab;
pub(crate) mod ledger;
pub(crate) mod ops;
pub(crate) mod stacks;
pub(crate) mod timeline;

pub(crate) use entry::Screen;

/// Every screen, in the order of its tabs.
pub(crate) const SCREENS: &[Screen] =
    &[lab::SCREEN, blocks::SCREEN, timeline::SCREEN, ops::SCREEN, compare::SCREEN, ledger::SCREEN, stacks::SCREEN];
