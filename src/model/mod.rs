//! The memory model: a plain reducer over the event stream. No clock, no I/O, no terminal.

mod effect;
mod event;
mod finding;
mod growth;
mod history;
mod lab;
mod ledger;
mod log;
mod memory;
mod reading;
mod steps;
mod timeline;
mod view;

#[cfg(test)]
#[path = "../../tests/common/synthetic.rs"]
pub(crate) mod synthetic;

pub use event::{Category, CopyDirection, Event, EventKind, Micros, NameId, Phase, Pool, StepReport};
pub use history::{Column, History, Mark, Page};
pub use lab::Lab;
pub use ledger::Ledger;
pub use memory::{Fault, MemoryModel, ModelError, Segment};
pub use reading::{Activity, DriverMemory, GpuProcess, MemoryShares, OwnUse, PcieTraffic, Reading, Throttle, Xid};
pub use timeline::EventLog;
pub use view::{
    BlockView, CopiesView, Effect, Finding, Generated, HostKind, HostMemory, Level, LogLine, Measurement, Names,
    SegmentView, StepsView, Traffic, View,
};
