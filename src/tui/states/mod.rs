//! What each screen remembers between frames, and how its own keys and clicks change that. One file per screen.

mod blocks;
mod compare;
mod lab;
mod ledger;
mod ops;
mod seen;
mod stacks;
mod timeline;

use std::sync::Arc;

use crate::drawing::chart::KeptAreas;
use crate::source::{Move, Picture, StudyRequest};

pub(crate) use blocks::SelectedPart;
pub use blocks::{BlocksAction, BlocksState, Selection};
pub use compare::{CompareAction, CompareState, OtherFile};
pub(crate) use lab::cells_of_column;
pub use lab::{LabAction, LabState};
pub use ledger::{LedgerAction, LedgerState};
pub use ops::{OpsAction, OpsState};
pub use seen::ActionInput;
pub(crate) use stacks::{StackRow, StackTree};
pub use stacks::{StacksAction, StacksState};
pub use timeline::{TimelineAction, TimelineState};

/// An action of one screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// An action of the Lab.
    Lab(LabAction),
    /// An action of Blocks.
    Blocks(BlocksAction),
    /// An action of the timeline.
    Timeline(TimelineAction),
    /// An action of Ops.
    Ops(OpsAction),
    /// An action of the comparison.
    Compare(CompareAction),
    /// An action of the ledger.
    Ledger(LedgerAction),
    /// An action of Stacks.
    Stacks(StacksAction),
}

/// What a filter applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Blocks.
    Blocks,
    /// Branches of the tree on Stacks.
    Stacks,
}

/// The states of all screens.
#[derive(Clone, Debug, Default)]
pub struct ScreenStates {
    /// The Lab.
    pub lab: LabState,
    /// The blocks.
    pub blocks: BlocksState,
    /// The timeline.
    pub timeline: TimelineState,
    /// The ops.
    pub ops: OpsState,
    /// The comparison.
    pub compare: CompareState,
    /// The ledger.
    pub ledger: LedgerState,
    /// The stacks.
    pub stacks: StacksState,
    /// The areas of the last curves of a step.
    pub(crate) areas: KeptAreas,
}

/// The study that a screen wants for a picture; `None` for no study.
pub type Wants = fn(&mut ScreenStates, &Picture) -> Option<StudyRequest>;

impl ScreenAction {
    /// The word for it in settings; empty for actions that only the mouse has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lab(action) => action.word(),
            Self::Blocks(action) => action.word(),
            Self::Timeline(action) => action.word(),
            Self::Ops(action) => action.word(),
            Self::Compare(action) => action.word(),
            Self::Ledger(action) => action.word(),
            Self::Stacks(action) => action.word(),
        }
    }
}

impl ScreenStates {
    /// The current filter.
    #[must_use]
    pub fn looked_for(&self, of: Lookup) -> &str {
        match of {
            Lookup::Blocks => &self.blocks.filter,
            Lookup::Stacks => &self.stacks.search,
        }
    }

    /// Sets the filter.
    pub fn look_for(&mut self, of: Lookup, text: Arc<str>) {
        match of {
            Lookup::Blocks => self.blocks.filter = text,
            Lookup::Stacks => self.stacks.search = text,
        }
    }

    /// The first row to show, returned once after something was brought into view.
    pub(crate) fn take_scroll(&mut self) -> Option<usize> {
        self.blocks.take_scroll().or_else(|| self.stacks.take_scroll())
    }

    /// Performs a screen's action. Returns where to move the cursor, if anywhere.
    pub fn act(&mut self, action: ScreenAction, seen: ActionInput<'_>) -> Option<Move> {
        match action {
            ScreenAction::Lab(action) => self.lab.act(action, seen.picture, seen.history_columns),
            ScreenAction::Blocks(action) => self.blocks.act(action, seen),
            ScreenAction::Timeline(action) => self.timeline.act(action, seen.picture),
            ScreenAction::Ops(action) => self.ops.act(action, seen.picture),
            ScreenAction::Compare(action) => self.compare.act(action, seen.picture),
            ScreenAction::Ledger(action) => self.ledger.act(action, seen.picture),
            ScreenAction::Stacks(action) => self.stacks.act(action, seen),
        }
    }
}
