//! What each screen remembers between frames, and how its own keys and clicks change that: a file for each screen.

mod blocks;
mod compare;
mod lab;
mod ledger;
mod ops;
mod seen;
mod timeline;

use crate::source::{Move, Picture, Wanted};

pub(crate) use blocks::Picked;
pub use blocks::{BlocksAction, BlocksState};
pub use compare::{CompareAction, CompareState};
pub use lab::{LabAction, LabState};
pub use ledger::{LedgerAction, LedgerState};
pub use ops::{OpsAction, OpsState};
pub use seen::Seen;
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
}

/// What a screen wants studied of the run, given where its picture is; `None`: nothing.
pub type Wants = fn(&mut ScreenStates, &Picture) -> Option<Wanted>;

impl ScreenAction {
    /// The word by which settings name it; empty for what only the mouse asks for.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lab(LabAction::ZoomIn) => "zoom-in",
            Self::Lab(LabAction::ZoomOut) => "zoom-out",
            Self::Blocks(BlocksAction::Next) => "next-block",
            Self::Blocks(BlocksAction::Previous) => "previous-block",
            Self::Blocks(BlocksAction::NextSegment) => "next-segment",
            Self::Blocks(BlocksAction::PreviousSegment) => "previous-segment",
            Self::Blocks(BlocksAction::LargestHole) => "largest-hole",
            Self::Blocks(BlocksAction::LargestBlock) => "largest-block",
            Self::Blocks(BlocksAction::OfOp) => "block-of-op",
            Self::Blocks(BlocksAction::Leave) => "select-nothing",
            Self::Blocks(BlocksAction::ZoomIn) => "blocks-zoom-in",
            Self::Blocks(BlocksAction::ZoomOut) => "blocks-zoom-out",
            Self::Blocks(BlocksAction::ZoomAll) => "blocks-zoom-all",
            Self::Blocks(BlocksAction::Coloring) => "blocks-colouring",
            Self::Blocks(BlocksAction::Order) => "blocks-order",
            Self::Blocks(BlocksAction::Peak) => "blocks-peak",
            Self::Timeline(TimelineAction::ZoomIn) => "step-zoom-in",
            Self::Timeline(TimelineAction::ZoomOut) => "step-zoom-out",
            Self::Timeline(TimelineAction::Window) => "step-window",
            Self::Timeline(TimelineAction::Grouping) => "step-grouping",
            Self::Timeline(TimelineAction::Peak) => "step-peak",
            Self::Ops(OpsAction::Totals) => "ops-rows",
            Self::Ops(OpsAction::Sort) => "ops-sort",
            Self::Ops(OpsAction::Window) => "ops-window",
            Self::Ops(OpsAction::Tag) => "tag",
            Self::Ops(OpsAction::Peak) => "ops-peak",
            Self::Compare(CompareAction::Row(places)) => {
                if places < 0 {
                    "previous-configuration"
                } else {
                    "next-configuration"
                }
            }
            Self::Compare(CompareAction::Baseline) => "baseline",
            Self::Compare(CompareAction::Go) => "go-to-configuration",
            Self::Ledger(LedgerAction::Window) => "ledger-window",
            Self::Ledger(LedgerAction::Finding(places)) => {
                if places < 0 {
                    "previous-finding"
                } else {
                    "next-finding"
                }
            }
            Self::Ledger(LedgerAction::NextRemedy) => "next-remedy",
            Self::Ledger(LedgerAction::Go) => "go-to-finding",
            Self::Ledger(LedgerAction::Peak) => "ledger-peak",
            Self::Lab(LabAction::HistoryColumn(..) | LabAction::StepColumn(..))
            | Self::Compare(CompareAction::Select(_))
            | Self::Blocks(BlocksAction::Cell(..))
            | Self::Timeline(TimelineAction::Column(..))
            | Self::Ledger(LedgerAction::Select(_)) => "",
        }
    }
}

impl ScreenStates {
    /// Does what is asked of one screen; says where the cursor is to go, if anywhere.
    pub fn act(&mut self, action: ScreenAction, seen: Seen<'_>) -> Option<Move> {
        match action {
            ScreenAction::Lab(action) => self.lab.act(action, seen.picture, seen.history_columns),
            ScreenAction::Blocks(action) => self.blocks.act(action, seen),
            ScreenAction::Timeline(action) => self.timeline.act(action, seen.picture),
            ScreenAction::Ops(action) => self.ops.act(action, seen.picture),
            ScreenAction::Compare(action) => self.compare.act(action, seen.picture),
            ScreenAction::Ledger(action) => self.ledger.act(action, seen.picture),
        }
    }
}
