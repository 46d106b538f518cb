//! What each screen remembers between frames, and how its own keys and clicks change that: a file for each screen.

mod blocks;
mod compare;
mod lab;
mod ledger;
mod ops;
mod seen;
mod stacks;
mod timeline;

use std::sync::Arc;

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

/// What a key or a click of one screen asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenAction {
    /// Of the Lab.
    Lab(LabAction),
    /// Of the blocks.
    Blocks(BlocksAction),
    /// Of the timeline.
    Timeline(TimelineAction),
    /// Of the ops.
    Ops(OpsAction),
    /// Of the comparison.
    Compare(CompareAction),
    /// Of the ledger.
    Ledger(LedgerAction),
    /// Of the stacks.
    Stacks(StacksAction),
}

/// What a person writes words to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Blocks.
    Blocks,
    /// Branches of the tree of stacks.
    Stacks,
}

/// What screens remember.
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
}

/// What a screen wants studied of the run, given where its picture is; `None`: nothing.
pub type Wants = fn(&mut ScreenStates, &Picture) -> Option<StudyRequest>;

impl ScreenAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
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
    /// What is looked for.
    #[must_use]
    pub fn looked_for(&self, of: Lookup) -> &str {
        match of {
            Lookup::Blocks => &self.blocks.filter,
            Lookup::Stacks => &self.stacks.search,
        }
    }

    /// Looks for something else.
    pub fn look_for(&mut self, of: Lookup, text: Arc<str>) {
        match of {
            Lookup::Blocks => self.blocks.filter = text,
            Lookup::Stacks => self.stacks.search = text,
        }
    }

    /// The first row to show, once after something was brought into view.
    pub(crate) fn take_scroll(&mut self) -> Option<usize> {
        self.blocks.take_scroll().or_else(|| self.stacks.take_scroll())
    }

    /// Does what is asked of one screen; says where the cursor is to go, if anywhere.
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
