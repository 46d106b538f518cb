//! The vocabulary of the event stream: everything that happens to memory or to training.
//!
//! Sources (a live engine, a recording, a PyTorch snapshot) write events; [`super::MemoryModel`] and [`super::Lab`]
//! reduce them; sinks (screens, tables, exporters) see nothing else of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{About, AlikeRanks, LessonNote, Presence, Reading, Remedy, RunSettings, RunState};
use vramlab_allocator::units::{Address, Bytes, DeviceIndex, Micros, StreamId};
use vramlab_allocator::{Attempt, DeviceMemory, OutOfMemory, PoolId, PoolKind, TraceEvent, pool_of};

/// A text that appears in events, interned by the source: [`EventKind::Define`] precedes its first use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NameId(pub u32);

impl NameId {
    /// The name of unnamed things; never defined.
    pub const NONE: Self = Self(0);
}

/// What an allocation is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A weight or bias that is trained.
    Parameter,
    /// A parameter's `.grad`.
    Gradient,
    /// Moments and momentum buffers.
    OptimizerState,
    /// Saved for backward, or still held by a frame of the forward pass.
    Activation,
    /// Used within one op, or between two ops of backward.
    Temporary,
    /// Scratch memory of a library (cuBLAS, cuDNN) or of a reduction.
    Workspace,
    /// Data that ranks exchange, while it is in transit: buckets, gathered shards, received activations.
    Communication,
    /// A batch: tokens, images, labels.
    Input,
    /// Anything else, and everything in a snapshot without stacks.
    #[default]
    Other,
}

impl Category {
    /// All categories, in the order in which legends list them.
    pub const ALL: [Self; 9] = [
        Self::Parameter,
        Self::Gradient,
        Self::OptimizerState,
        Self::Activation,
        Self::Temporary,
        Self::Workspace,
        Self::Communication,
        Self::Input,
        Self::Other,
    ];

    /// All categories in the order in which their areas are stacked: long-lived memory at the bottom, memory that comes
    /// and goes with every op on top, so that nothing below it jumps. Themes make categories that usually touch
    /// alternately dark and light.
    pub const STACKED: [Self; 9] = [
        Self::Parameter,
        Self::OptimizerState,
        Self::Gradient,
        Self::Input,
        Self::Activation,
        Self::Communication,
        Self::Other,
        Self::Workspace,
        Self::Temporary,
    ];

    /// The category's name on screens, in the plural.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Parameter => "parameters",
            Self::Gradient => "gradients",
            Self::OptimizerState => "optimizer",
            Self::Activation => "activations",
            Self::Temporary => "temporaries",
            Self::Workspace => "workspaces",
            Self::Communication => "communication",
            Self::Input => "inputs",
            Self::Other => "other",
        }
    }
}

/// A part of the training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for a batch and copying it to the device.
    Data,
    /// Computing the model and the loss.
    Forward,
    /// Computing gradients.
    Backward,
    /// Unscaling, the optimizer's step, the scaler's update.
    Optimizer,
    /// Dropping or zeroing gradients.
    ZeroGrad,
}

impl Phase {
    /// All phases in the order of a step.
    pub const ALL: [Self; 5] = [Self::Data, Self::Forward, Self::Backward, Self::Optimizer, Self::ZeroGrad];

    /// The phase's name on screens.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::ZeroGrad => "zero_grad",
        }
    }
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// Host to device.
    ToDevice,
    /// Device to host.
    ToHost,
}

/// The figures of one finished step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Steps finished before this one.
    pub step: u64,
    /// Mean loss over the step's micro-batches; `None` if nothing was computed.
    pub loss: Option<f32>,
    /// Wall-clock time of the whole step (or simulated time), in microseconds.
    pub total: Micros,
    /// Time of each phase in the order of [`Phase::ALL`], in microseconds.
    pub phases: [Micros; 5],
    /// Time of copies to the device, overlapped or not, in microseconds.
    pub copy: Micros,
    /// Time of exchanges with other ranks, including waits, overlapped or not, in microseconds.
    pub exchange: Micros,
    /// Tokens (language models) or samples (others) trained on.
    pub items: u64,
    /// False when the gradient scaler skipped the optimizer (an fp16 gradient overflowed).
    pub optimizer_ran: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub time: Micros,
    /// The device that the event is about: its rank, if there are several.
    pub device: DeviceIndex,
    /// What happened.
    pub kind: EventKind,
}

impl Event {
    /// Something that happened on the first device.
    #[must_use]
    pub const fn new(time: Micros, kind: EventKind) -> Self {
        Self { time, device: DeviceIndex::FIRST, kind }
    }
}

/// A request for device memory that failed for good, as the allocator left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// Bytes asked for.
    pub requested: Bytes,
    /// The rounded size: that of the block that was searched for.
    pub rounded: Bytes,
    /// The size of the segment that the driver was asked for.
    pub segment: Bytes,
    /// The pool it was for.
    pub pool: PoolKind,
    /// The stream it was for.
    pub stream: StreamId,
    /// What the driver reports as free; a limit does not lower it.
    pub device_free: Bytes,
    /// The name of the block that the request was for.
    pub name: NameId,
    /// The allocator's attempts, in order; empty if they were not recorded.
    pub attempts: Vec<Attempt>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// `id` stands for `text` from here on.
    Define {
        /// The identifier.
        id: NameId,
        /// The text.
        text: Arc<str>,
    },
    /// The driver gave a segment (cudaMalloc).
    SegmentAlloc {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
        /// The stream whose blocks it serves.
        stream: StreamId,
        /// Its pool.
        pool: PoolKind,
    },
    /// A segment went back to the driver (cudaFree).
    SegmentFree {
        /// First byte.
        address: Address,
        /// Size.
        size: Bytes,
    },
    /// Pages of an expandable segment were mapped.
    SegmentMap {
        /// First new byte.
        address: Address,
        /// Bytes newly mapped, a multiple of `page`.
        size: Bytes,
        /// The stream.
        stream: StreamId,
        /// Its pool.
        pool: PoolKind,
        /// First byte of the reserved range that the pages belong to.
        range: Address,
        /// Page size of that range.
        page: Bytes,
    },
    /// Pages of an expandable segment were given back.
    SegmentUnmap {
        /// First byte.
        address: Address,
        /// Bytes given back.
        size: Bytes,
    },
    /// A block was allocated.
    Alloc {
        /// First byte.
        address: Address,
        /// Size of the block (rounded, and more where the rest was not split off).
        size: Bytes,
        /// Bytes asked for.
        requested: Bytes,
        /// The stream it was allocated for.
        stream: StreamId,
        /// What the block is used for.
        category: Category,
        /// The block's name.
        name: NameId,
    },
    /// A live block changed its role: a temporary became a parameter's gradient.
    Relabel {
        /// First byte of the block.
        address: Address,
        /// Its new category.
        category: Category,
        /// Its new name.
        name: NameId,
    },
    /// The program freed a block. Its bytes are pending until `FreeCompleted`.
    FreeRequested {
        /// First byte of the block.
        address: Address,
    },
    /// The block can be reused.
    FreeCompleted {
        /// First byte of the block.
        address: Address,
    },
    /// A request failed for good.
    Oom(Arc<FailedRequest>),
    /// Remedies for the last failed request, each tried before it is reported.
    Remedied(Arc<[RemedyTrial]>),
    /// What flips would do to the peak, each tried on a simulated device.
    Weighed(Arc<FlipTrials>),
    /// `empty_cache()` was called; the segments that it releases follow as events of their own.
    EmptyCache,
    /// The limit of reserved memory changed; `None` means no limit.
    Limit {
        /// The limit.
        limit: Option<Bytes>,
    },
    /// A step began.
    StepBegin {
        /// Steps finished before it.
        step: u64,
    },
    /// A phase began.
    PhaseBegin {
        /// Which.
        phase: Phase,
    },
    /// A phase ended.
    PhaseEnd {
        /// Which.
        phase: Phase,
    },
    /// An op began: forward ops carry their own name, backward ops end in `Backward`.
    OpBegin {
        /// The op's name (`linear`, `geluBackward`).
        name: NameId,
    },
    /// The op that began last ended.
    OpEnd,
    /// A step ended.
    StepEnd(StepReport),
    /// A run begins: what is known of memory and steps so far does not belong to it.
    Begin(Arc<About>),
    /// The description of what is trained changed, because of a switch.
    About(Arc<About>),
    /// The lab's state changed.
    Run(RunState),
    /// The values of all switches, in force and wanted.
    Settings(Arc<RunSettings>),
    /// A person (or the command line) changed a switch.
    SwitchFlipped {
        /// The switch's word (`amp`).
        switch: NameId,
        /// Value before.
        from: NameId,
        /// Value after.
        to: NameId,
    },
    /// A copy between host and device ended.
    Copy {
        /// Which way.
        direction: CopyDirection,
        /// How much.
        bytes: Bytes,
        /// From page-locked memory.
        pinned: bool,
        /// How long it took.
        duration: Micros,
    },
    /// The program's host memory for batches and tensors changed: page-locked blocks of the caching host allocator, and
    /// offloaded tensors in pageable memory.
    HostMemory {
        /// Bytes in allocated blocks.
        allocated: Bytes,
        /// Bytes of all blocks.
        reserved: Bytes,
    },
    /// The model begins to write text: forward passes that belong to no step follow, until `Generated`.
    Generating,
    /// The model wrote a piece of text.
    Generated {
        /// The text.
        text: Arc<str>,
    },
    /// The driver's figures for the GPU.
    Reading(Arc<Reading>),
    /// Something that a person should read now: a refusal and its reason, or a change that takes effect only later.
    Notice {
        /// One sentence about what happened, and one about what to do.
        text: Arc<str>,
    },
    /// Something worth a line in the log.
    Note {
        /// The line.
        text: Arc<str>,
    },
    /// The outputs of modules in the forward passes of the current step, in the order in which they returned. Reported
    /// only if they differ from the last report.
    Modules(Arc<[ModuleOutput]>),
    /// The stack from which blocks of this name were allocated. Reported once, before the name's first use.
    Stack {
        /// The name. Several names may have the same text.
        name: NameId,
        /// The texts of the stack's frames, innermost first; see [`super::frames`].
        frames: Arc<[NameId]>,
    },
    /// A learner advanced in a lesson.
    Lesson(Arc<LessonNote>),
    /// The last segment or pages from the driver belong to a private pool: a captured graph's or a `torch.cuda.MemPool`'s.
    PrivatePool {
        /// First byte of the segment or of the pages.
        address: Address,
        /// The private pool.
        pool: PoolId,
    },
    /// `torch.cuda.reset_peak_memory_stats()` was called: `max_memory_allocated()` and `max_memory_reserved()` start over.
    ResetPeaks,
    /// The device stands for these ranks of the run.
    AlikeRanks(Arc<AlikeRanks>),
    /// The ranks whose own GPUs the process of this device has a CUDA context on, besides its own.
    ForeignContexts(Arc<[u16]>),
    /// The device's total memory and how much was free before the run that has just begun. Reported if known.
    DeviceMemory(DeviceMemory),
    /// Whether the rank of this device can be reached. Reported at each change, and every second while the rank is silent.
    Presence(Presence),
}

/// The output of a module's forward, as a hook on every module would see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleOutput {
    /// The module's path (`blocks.3.fc`); the model itself has none.
    pub module: NameId,
    /// The tensor's dimensions.
    pub shape: Arc<[u64]>,
    /// The type of its elements, under PyTorch's name (`float16`).
    pub dtype: NameId,
    /// Bytes of its elements.
    pub bytes: Bytes,
    /// How many times a step calls the module with this output.
    pub calls: u64,
}

impl ModuleOutput {
    /// The most rows that are reported for a step.
    pub const MOST: usize = 4096;
}

impl FailedRequest {
    /// The allocator's report on a failed request for `name`.
    #[must_use]
    pub fn new(error: &OutOfMemory, name: NameId) -> Self {
        Self {
            requested: error.requested,
            rounded: error.rounded,
            segment: error.segment,
            pool: pool_of(error.rounded),
            stream: error.stream,
            device_free: error.device_free,
            name,
            attempts: error.attempts.clone(),
        }
    }
}

/// What flips would do to the peak of a step: the same steps, tried on a simulated device with the same memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlipTrials {
    /// Steps finished when it was tried. It holds until a later flip.
    pub step: u64,
    /// Highest allocated with the current switches.
    pub peak: Bytes,
    /// Flips, each with the highest allocated under it.
    pub flips: Vec<(Remedy, Bytes)>,
}

/// A remedy that was tried by running the same steps in the same memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemedyTrial {
    /// The remedy.
    pub remedy: Remedy,
    /// True if the steps went through.
    pub fits: bool,
    /// Highest reserved, if they went through.
    pub peak_reserved: Bytes,
}

impl EventKind {
    /// True for events that take or release a block or a segment.
    #[must_use]
    pub const fn changes_memory(&self) -> bool {
        matches!(
            self,
            Self::Alloc { .. }
                | Self::FreeRequested { .. }
                | Self::FreeCompleted { .. }
                | Self::SegmentAlloc { .. }
                | Self::SegmentFree { .. }
                | Self::SegmentMap { .. }
                | Self::SegmentUnmap { .. }
        )
    }

    /// Translates the allocator's event, with what is known of the block. The only translation of its vocabulary.
    ///
    /// A failed request that is known only from a trace has no segment and no attempts.
    #[must_use]
    pub fn of_trace(event: &TraceEvent, category: Category, name: NameId) -> Self {
        match *event {
            TraceEvent::Alloc { address, requested, size, stream, .. } => {
                Self::Alloc { address, size, requested, stream, category, name }
            }
            TraceEvent::FreeRequested { address, .. } => Self::FreeRequested { address },
            TraceEvent::FreeCompleted { address, .. } => Self::FreeCompleted { address },
            TraceEvent::SegmentAlloc { address, size, stream, pool } => {
                Self::SegmentAlloc { address, size, stream, pool }
            }
            TraceEvent::SegmentFree { address, size, .. } => Self::SegmentFree { address, size },
            TraceEvent::SegmentMap { address, size, stream, pool, range, page } => {
                Self::SegmentMap { address, size, stream, pool, range, page }
            }
            TraceEvent::SegmentUnmap { address, size, .. } => Self::SegmentUnmap { address, size },
            TraceEvent::Oom { device_free, rounded, stream } => Self::Oom(Arc::new(FailedRequest {
                requested: rounded,
                rounded,
                segment: rounded,
                pool: pool_of(rounded),
                stream,
                device_free,
                name,
                attempts: Vec::new(),
            })),
        }
    }
}
