//! The vocabulary of the event stream: everything that happens to memory or to training.
//!
//! Sources (a live engine, a recording, a PyTorch snapshot) write it; [`super::MemoryModel`] and
//! [`super::Lab`] reduce it; sinks (screens, tables, exporters) never see anything else.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Reading;
use crate::units::{Address, Bytes, StreamId};

/// Microseconds since the source began (live run) or Unix microseconds (PyTorch snapshots).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

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
    /// A batch: tokens, images, labels.
    Input,
    /// Anything else, and everything in a snapshot without stacks.
    #[default]
    Other,
}

impl Category {
    /// All categories, in the order in which legends list them.
    pub const ALL: [Self; 8] = [
        Self::Parameter,
        Self::Gradient,
        Self::OptimizerState,
        Self::Activation,
        Self::Temporary,
        Self::Workspace,
        Self::Input,
        Self::Other,
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
            Self::Input => "inputs",
            Self::Other => "other",
        }
    }
}

/// The allocator pool that a block belongs to: rounded sizes up to 1 MiB are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    /// Segments of 2 MiB, blocks of up to 1 MiB.
    Small,
    /// Segments of 20 MiB and more.
    Large,
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
    /// What.
    pub kind: EventKind,
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
        pool: Pool,
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
        pool: Pool,
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
    Oom {
        /// Bytes asked for.
        requested: Bytes,
        /// What the driver (or the limit) had left.
        device_free: Bytes,
        /// What the request was for.
        name: NameId,
    },
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
    /// A person (or the command line) changed a switch.
    SwitchFlipped {
        /// The key that flips it.
        key: char,
        /// The switch's name (`AMP`).
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
    /// Somebody asked for what can't be had; it stays as it was.
    Refused {
        /// Why, and what to do.
        text: Arc<str>,
    },
    /// Something worth a line in the log.
    Note {
        /// The line.
        text: Arc<str>,
    },
}
