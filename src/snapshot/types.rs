//! What a memory snapshot holds.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use vramlab_allocator::units::Micros;
use vramlab_allocator::units::{Address, Bytes, StreamId};
use vramlab_allocator::{BlockState, PoolId, PoolKind, TorchVersion};

/// A text of the snapshot, stored once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub u32);

/// A stack frame, stored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// A stack: frames from the innermost outwards, stored once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(pub u32);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(0);
}

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The file's path.
    pub filename: TextId,
    /// The line, from 1 on; 0 where it is not known, as in code that torch.compile made.
    pub line: u32,
    /// The function's name.
    pub name: TextId,
}

/// All texts of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, TextId>,
}

impl Texts {
    /// The id of `text`, new or known; true if it is new.
    pub fn intern(&mut self, text: &str) -> (TextId, bool) {
        if let Some(id) = self.ids.get(text) {
            return (*id, false);
        }
        // More texts than ids would take an input of over 8 GiB, which the reader's budget never accepts.
        let id = TextId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let shared: Arc<str> = text.into();
        self.texts.push(Arc::clone(&shared));
        self.ids.insert(shared, id);
        (id, true)
    }

    /// The id of `text`, where some text is the same.
    pub(super) fn find(&self, text: &str) -> Option<TextId> {
        self.ids.get(text).copied()
    }

    /// How many there are.
    #[must_use]
    pub(super) const fn len(&self) -> usize {
        self.texts.len()
    }

    /// The text of an id; empty for an id of another snapshot.
    #[must_use]
    pub fn get(&self, id: TextId) -> &str {
        self.texts.get(id.0 as usize).map_or("", |text| text)
    }

    /// The text of an id, shared.
    #[must_use]
    pub fn shared(&self, id: TextId) -> Arc<str> {
        self.texts.get(id.0 as usize).map_or_else(|| "".into(), Arc::clone)
    }
}

/// All frames and stacks of a snapshot.
#[derive(Clone, Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, FrameId>,
    /// The frames of all stacks, one stack after the other; stack i ends at `ends[i]`.
    flat: Vec<FrameId>,
    ends: Vec<usize>,
    stack_ids: HashMap<u64, StackId>,
}

impl Default for Stacks {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            flat: Vec::new(),
            // The empty stack is always there.
            ends: vec![0],
            stack_ids: HashMap::new(),
        }
    }
}

impl Stacks {
    /// The id of a frame, new or known; true if it is new.
    pub fn intern_frame(&mut self, frame: Frame) -> (FrameId, bool) {
        if let Some(id) = self.frame_ids.get(&frame) {
            return (*id, false);
        }
        let id = FrameId(u32::try_from(self.frames.len()).unwrap_or(u32::MAX));
        self.frames.push(frame);
        self.frame_ids.insert(frame, id);
        (id, true)
    }

    /// The id of a stack, new or known; true if it is new.
    pub fn intern_stack(&mut self, frames: &[FrameId]) -> (StackId, bool) {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        if frames.is_empty() {
            return (StackId::EMPTY, false);
        }
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(frames);
        if let Some(id) = self.stack_ids.get(&hash)
            && self.flat.get(self.range(*id)) == Some(frames)
        {
            return (*id, false);
        }
        let id = StackId(u32::try_from(self.ends.len()).unwrap_or(u32::MAX));
        self.flat.extend_from_slice(frames);
        self.ends.push(self.flat.len());
        self.stack_ids.insert(hash, id);
        (id, true)
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl DoubleEndedIterator<Item = Frame> + '_ {
        self.ids(stack).iter().filter_map(|id| self.frames.get(id.0 as usize).copied())
    }

    /// The ids of the frames of a stack, innermost first.
    pub(super) fn ids(&self, stack: StackId) -> &[FrameId] {
        self.flat.get(self.range(stack)).unwrap_or_default()
    }

    /// How many frames a stack has.
    #[must_use]
    pub fn depth(&self, stack: StackId) -> usize {
        self.range(stack).len()
    }

    /// How many different stacks there are, the empty one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when no allocation has a stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.len() == 1
    }

    /// About how many bytes a copy takes.
    pub(super) const fn weight(&self) -> usize {
        // Beside a frame and a stack, its place in an index.
        let frame = size_of::<Frame>() + 3 * size_of::<Frame>();
        let stack = size_of::<usize>() + 4 * size_of::<u64>();
        self.frames.len() * frame + self.ends.len() * stack + self.flat.len() * size_of::<FrameId>()
    }

    fn range(&self, stack: StackId) -> Range<usize> {
        let index = stack.0 as usize;
        match (index.checked_sub(1).and_then(|before| self.ends.get(before)), self.ends.get(index)) {
            (Some(start), Some(end)) => *start..*end,
            _ => 0..0,
        }
    }
}

/// What a trace entry says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A block was handed out; size: bytes asked.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// The block can be used again.
    FreeCompleted,
    /// The driver gave a segment.
    SegmentAlloc,
    /// A segment went back.
    SegmentFree,
    /// Pages of an expandable segment were mapped.
    SegmentMap,
    /// Pages were given back.
    SegmentUnmap,
    /// A request failed for good; size: rounded.
    Oom,
    /// A snapshot was taken.
    Snapshot,
    /// An action that PyTorch 2.11 does not know.
    Other(TextId),
}

impl Action {
    /// Every known action with the word that traces use.
    pub const KNOWN: [(Self, &'static str); 9] = [
        (Self::Alloc, "alloc"),
        (Self::FreeRequested, "free_requested"),
        (Self::FreeCompleted, "free_completed"),
        (Self::SegmentAlloc, "segment_alloc"),
        (Self::SegmentFree, "segment_free"),
        (Self::SegmentMap, "segment_map"),
        (Self::SegmentUnmap, "segment_unmap"),
        (Self::Oom, "oom"),
        (Self::Snapshot, "snapshot"),
    ];

    /// The word that traces use for it; `other` for unknown ones, whose own word is in [`Snapshot::texts`].
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::KNOWN.iter().find(|(action, _)| *action == self).map_or("other", |(_, word)| word)
    }
}

/// One entry of a device's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// What happened.
    pub action: Action,
    /// Where it happened; for [`Action::Oom`] this is no address but the driver's free bytes
    /// ([`TraceEntry::device_free`]).
    pub address: Address,
    /// How much; which size depends on the action.
    pub size: Bytes,
    /// The block's allocation stream.
    pub stream: StreamId,
    /// Unix time.
    pub time: Micros,
    /// Who asked; empty when no stacks were recorded.
    pub stack: StackId,
    /// What the program attached with `_set_memory_metadata`.
    pub metadata: TextId,
    /// The pool of the block or segment; `None` before 2.12, which did not say.
    pub pool: Option<PoolId>,
}

impl TraceEntry {
    /// What the driver had free when a request failed: the whole GPU's; a limit does not lower it.
    #[must_use]
    pub fn device_free(&self) -> Option<Bytes> {
        (self.action == Action::Oom).then_some(Bytes(self.address.0))
    }
}

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub address: Address,
    /// Size of the block.
    pub size: Bytes,
    /// Bytes asked for at its last use; `None` in older dumps.
    pub requested: Option<Bytes>,
    /// In use or not.
    pub state: BlockState,
    /// Who asked for it last.
    pub stack: StackId,
}

/// A segment, or a contiguous mapped run of an expandable one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The device's index.
    pub device: u32,
    /// First byte.
    pub address: Address,
    /// Size.
    pub total_size: Bytes,
    /// The stream whose blocks it serves.
    pub stream: StreamId,
    /// Its pool.
    pub pool: PoolKind,
    /// Id of the private pool it belongs to; (0, 0) is the default.
    pub pool_id: PoolId,
    /// Part of an expandable segment.
    pub expandable: bool,
    /// Who caused it; mostly empty.
    pub stack: StackId,
    /// Its blocks in address order.
    pub blocks: Vec<Block>,
}

/// The settings that a snapshot names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    /// The last configuration string that was parsed, from any variable; `None` in older dumps.
    pub conf: Option<Arc<str>>,
    /// Every other setting in the order of the file, as text.
    pub others: Vec<(Arc<str>, Arc<str>)>,
}

/// A `record_function` scope that began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: TextId,
    /// It began (true) or ended.
    pub start: bool,
    /// The device's index.
    pub device: u32,
    /// Unix time.
    pub time: Micros,
}

/// A memory snapshot: what `torch.cuda.memory._snapshot()` returns.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// All devices' segments, by device and address.
    pub segments: Vec<Segment>,
    /// All devices' trace entries; [`Snapshot::device_trace`] gives one device's.
    pub entries: Vec<TraceEntry>,
    /// Where in `entries` the trace of each device lies.
    pub device_traces: Vec<Range<usize>>,
    /// The settings.
    pub allocator_settings: AllocatorSettings,
    /// The PyTorch that wrote it, as far as its keys tell: 2.11 has those of the versions before, 2.15 those of 2.14.
    pub torch: TorchVersion,
    /// User scopes, in order.
    pub annotations: Vec<Annotation>,
    /// All texts.
    pub texts: Texts,
    /// All frames and stacks.
    pub stacks: Stacks,
}

impl Snapshot {
    /// How many devices the snapshot has traces for (empty ones included).
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.device_traces.len()
    }

    /// The trace of a device, oldest entry first; empty for an unknown one.
    #[must_use]
    pub fn device_trace(&self, device: usize) -> &[TraceEntry] {
        self.device_traces.get(device).and_then(|range| self.entries.get(range.clone())).unwrap_or_default()
    }

    /// Forgets the oldest entries of a device's trace, as many as that, like the ring buffer that PyTorch records into.
    pub fn forget(&mut self, device: usize, entries: usize) {
        if let Some(range) = self.device_traces.get_mut(device) {
            range.start = range.start.saturating_add(entries).min(range.end);
        }
    }

    /// The segments of a device, by address.
    pub fn device_segments(&self, device: usize) -> impl Iterator<Item = &Segment> + '_ {
        self.segments.iter().filter(move |segment| segment.device as usize == device)
    }
}
