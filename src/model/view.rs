//! What a screen draws: an immutable picture of a lab at one event.
//!
//! [`super::Lab`] makes it; screens, tables and lessons read it and nothing else. Cheap to share (`Arc<View>`).

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
    /// Events before the run that is under way: a source can have several, one after another.
    pub begun: u64,
    /// Time of the last event.
    pub time: Micros,
    /// The five accounts and what follows from them.
    pub ledger: Ledger,
    /// The same when the last step ended; before the first one did, now.
    pub rested: Ledger,
    /// The largest free piece of a segment that a block holds; pages of expandable ranges are left out.
    pub largest_hole: Bytes,
    /// Highest allocated bytes (blocks handed out), since the start.
    pub peak_allocated: Bytes,
    /// Most bytes asked for at once, since the start; a block counts until other streams are done with it.
    pub peak_requested: Bytes,
    /// Highest reserved bytes, since the start.
    pub peak_reserved: Bytes,
    /// Peaks since `torch.cuda.reset_peak_memory_stats()`, where it was called.
    pub since_reset: Option<PeaksSinceReset>,
    /// Free bytes of segments that a block holds, without expandable ranges.
    pub inactive_split: Bytes,
    /// The most that may be reserved.
    pub limit: Option<Bytes>,
    /// Live bytes (block sizes) by category, in the order of [`Category::ALL`].
    pub by_category: [Bytes; 9],
    /// Live bytes by category when allocated was highest during the last whole step.
    pub peak_by_category: [Bytes; 9],
    /// Page-locked host memory: handed out and held.
    pub host: HostMemory,
    /// All segments in address order, each with its blocks.
    pub segments: Arc<Vec<SegmentView>>,
    /// Peaks and floor of every step. Of a state that was gone back to only the last of them: the run's own history has all.
    pub history: Arc<History>,
    /// The curves of steps.
    pub profiles: Profiles,
    /// What was allocated between the phases of the last step.
    pub boundaries: Boundaries,
    /// Where allocated was highest so far.
    pub peak_position: u64,
    /// Counters of the allocator's traffic.
    pub traffic: Traffic,
    /// The steps so far.
    pub steps: StepsView,
    /// What the driver last said of the GPU, where there is one.
    pub gpu: Option<Arc<Reading>>,
    /// Where in a lesson the run is, where it belongs to one.
    pub lesson: Option<Arc<LessonNote>>,
    /// The phase under way, if any.
    pub phase: Option<Phase>,
    /// The op under way or just finished.
    pub op: NameId,
    /// Blocks that the op under way took or gave back so far.
    pub touched: Vec<TouchedBlock>,
    /// The last measured effects, newest last; the one being measured is last and incomplete.
    pub effects: Vec<Arc<Effect>>,
    /// Every configuration so far, in the order in which they were first in force.
    pub configurations: Vec<Arc<Configuration>>,
    /// Why the last request failed, until a whole step went through.
    pub autopsy: Option<Arc<Autopsy>>,
    /// What flips would do to the peak of a step, where that was tried since the last one.
    pub weighed: Option<Arc<FlipTrials>>,
    /// The last lines of the log, oldest first.
    pub log: Vec<LogLine>,
    /// What the model concludes, most important first.
    pub findings: Vec<Finding>,
    /// The last piece of text that the model wrote.
    pub generated: Option<GeneratedText>,
    /// What modules put out in a step as it is now, in the order in which they return.
    pub modules: Arc<[ModuleOutput]>,
    /// Texts of the names that appear here.
    pub names: Names,
    /// The stacks of those names that have one.
    pub stacks: Stacks,
    /// Events that contradicted those before them.
    pub malformed: u64,
}

/// Peaks since `torch.cuda.reset_peak_memory_stats()` was called last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeaksSinceReset {
    /// Highest allocated bytes since: `torch.cuda.max_memory_allocated()`.
    pub allocated: Bytes,
    /// Highest reserved bytes since: `torch.cuda.max_memory_reserved()`.
    pub reserved: Bytes,
    /// The event that reset them, by its place in the stream.
    pub position: u64,
}

impl View {
    /// `torch.cuda.max_memory_allocated()`: since the last reset, else since the start.
    #[must_use]
    pub fn max_memory_allocated(&self) -> Bytes {
        self.since_reset.map_or(self.peak_allocated, |since| since.allocated)
    }

    /// `torch.cuda.max_memory_reserved()`: since the last reset, else since the start.
    #[must_use]
    pub fn max_memory_reserved(&self) -> Bytes {
        self.since_reset.map_or(self.peak_reserved, |since| since.reserved)
    }

    /// Whether peaks are known: where only memory at the end is, they are no more than that.
    #[must_use]
    pub fn knows_peaks(&self) -> bool {
        self.about.history != Some(Begins::Nowhere)
    }
}

/// The curves of steps that a screen lays over each other.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    /// The step under way, so far; empty between steps.
    pub under_way: Arc<Profile>,
    /// The last whole step.
    pub last: Option<Arc<Profile>>,
    /// The last whole step before something was changed last.
    pub before: Option<Arc<Profile>>,
}

/// A block that an op took or gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TouchedBlock {
    /// First byte.
    pub address: Address,
    /// Size.
    pub size: Bytes,
    /// What it was taken for; none where it was given back.
    pub taken: Option<Category>,
}

/// Texts by [`NameId`].
#[derive(Clone, Debug, Default)]
pub struct Names(pub Arc<Vec<Arc<str>>>);

impl Names {
    /// The text of `id`; empty where it has none.
    #[must_use]
    pub fn get(&self, id: NameId) -> &str {
        self.0.get(id.0 as usize).map_or("", |text| text)
    }

    /// The same, shared.
    #[must_use]
    pub fn shared(&self, id: NameId) -> Arc<str> {
        self.0.get(id.0 as usize).map_or_else(|| "".into(), Arc::clone)
    }
}

/// The frames of stacks by [`NameId`].
#[derive(Clone, Debug, Default)]
pub struct Stacks(pub(super) Arc<BTreeMap<NameId, Arc<[NameId]>>>);

impl Stacks {
    /// The texts of the frames, the innermost first; empty where the name has no stack.
    #[must_use]
    pub fn frames(&self, name: NameId) -> &[NameId] {
        self.0.get(&name).map_or(&[], |frames| frames)
    }

    /// True where no name has a stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &Arc<[NameId]>)> {
        self.0.iter().map(|(name, frames)| (*name, frames))
    }

    /// True where both are the same value, not only equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Page-locked host memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostMemory {
    /// In blocks that are handed out.
    pub allocated: Bytes,
    /// In all blocks.
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
    /// Requests that emptied the cache and tried again: PyTorch's `num_alloc_retries`. A conclusion where garbage is collected
    /// or blocks can be oversize.
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
    /// Of an expandable range: the bytes that go back at once, counted from the first byte here.
    #[serde(skip)]
    pub page: Option<Bytes>,
    /// Live and pending blocks in address order; what lies between them is free.
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
    /// Freed, waiting for another stream.
    pub pending: bool,
    /// What it is for.
    pub category: Category,
    /// What it is called.
    pub name: NameId,
    /// The op that took it; none between ops.
    pub op: NameId,
    /// Events before the one that took it.
    pub born: u64,
}

/// The steps so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepsView {
    /// Steps finished.
    pub finished: u64,
    /// The last one.
    pub last: Option<StepReport>,
    /// Median time of the last steps, microseconds.
    pub median: Micros,
    /// Median time of each phase over the same steps, in the order of [`Phase::ALL`].
    pub phases: [Micros; 5],
    /// Median copy time over the same steps.
    pub copy: Micros,
    /// Median time of exchanges with other ranks over the same steps.
    pub exchange: Micros,
    /// Median time of the last five steps without exchanges; `None` before there are as many.
    pub own: Option<Micros>,
    /// How fast those copies are, and from what memory; `None` where nothing is copied.
    pub copies: Option<CopiesView>,
    /// Tokens or samples a second over the same steps.
    pub throughput: f64,
    /// Losses for a small chart: at most 512 points over the whole run, each the mean of equally many steps.
    pub losses: Vec<f32>,
    /// Steps the scaler skipped.
    pub skipped: u64,
}

/// Copies between host and device over some steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CopiesView {
    /// Bytes a second while copies are under way.
    pub bytes_per_second: f64,
    /// The host's memory.
    pub host: HostKind,
}

/// Which host memory copies go from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostKind {
    /// Page-locked: copied beside the computation.
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
    /// When.
    pub time: Micros,
    /// The step under way then.
    pub step: u64,
    /// How loud.
    pub level: Level,
    /// The line.
    pub text: Arc<str>,
}

/// How loud a log line or finding is.
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
