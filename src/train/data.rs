//! The data path: a loader thread makes batches ahead, and the trainer copies them to the device.
//!
//! Not pinned: a batch lies in pageable memory; the copy goes through a staging buffer and the step waits for it.
//! Pinned: the loader fills page-locked blocks of the caching host allocator; a batch is copied on the copy stream, into
//! blocks allocated for that stream, while the previous step computes.
//!
//! [`super::DataPath::Host`] is the simpler path: batches that lie in host memory and are copied on the compute stream.
//!
//! For a device without bytes no batches are made: both allocators get the same requests, and the same time passes.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{DType, DeviceError, DeviceEvent, HostBuffer, HostVec, PinnedMemory};
use vramlab_model::{Category, CopyDirection, EventKind, Micros};

use super::error::{Interrupt, OpResult, TrainError};
use super::member::Member;
use super::memory::{HostBlock, Memory, micros};
use super::shape::Shape;
use super::tensor::Tensor;
use super::workload::{Batch, BatchLayout, BatchSource, Layouts};

/// Batches that the loader makes ahead, besides the batch that is being copied.
const PREFETCH: usize = 2;

/// A batch that stays in host memory, with the shapes and types that it has on the device.
pub(crate) struct HostBatch {
    input: (HostBlock, Shape, DType),
    target: (HostBlock, Shape, DType),
    mask: Option<(HostBlock, Shape, DType)>,
}

impl HostBatch {
    /// Copies a batch from the device.
    pub fn take(memory: &Memory, batch: &Batch, pinned: bool) -> OpResult<Self> {
        let take = |tensor: &Tensor| {
            let mut block = HostBlock::new(memory, tensor.bytes(), pinned)?;
            block.take(tensor, StreamId::DEFAULT)?;
            Ok::<_, Interrupt>((block, tensor.shape(), tensor.dtype()))
        };
        let mask = batch.mask.as_ref().map(take).transpose()?;
        Ok(Self { input: take(&batch.input)?, target: take(&batch.target)?, mask })
    }

    /// Copies the batch to the device. The stream waits for the copies; the program waits only if they are not page-locked.
    pub fn give(&self, memory: &Memory) -> OpResult<Batch> {
        let give = |(block, shape, dtype): &(HostBlock, Shape, DType), name| {
            let tensor = memory.tensor(*shape, *dtype, Category::Input, name)?;
            block.give(&tensor, StreamId::DEFAULT)?;
            Ok::<_, Interrupt>(tensor)
        };
        let input = give(&self.input, "batch input")?;
        let mask = self.mask.as_ref().map(|mask| give(mask, "batch mask")).transpose()?;
        Ok(Batch { input, target: give(&self.target, "batch target")?, mask, lengths: None })
    }
}

/// Host memory for one batch: input, then target, then mask. Empty if the device has no bytes.
enum BatchMemory {
    Pageable(HostVec<u8>),
    Pinned(HostBuffer),
}

struct SampleOrder {
    place: BatchMemory,
    layout: BatchLayout,
}

struct BatchReply {
    place: BatchMemory,
    layout: BatchLayout,
    result: Result<(), String>,
}

/// What fills batches.
enum Loader {
    Thread {
        orders: SyncSender<SampleOrder>,
        filled: Receiver<BatchReply>,
    },
    /// No loader: a batch is ready as soon as there is room for it.
    Nobody(VecDeque<SampleOrder>),
}

impl Loader {
    fn thread(source: Box<dyn BatchSource>, pinned: PinnedMemory, turns: Turns) -> Result<Self, TrainError> {
        let (orders, inbox) = sync_channel(PREFETCH + 1);
        let (outbox, filled) = sync_channel(PREFETCH + 1);
        thread::Builder::new()
            .name("loader".to_owned())
            .spawn(move || load(source, (&pinned, turns), &inbox, &outbox))
            .map_err(|error| TrainError::Data(format!("the system gives no thread for the loader ({error})")))?;
        Ok(Self::Thread { orders, filled })
    }

    fn order(&mut self, order: SampleOrder) -> Result<(), TrainError> {
        match self {
            Self::Thread { orders, .. } => orders.send(order).map_err(|_| loader_gone()),
            Self::Nobody(orders) => {
                orders.push_back(order);
                Ok(())
            }
        }
    }

    fn receive(&mut self) -> Result<BatchReply, TrainError> {
        match self {
            Self::Thread { filled, .. } => filled.recv().map_err(|_| loader_gone()),
            Self::Nobody(orders) => {
                let SampleOrder { place, layout } = orders.pop_front().ok_or_else(loader_gone)?;
                Ok(BatchReply { place, layout, result: Ok(()) })
            }
        }
    }
}

/// How ranks that share the batches take turns with them.
#[derive(Clone, Copy)]
pub(crate) struct Turns {
    ranks: u64,
    rank: u64,
}

impl Turns {
    /// The turns of a rank; a device alone takes every batch, and so do ranks that share none.
    pub fn of_member(member: Option<Member>) -> Self {
        match member.filter(|member| member.parallelism.splits_batch()) {
            Some(Member { world, .. }) => Self { ranks: world.size() as u64, rank: world.rank() as u64 },
            None => Self { ranks: 1, rank: 0 },
        }
    }

    /// The number, among all batches, of the rank's own batch number `own`.
    pub const fn of(self, own: u64) -> u64 {
        own.saturating_mul(self.ranks).saturating_add(self.rank)
    }

    /// Whether there are other ranks to take turns with.
    pub const fn are_shared(self) -> bool {
        self.ranks > 1
    }
}

/// Properties of a feed's batches besides their layouts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeedKind {
    /// They come from page-locked memory, one ahead.
    pub pinned: bool,
    /// Each has a mask of padding.
    pub masked: bool,
}

/// The loader, and the batches between it and the device.
pub(crate) struct Feed {
    loader: Loader,
    /// Orders that are not answered yet.
    ordered: usize,
    /// The layouts of the batches by number, and the number of the next batch to order.
    layouts: Layouts,
    next: u64,
    kind: FeedKind,
    turns: Turns,
    /// Pageable buffers for reuse, each with the byte count of its batch.
    spare: Vec<(usize, HostVec<u8>)>,
    /// The batch whose copy is under way.
    ahead: VecDeque<Ahead>,
    copied: Micros,
    memory: Memory,
}

struct Ahead {
    batch: Batch,
    bytes: Bytes,
    event: DeviceEvent,
}

impl Feed {
    /// Starts the loader thread.
    pub fn start(
        memory: &Memory,
        source: Box<dyn BatchSource>,
        layouts: Layouts,
        (kind, turns): (FeedKind, Turns),
    ) -> Result<Self, TrainError> {
        let lockable = memory.with_device(|device| device.pinned_memory());
        let loader = if memory.holds_bytes() {
            Loader::thread(source, lockable, turns)?
        } else {
            Loader::Nobody(VecDeque::new())
        };
        let mut feed = Self {
            loader,
            ordered: 0,
            layouts,
            next: 0,
            kind,
            turns,
            spare: Vec::new(),
            ahead: VecDeque::new(),
            copied: Micros(0),
            memory: memory.clone(),
        };
        feed.order(memory)?;
        Ok(feed)
    }

    /// Changes the size of batches, their parts or the kind of host memory; batches made for the old settings are dropped.
    pub fn configure(&mut self, memory: &Memory, layouts: Layouts, kind: FeedKind) -> Result<(), TrainError> {
        if layouts == self.layouts && kind == self.kind {
            return Ok(());
        }
        self.next -= self.ordered as u64 + self.ahead.len() as u64;
        while self.ordered > 0 {
            let (place, layout) = self.receive()?;
            self.recycle(place, &layout);
        }
        self.ahead.clear();
        self.spare.clear();
        if !kind.pinned {
            memory.release_pinned();
        }
        (self.layouts, self.kind) = (layouts, kind);
        self.order(memory)
    }

    /// The next batch, on the device.
    pub fn next(&mut self, memory: &Memory) -> OpResult<Batch> {
        if self.kind.pinned { self.next_pinned(memory) } else { self.next_pageable(memory) }
    }

    /// Time that copies took since the last call, overlapped with computation or not.
    pub fn take_copy_time(&mut self) -> Micros {
        std::mem::take(&mut self.copied)
    }

    fn next_pageable(&mut self, memory: &Memory) -> OpResult<Batch> {
        let (place, layout) = self.filled(memory)?;
        let given = Self::give_pageable(memory, &place, &layout);
        self.recycle(place, &layout);
        if given.is_ok() {
            self.order(memory)?;
        }
        given
    }

    /// Copies the batch that waits in pageable memory to the device.
    fn give_pageable(memory: &Memory, place: &BatchMemory, layout: &BatchLayout) -> OpResult<Batch> {
        let BatchMemory::Pageable(bytes) = place else { return Err(other_kind().into()) };
        let batch = tensors(memory, layout, StreamId::DEFAULT)?;
        if memory.holds_bytes() {
            let (input, rest) = bytes.split_at(layout.input_bytes());
            let (target, mask) = rest.split_at(layout.target_bytes());
            memory.copy_pageable(&batch.input, input)?;
            if let Some(tensor) = &batch.mask {
                memory.copy_pageable(tensor, mask)?;
            }
            memory.copy_pageable(&batch.target, target)?;
        } else {
            batch.tensors().try_for_each(|tensor| memory.spend_copy_pageable(tensor))?;
        }
        Ok(batch)
    }

    fn next_pinned(&mut self, memory: &Memory) -> OpResult<Batch> {
        if self.ahead.is_empty() {
            self.copy_ahead(memory)?;
        }
        let Some(Ahead { batch, bytes, event }) = self.ahead.pop_front() else {
            return Err(TrainError::Data("no copy is under way".to_owned()).into());
        };
        let duration = memory.with_device(|device| {
            device.wait_event(StreamId::DEFAULT, event)?;
            Ok::<_, DeviceError>(micros(device.take_copy_time()))
        })?;
        self.copied.0 += duration.0;
        memory.emit(EventKind::Copy { direction: CopyDirection::ToDevice, bytes, pinned: true, duration });
        // The blocks belong to the copy stream; when freed, they wait for the computation that reads them.
        batch.tensors().try_for_each(|tensor| memory.record_stream(tensor, StreamId::DEFAULT))?;
        self.copy_ahead(memory)?;
        Ok(batch)
    }

    /// Starts the copy of the batch after this one.
    fn copy_ahead(&mut self, memory: &Memory) -> OpResult<()> {
        let (BatchMemory::Pinned(buffer), layout) = self.filled(memory)? else { return Err(other_kind().into()) };
        let stream = memory.with_device(|device| device.copy_stream());
        let batch = match tensors(memory, &layout, stream) {
            Ok(batch) => batch,
            Err(error) => {
                self.recycle(BatchMemory::Pinned(buffer), &layout);
                self.order(memory)?;
                return Err(error);
            }
        };
        let part = |at: usize, bytes: usize| HostBuffer {
            address: buffer.address.offset(Bytes(at as u64)),
            bytes: Bytes(bytes as u64),
        };
        let (of_input, of_target) = (layout.input_bytes(), layout.target_bytes());
        memory.copy_pinned(&batch.input, part(0, of_input))?;
        if let Some(tensor) = &batch.mask {
            memory.copy_pinned(tensor, part(of_input + of_target, layout.mask_bytes()))?;
        }
        memory.copy_pinned(&batch.target, part(of_input, of_target))?;
        let event = memory.with_device(|device| device.record_event(stream))?;
        memory.record_host_stream(buffer, stream)?;
        self.recycle(BatchMemory::Pinned(buffer), &layout);
        self.ahead.push_back(Ahead { batch, bytes: buffer.bytes, event });
        self.order(memory)?;
        Ok(())
    }

    /// Keeps the loader busy, with fewer batches if host memory is too small for all.
    fn order(&mut self, memory: &Memory) -> Result<(), TrainError> {
        while self.ordered < PREFETCH {
            let layout = BatchLayout { masked: self.kind.masked, ..self.layouts.of(self.turns.of(self.next)) };
            let place = match self.place(memory, &layout) {
                Err(TrainError::OutOfMemory { .. }) if self.ordered > 0 => break,
                place => place?,
            };
            self.loader.order(SampleOrder { place, layout })?;
            self.ordered += 1;
            self.next += 1;
        }
        memory.tell_host();
        Ok(())
    }

    /// Memory for a batch.
    fn place(&mut self, memory: &Memory, layout: &BatchLayout) -> Result<BatchMemory, TrainError> {
        let size = layout.bytes();
        if self.kind.pinned {
            return memory.pin(Bytes(size as u64)).map(BatchMemory::Pinned);
        }
        let fits = self.spare.iter().position(|(bytes, _)| *bytes == size);
        let buffer = fits.map(|at| self.spare.swap_remove(at).1);
        Ok(BatchMemory::Pageable(buffer.map_or_else(|| memory.host_vec(size, "a batch in host memory"), Ok)?))
    }

    /// The next filled batch; orders it first if a failed step did not.
    fn filled(&mut self, memory: &Memory) -> Result<(BatchMemory, BatchLayout), TrainError> {
        if self.ordered == 0 {
            self.order(memory)?;
        }
        self.receive()
    }

    fn receive(&mut self) -> Result<(BatchMemory, BatchLayout), TrainError> {
        let BatchReply { place, layout, result } = self.loader.receive()?;
        self.ordered -= 1;
        match result {
            Ok(()) => Ok((place, layout)),
            Err(reason) => {
                self.recycle(place, &layout);
                Err(TrainError::Data(reason))
            }
        }
    }

    fn recycle(&mut self, place: BatchMemory, layout: &BatchLayout) {
        match place {
            BatchMemory::Pageable(buffer) => {
                // Batches of other sizes need other buffers: the oldest is freed.
                if self.spare.len() == PREFETCH {
                    self.spare.remove(0);
                }
                self.spare.push((layout.bytes(), buffer));
            }
            BatchMemory::Pinned(buffer) => self.memory.unpin(buffer),
        }
    }
}

impl Drop for Feed {
    /// The allocator takes back the page-locked blocks that the loader still fills: it outlives the loader.
    fn drop(&mut self) {
        while self.ordered > 0 {
            let Ok((place, layout)) = self.receive() else { return };
            self.recycle(place, &layout);
        }
        self.memory.release_pinned();
    }
}

/// Allocates the tensors of a batch for a stream.
fn tensors(memory: &Memory, layout: &BatchLayout, stream: StreamId) -> OpResult<Batch> {
    let tensor = |(shape, dtype): (Shape, DType), name: &str| {
        memory.named_tensor(shape, dtype, Category::Input, memory.name(name), stream)
    };
    let input = tensor(layout.input, "batch input")?;
    let mask = layout.mask().map(|mask| tensor(mask, "batch mask")).transpose()?;
    Ok(Batch { input, target: tensor(layout.target, "batch target")?, mask, lengths: layout.lengths.clone() })
}

fn other_kind() -> TrainError {
    TrainError::Data("the loader filled memory of another kind".to_owned())
}

fn loader_gone() -> TrainError {
    TrainError::Data("the loader thread has ended".to_owned())
}

/// The loader thread: fills what it is given until the trainer is gone.
fn load(
    mut source: Box<dyn BatchSource>,
    (pinned, turns): (&PinnedMemory, Turns),
    orders: &Receiver<SampleOrder>,
    filled: &SyncSender<BatchReply>,
) {
    while let Ok(SampleOrder { mut place, layout }) = orders.recv() {
        let mut fill = |bytes: &mut [u8]| {
            let (input, rest) = bytes.split_at_mut(layout.input_bytes());
            let (target, mask) = rest.split_at_mut(layout.target_bytes());
            layout.fill_mask(mask);
            source.skip(turns.rank, &layout);
            let filled = source.fill(&layout, input, target);
            source.skip(turns.ranks - 1 - turns.rank, &layout);
            filled
        };
        let result = match &mut place {
            BatchMemory::Pageable(buffer) => fill(buffer),
            BatchMemory::Pinned(buffer) => {
                pinned.with_bytes(*buffer, fill).unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        if filled.send(BatchReply { place, layout, result }).is_err() {
            return;
        }
    }
}
