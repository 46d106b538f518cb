//! The screens that a step can recommend.

use serde::Deserialize;

/// A screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Look {
    /// The first screen.
    Lab,
    /// Segments and blocks.
    Blocks,
    /// One step, event by event.
    Step,
    /// Ops and modules.
    Ops,
    /// Configurations side by side.
    Compare,
    /// The accounts of reserved memory.
    Ledger,
    /// Memory by stacks.
    Stacks,
}

impl Look {
    /// All screens.
    pub const ALL: [Self; 7] =
        [Self::Lab, Self::Blocks, Self::Step, Self::Ops, Self::Compare, Self::Ledger, Self::Stacks];

    /// The screen's word in a lesson's file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Blocks => "blocks",
            Self::Step => "step",
            Self::Ops => "ops",
            Self::Compare => "compare",
            Self::Ledger => "ledger",
            Self::Stacks => "stacks",
        }
    }
}
