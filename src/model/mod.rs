//! The memory model: a plain reducer over the event stream. No clock, no I/O, no terminal.

pub mod advice;
mod alike;
mod allocator_state;
mod autopsy;
mod boundaries;
mod bounds;
mod configuration;
mod curves;
mod diagnosis;
mod dictionary;
mod effect;
mod emptying;
mod event;
mod evidence;
mod figure;
mod finding;
mod flame;
mod footing;
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
mod news;
mod numbers;
mod occupancy;
mod parallelism;
mod parts;
mod pools;
mod presence;
mod profile;
mod ranks;
mod reading;
mod releases;
mod remedy;
mod run;
mod segment_views;
mod sharing;
mod steps;
mod study;
mod view;

// Sources under `tests/common` are shared with integration tests, which refer to `vramlab_model::`.
#[cfg(test)]
extern crate self as vramlab_model;

#[cfg(test)]
#[path = "../../tests/common/synthetic.rs"]
pub(crate) mod synthetic;

pub use alike::AlikeRanks;
pub use allocator_state::{AllocatorState, PlacedBlock};
pub use autopsy::{Autopsy, Owner, Unusable, Why};
pub use boundaries::Boundaries;
pub use bounds::MOST_SEGMENTS;
pub use configuration::Configuration;
pub use diagnosis::Diagnosis;
pub use effect::{Effect, EmptyCacheEffect, Flip, Measurement};
pub use event::{
    Category, CopyDirection, Event, EventKind, FailedRequest, FlipTrials, ModuleOutput, NameId, Phase, RemedyTrial,
    StepReport,
};
pub use evidence::{Evidence, FreeMemoryMoment, KeptLine, LeakCause, SegmentHolder};
pub use figure::Figure;
pub use finding::{Finding, Gain, Trial};
pub use flame::{Flame, Node, Shape, TagError, Tags};
pub use footing::Footing;
pub use history::{Column, History, Mark, MarkKind, Page};
pub use holdings::{Difference, Holding, differences, holdings, holdings_by_module, lines_within};
pub use lab::Lab;
pub use leaks::{Leak, LeakFinder, Rhythm, RhythmFinder};
pub use ledger::Ledger;
pub use lesson::{LessonAnswer, LessonNote, LessonPart};
pub use memory::{Fault, MemoryModel, ModelError, Segment};
pub use news::News;
pub use occupancy::Occupancy;
pub use parallelism::{Parallelism, PipelineSchedule};
pub use parts::{Hole, PinnedBytes, SegmentPart};
pub use pools::{PoolTotals, StrandingSegment};
pub use presence::Presence;
pub use profile::{Profile, Sample};
pub use ranks::{PackedRanks, Ranks};
pub use reading::{Activity, DriverMemory, GpuProcess, MemoryShares, OwnUse, PcieTraffic, Reading, Throttle, Xid};
pub use remedy::Remedy;
pub use run::{About, DeviceKind, Items, RunSettings, RunState, Setting};
pub use sharing::{ALL_GATHER, DDP_BUCKET, STAGE};
pub use study::{Grouping, Life, Located, OpRow, OpRun, OpTotals, OutlineMoment, Sort, Study, StudyGroup, Survivor};
pub use view::{
    BlockView, CopiesView, GeneratedText, HostKind, HostMemory, Level, LogLine, Names, Profiles, SegmentView, Stacks,
    StepsView, TouchedBlock, Traffic, View,
};
pub use vramlab_allocator::units::Micros;
pub use vramlab_snapshot::{Begins, frames};
