//! The memory model: a plain reducer over the event stream. No clock, no I/O, no terminal.

mod event;
mod history;
mod ledger;
mod view;

#[cfg(test)]
#[path = "../../tests/common/synthetic.rs"]
pub(crate) mod synthetic;

pub use event::{Category, CopyDirection, Event, EventKind, Micros, NameId, Phase, Pool, StepReport};
pub use history::{Column, History, Mark, Page};
pub use ledger::Ledger;
pub use view::{
    BlockView, Effect, Finding, Generated, HostMemory, Level, LogLine, Measurement, Names, SegmentView, StepsView,
    Traffic, View,
};
