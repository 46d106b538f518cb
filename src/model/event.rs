//! The vocabulary of the event stream: everything that happens to memory or to training.
//!
//! Sources (a live engine, a recording, a PyTorch snapshot) write it; [`super::MemoryModel`] and
//! [`super::Lab`] reduce it; sinks (screens, tables, exporters) never see anything else.

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
    /// The name of what has none; never defined.
    pub const NONE: Self = Self(0);
}

/// What an allocation is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// A weight or bias that is trained.
    Parameter,
    /// A parameter's `.grad`.
    Gradient,
    /// Moments and momentum buffers.
    OptimizerState,
    /// Saved for backward, or alive because a frame of the forward pass still holds it.
    Activation,
    /// Lives within one op or between two ops of backward.
    Temporary,
    /// Scratch memory of a library (cuBLAS, cuDNN) or of a reduction.
    Workspace,
    /// What ranks exchange while it is on its way: buckets, gathered shards, received activations.
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

    /// All categories in the order in which areas of them are stacked: what stays lies at the bottom, what comes and goes with every
    /// op on top, so that nothing below it jumps. Themes make those that lie upon each other most dark and light in turn.
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

    /// The word for it on screens, in the plural.
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
    /// Waiting for a batch and bringing it to the device.
    Data,
    /// The model and the loss.
    Forward,
    /// Gradients.
    Backward,
    /// Unscaling, the optimizer's step, the scaler's update.
    Optimizer,
    /// Dropping or zeroing gradients.
    ZeroGrad,
}

impl Phase {
    /// All phases in the order of a step.
    pub const ALL: [Self; 5] = [Self::Data, Self::Forward, Self::Backward, Self::Optimizer, Self::ZeroGrad];

    /// The word for it on screens.
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

/// What one finished step took and gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Steps finished before this one.
    pub step: u64,
    /// Mean loss over the step's micro-batches; `None` where nothing was computed.
    pub loss: Option<f32>,
    /// Wall time of the whole step (or simulated time), in microseconds.
    pub total: Micros,
    /// Time of each phase in the order of [`Phase::ALL`], in microseconds.
    pub phases: [Micros; 5],
    /// Time that copies to the device took, overlapped or not, in microseconds.
    pub copy: Micros,
    /// Time that exchanges with other ranks took, waiting for them included, overlapped or not, in microseconds.
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
    /// The device that it is about: its rank, where there are several.
    pub device: DeviceIndex,
    /// What.
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
    /// What they were rounded to: the size of the block that was searched for.
    pub rounded: Bytes,
    /// The segment that was asked of the driver.
    pub segment: Bytes,
    /// The pool it was for.
    pub pool: PoolKind,
    /// The stream it was for.
    pub stream: StreamId,
    /// What the driver reports as free; a limit does not lower it.
    pub device_free: Bytes,
    /// What the request was for.
    pub name: NameId,
    /// What the allocator did about it, in order; empty where that was not recorded.
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
    /// A block was handed out.
    Alloc {
        /// First byte.
        address: Address,
        /// Size of the block (rounded, and more where the rest was not split off).
        size: Bytes,
        /// Bytes asked for.
        requested: Bytes,
        /// The stream it was allocated for.
        stream: StreamId,
        /// What it is for.
        category: Category,
        /// What it is called.
        name: NameId,
    },
    /// A live block turned out to be something else: a temporary becomes a parameter's gradient.
    Relabel {
        /// First byte of the block.
        address: Address,
        /// What it is for now.
        category: Category,
        /// What it is called now.
        name: NameId,
    },
    /// The program gave a block back. Its bytes are pending until `FreeCompleted`.
    FreeRequested {
        /// First byte of the block.
        address: Address,
    },
    /// The block can be used again.
    FreeCompleted {
        /// First byte of the block.
        address: Address,
    },
    /// A request failed for good.
    Oom(Arc<FailedRequest>),
    /// What would have made the last request that failed fit, each tried before it is told.
    Remedied(Arc<[RemedyTrial]>),
    /// What flips would do to the peak, each tried on a simulated device.
    Weighed(Arc<FlipTrials>),
    /// `empty_cache()` was called; the segments it returns follow as events of their own.
    EmptyCache,
    /// The most that may be reserved changed; `None`: no limit.
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
    /// A run begins: nothing that is known of memory and steps belongs to it.
    Begin(Arc<About>),
    /// A new description of what is trained: a switch changed it.
    About(Arc<About>),
    /// What the lab is doing from here on.
    Run(RunState),
    /// How all switches stand, and how they are wanted.
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
    /// Host memory that the program holds for batches and tensors, after it changed: page-locked blocks of the caching
    /// host allocator, and offloaded tensors in pageable memory.
    HostMemory {
        /// Bytes in blocks that are handed out.
        allocated: Bytes,
        /// Bytes of all blocks.
        reserved: Bytes,
    },
    /// The model begins to write a piece of text: forward passes that belong to no step, until `Generated`.
    Generating,
    /// The model wrote a piece of text.
    Generated {
        /// The text.
        text: Arc<str>,
    },
    /// What the driver said of the GPU.
    Reading(Arc<Reading>),
    /// Something that a person should read now: what was refused and why, what takes effect only later.
    Notice {
        /// One sentence what, one what to do.
        text: Arc<str>,
    },
    /// Something worth a line in the log.
    Note {
        /// The line.
        text: Arc<str>,
    },
    /// What the modules put out in the forward passes of the step under way, in the order in which they returned; told only
    /// where it is something else than was told last.
    Modules(Arc<[ModuleOutput]>),
    /// Blocks of this name were asked for from this stack; told once, before the name's first use.
    Stack {
        /// The name; several may have the same text.
        name: NameId,
        /// The texts of its frames, the innermost first; see [`super::frames`].
        frames: Arc<[NameId]>,
    },
    /// A learner went on in a lesson.
    Lesson(Arc<LessonNote>),
    /// The segment, or the pages, that the driver gave last belong to a private pool: a captured graph's or a
    /// `torch.cuda.MemPool`'s.
    PrivatePool {
        /// First byte of the segment or of the pages.
        address: Address,
        /// Whose they are.
        pool: PoolId,
    },
    /// `torch.cuda.reset_peak_memory_stats()` was called: `max_memory_allocated()` and `max_memory_reserved()` start over.
    ResetPeaks,
    /// The device stands for these ranks of the run.
    AlikeRanks(Arc<AlikeRanks>),
    /// The ranks whose own GPUs the process of this device has a CUDA context on, besides its own.
    ForeignContexts(Arc<[u16]>),
    /// What the device of the run that has just begun has, and how much of it was free before; told where that is known.
    DeviceMemory(DeviceMemory),
    /// Whether the rank of this device can be reached, told where that changes, and while it is silent every second.
    Presence(Presence),
}

/// What a module's forward puts out, as a hook on every module would tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleOutput {
    /// The module's path (`blocks.3.fc`); the model itself has none.
    pub module: NameId,
    /// Dimensions of the tensor.
    pub shape: Arc<[u64]>,
    /// Type of its elements, as PyTorch calls it (`float16`).
    pub dtype: NameId,
    /// Bytes of its elements.
    pub bytes: Bytes,
    /// How often a step calls it with this result.
    pub calls: u64,
}

impl ModuleOutput {
    /// A step's rows that are told at most.
    pub const MOST: usize = 4096;
}

impl FailedRequest {
    /// What the allocator says of a request for `name`.
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

/// What flips would do to the peak of a step: the same steps on a simulated device with the same memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlipTrials {
    /// Steps finished when it was asked: it holds until a flip that came later.
    pub step: u64,
    /// Highest allocated as the switches stand.
    pub peak: Bytes,
    /// Flips, each with the highest allocated under it.
    pub flips: Vec<(Remedy, Bytes)>,
}

/// A remedy that was tried: the same steps on the same memory, with it in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemedyTrial {
    /// What was changed.
    pub remedy: Remedy,
    /// Whether the steps went through.
    pub fits: bool,
    /// Highest reserved of what went through.
    pub peak_reserved: Bytes,
}

impl EventKind {
    /// It takes or gives back a block or a segment.
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

    /// What the allocator recorded, with what is known of the block: the one translation of its vocabulary.
    ///
    /// A failed request that is known by its trace alone has no segment and no attempts.
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
