//! The picture that a screen draws: an immutable view of a lab at one event.
//!
//! [`super::Lab`] makes it; screens, tables and lessons read nothing else. Cheap to share (`Arc<View>`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{
    About, Autopsy, Boundaries, Category, Configuration, Effect, Finding, FlipTrials, History, Ledger, LessonNote,
    Micros, ModuleOutput, NameId, Phase, Profile, Reading, RunSettings, RunState, StepReport,
};
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Address, Bytes, DeviceIndex, StreamId};
use vramlab_snapshot::Begins;

/// A lab at one event.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The device that it is about.
    pub device: DeviceIndex,
    /// What is trained, and on what.
    pub about: Arc<About>,
    /// What the lab is doing.
    pub run: RunState,
    /// How the switches stand.
    pub settings: Arc<RunSettings>,
    /// Events applied so far.
    pub position: u64,
    /// The number of events before the current run. A source can have several runs, one after another.
    pub begun: u64,
    /// Time of the last event.
    pub time: Micros,
    /// The five accounts and what follows from them.
    pub ledger: Ledger,
    /// The accounts at the end of the last step; the current ones before a step has ended.
    pub rested: Ledger,
    /// The largest free piece in a segment that contains a block; expandable ranges are not included.
    pub largest_hole: Bytes,
    /// Highest allocated bytes since the start.
    pub peak_allocated: Bytes,
    /// The most bytes asked for at once, since the start. A block counts until other streams have finished with it.
    pub peak_requested: Bytes,
    /// Highest reserved bytes, since the start.
    pub peak_reserved: Bytes,
    /// Peaks since `torch.cuda.reset_peak_memory_stats()`; `None` if it was not called.
    pub since_reset: Option<PeaksSinceReset>,
    /// Free bytes of segments that contain a block, without expandable ranges.
    pub inactive_split: Bytes,
    /// The most that may be reserved; `None` if there is no limit.
    pub limit: Option<Bytes>,
    /// Live bytes (block sizes) by category, in the order of [`Category::ALL`].
    pub by_category: [Bytes; 9],
    /// Live bytes by category when allocated was highest during the last whole step.
    pub peak_by_category: [Bytes; 9],
    /// Page-locked host memory: allocated and held.
    pub host: HostMemory,
    /// All segments in address order, each with its blocks.
    pub segments: Arc<Vec<SegmentView>>,
    /// The peaks and floors of every step. A restored state has only the last of them; the run's own history has all.
    pub history: Arc<History>,
    /// The curves of steps.
    pub profiles: Profiles,
    /// Allocated bytes between the phases of the last step.
    pub boundaries: Boundaries,
    /// The position of the highest allocated bytes so far.
    pub peak_position: u64,
    /// Counters of the allocator's traffic.
    pub traffic: Traffic,
    /// The steps so far.
    pub steps: StepsView,
    /// The driver's last figures for the GPU, if there is one.
    pub gpu: Option<Arc<Reading>>,
    /// The run's position in a lesson, if it belongs to one.
    pub lesson: Option<Arc<LessonNote>>,
    /// The current phase, if any.
    pub phase: Option<Phase>,
    /// The current op, or the one just finished.
    pub op: NameId,
    /// Blocks that the current op has allocated or freed so far.
    pub touched: Vec<TouchedBlock>,
    /// The last measured effects, the newest last. An effect still being measured is last and incomplete.
    pub effects: Vec<Arc<Effect>>,
    /// Every configuration so far, in the order in which they were first in force.
    pub configurations: Vec<Arc<Configuration>>,
    /// Why the last request failed, until a whole step goes through.
    pub autopsy: Option<Arc<Autopsy>>,
    /// What flips would do to the peak of a step, if that was tried since the last flip.
    pub weighed: Option<Arc<FlipTrials>>,
    /// The last lines of the log, oldest first.
    pub log: Vec<LogLine>,
    /// The model's findings, the most important first.
    pub findings: Vec<Finding>,
    /// The last piece of text that the model wrote.
    pub generated: Option<GeneratedText>,
    /// The outputs of modules in a step, in the order in which they return.
    pub modules: Arc<[ModuleOutput]>,
    /// Texts of the names that appear here.
    pub names: Names,
    /// The stacks of the names that have one.
    pub stacks: Stacks,
    /// The number of events that contradicted earlier ones.
    pub malformed: u64,
}

/// Peaks since the last call of `torch.cuda.reset_peak_memory_stats()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeaksSinceReset {
    /// Highest allocated bytes since: `torch.cuda.max_memory_allocated()`.
    pub allocated: Bytes,
    /// Highest reserved bytes since: `torch.cuda.max_memory_reserved()`.
    pub reserved: Bytes,
    /// The position of the event that reset them.
    pub position: u64,
}

impl View {
    /// `torch.cuda.max_memory_allocated()`: since the last reset, or since the start.
    #[must_use]
    pub fn max_memory_allocated(&self) -> Bytes {
        self.since_reset.map_or(self.peak_allocated, |since| since.allocated)
    }

    /// `torch.cuda.max_memory_reserved()`: since the last reset, or since the start.
    #[must_use]
    pub fn max_memory_reserved(&self) -> Bytes {
        self.since_reset.map_or(self.peak_reserved, |since| since.reserved)
    }

    /// True if peaks are known. If only the memory at the end is known, the peaks are just that.
    #[must_use]
    pub fn knows_peaks(&self) -> bool {
        self.about.history != Some(Begins::Nowhere)
    }
}

/// The curves of steps that a screen lays over each other.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    /// The current step so far; empty between steps.
    pub under_way: Arc<Profile>,
    /// The last whole step.
    pub last: Option<Arc<Profile>>,
    /// The last whole step before the last change.
    pub before: Option<Arc<Profile>>,
}

/// A block that an op allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TouchedBlock {
    /// First byte.
    pub address: Address,
    /// Size.
    pub size: Bytes,
    /// The category for which it was allocated; `None` if it was freed.
    pub taken: Option<Category>,
}

/// Texts by [`NameId`].
#[derive(Clone, Debug, Default)]
pub struct Names(pub Arc<Vec<Arc<str>>>);

impl Names {
    /// The text of `id`; empty if it has none.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        self.0.get(id.0 as usize).map_or("", |text| text)
    }

    /// The text of `id`, shared.
    #[must_use]
    pub fn shared(&self, id: NameId) -> Arc<str> {
        self.0.get(id.0 as usize).map_or_else(|| "".into(), Arc::clone)
    }
}

/// The frames of stacks by [`NameId`].
#[derive(Clone, Debug, Default)]
pub struct Stacks(pub(super) Arc<BTreeMap<NameId, Arc<[NameId]>>>);

impl Stacks {
    /// The texts of the frames, innermost first; empty if the name has no stack.
    #[must_use]
    pub fn frames(&self, name: NameId) -> &[NameId] {
        self.0.get(&name).map_or(&[], |frames| frames)
    }

    /// True if no name has a stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All stacks, by name.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &Arc<[NameId]>)> {
        self.0.iter().map(|(name, frames)| (*name, frames))
    }

    /// True if both share one value, and are not merely equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Page-locked host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostMemory {
    /// Bytes in allocated blocks.
    pub allocated: Bytes,
    /// Bytes in all blocks.
    pub reserved: Bytes,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Blocks handed out.
    pub allocs: u64,
    /// Segments (or page runs) taken from the driver.
    pub segment_allocs: u64,
    /// Segments (or page runs) given back.
    pub segment_frees: u64,
    /// Requests that failed for good.
    pub ooms: u64,
    /// Requests that emptied the cache and tried again: PyTorch's `num_alloc_retries`. With garbage collection or
    /// oversize blocks this is a conclusion.
    pub retries: u64,
}

/// One segment, or one contiguous mapped run of an expandable range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentView {
    /// First byte.
    pub address: Address,
    /// Size.
    pub size: Bytes,
    /// Pool.
    pub pool: PoolKind,
    /// The stream it serves.
    pub stream: StreamId,
    /// Part of an expandable range.
    pub expandable: bool,
    /// For an expandable range, the bytes that can be released at once, counted from the first byte here.
    #[serde(skip)]
    pub page: Option<Bytes>,
    /// Live and pending blocks in address order. Everything between them is free.
    pub blocks: Arc<Vec<BlockView>>,
}

/// One allocated block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlockView {
    /// Bytes from the segment's start.
    pub offset: Bytes,
    /// Size of the block.
    pub size: Bytes,
    /// Bytes asked for; the rest is rounding.
    pub requested: Bytes,
    /// True if it was freed and waits for another stream.
    pub pending: bool,
    /// Its category.
    pub category: Category,
    /// Its name.
    pub name: NameId,
    /// The op that allocated it; none between ops.
    pub op: NameId,
    /// Events before its allocation.
    pub born: u64,
}

/// The steps so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepsView {
    /// Steps finished.
    pub finished: u64,
    /// The last finished step.
    pub last: Option<StepReport>,
    /// Median time of the last steps, microseconds.
    pub median: Micros,
    /// Median time of each phase over the same steps, in the order of [`Phase::ALL`].
    pub phases: [Micros; 5],
    /// Median copy time over the same steps.
    pub copy: Micros,
    /// Median time of exchanges with other ranks over the same steps.
    pub exchange: Micros,
    /// Median time of the last five steps without exchanges; `None` before there are five.
    pub own: Option<Micros>,
    /// The speed of these copies, and the kind of host memory; `None` if nothing is copied.
    pub copies: Option<CopiesView>,
    /// Tokens or samples a second over the same steps.
    pub throughput: f64,
    /// Losses for a small chart: at most 512 points over the whole run, each the mean of equally many steps.
    pub losses: Vec<f32>,
    /// The number of steps that the scaler skipped.
    pub skipped: u64,
}

/// Copies between host and device over some steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopiesView {
    /// Bytes per second while copies are in progress.
    pub bytes_per_second: f64,
    /// The host's memory.
    pub host: HostKind,
}

/// The kind of host memory that copies use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostKind {
    /// Page-locked memory: copied beside the computation.
    Pinned,
    /// Ordinary memory: the driver stages it, and the caller waits.
    Pageable,
    /// Some of each.
    Both,
}

impl HostKind {
    /// The word for it on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
            Self::Both => "pinned and pageable",
        }
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// The time of the line.
    pub time: Micros,
    /// The step in progress at that time.
    pub step: u64,
    /// How important it is.
    pub level: Level,
    /// The line.
    pub text: Arc<str>,
}

/// How important a log line or finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For the record.
    Info,
    /// A switch was flipped.
    Switch,
    /// Worth a look.
    Warning,
    /// Something failed.
    Danger,
}

/// Text that the model wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GeneratedText {
    /// Steps finished when it was written.
    pub step: u64,
    /// The text.
    pub text: Arc<str>,
}
