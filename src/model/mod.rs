//! The memory model: a plain reducer over the event stream. No clock, no I/O, no terminal.

mod allocator_state;
mod autopsy;
mod boundaries;
mod configuration;
mod curves;
mod dictionary;
mod effect;
mod emptying;
mod event;
mod finding;
mod flame;
pub mod frames;
mod growth;
mod history;
mod holdings;
mod lab;
mod leaks;
mod ledger;
mod lesson;
mod log;
mod memory;
pub mod naming;
mod occupancy;
mod parts;
mod pools;
mod profile;
mod ranks;
mod reading;
mod releases;
mod remedy;
mod run;
mod segment_views;
mod steps;
mod study;
mod view;

#[cfg(test)]
#[path = "../../tests/common/synthetic.rs"]
pub(crate) mod synthetic;

pub use allocator_state::{AllocatorState, Placed};
pub use autopsy::{Autopsy, Owner, Unusable, Why};
pub use boundaries::Boundaries;
pub use configuration::Configuration;
pub use effect::{Effect, Emptied, Figure, Flip, Measurement};
pub use event::{
    Category, CopyDirection, Event, EventKind, FailedRequest, Micros, ModuleOutput, NameId, Phase, Remedied, StepReport,
};
pub use finding::{Evidence, Finding, Holder, LeakCause};
pub use flame::{Flame, Node, Shape, TagError, Tags};
pub use history::{Column, History, Mark, MarkKind, Page};
pub use holdings::{Difference, Holding, differences, holdings};
pub use lab::Lab;
pub use leaks::{Leak, LeakFinder, Rhythm, RhythmFinder};
pub use ledger::Ledger;
pub use lesson::{LessonNote, LessonPart};
pub use memory::{Fault, MemoryModel, ModelError, Segment};
pub use occupancy::Occupancy;
pub use parts::{Hole, Part, Pinned};
pub use pools::{PoolTotals, StrandingSegment};
pub use profile::{Profile, Sample};
pub use ranks::Ranks;
pub use reading::{Activity, DriverMemory, GpuProcess, MemoryShares, OwnUse, PcieTraffic, Reading, Throttle, Xid};
pub use remedy::Remedy;
pub use run::{About, Begins, DeviceKind, Items, RunState, Setting, Settings};
pub use study::{Group, Grouping, Life, Moment, OpRow, OpRun, Place, Sort, Study, Survivor, Totals};
pub use view::{
    BlockView, CopiesView, Generated, HostKind, HostMemory, Level, LogLine, Names, Profiles, SegmentView, Stacks,
    StepsView, Touched, Traffic, View,
};
