//! The one place where training meets memory: allocator, device and observer behind one handle.
//!
//! Every request carries a category and a name; what the allocator does in answer becomes events. A [`Block`] frees
//! itself when its last handle goes.

mod host;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::allocator::{
    AllocError, CachingAllocator, CachingHostAllocator, HostMemorySource, PoolKind, SegmentSource, Settings,
    SettingsError, Statistics, TraceEvent, TraceSink,
};
use crate::device::{CopyPath, DType, Device, DeviceError, DeviceInfo, HostAccount, HostBuffer, Kernel, Mark, Span};
use crate::model::{Category, CopyDirection, Event, EventKind, Micros, NameId, Phase, Pool};
use crate::units::{Address, Bytes, StreamId};

use super::error::{Interrupt, MemoryKind, OpResult, TrainError};
use super::observer::{Observer, Request, SafePoint};
use super::tensor::{Shape, Tensor};

pub(crate) use host::HostBlock;
use watch::Watch;

/// Bytes that are made on the host at once.
const PIECE: usize = 1024 * 1024;

/// Where the allocator writes its history until it is turned into events.
#[derive(Clone, Default)]
struct Journal(Rc<RefCell<Vec<TraceEvent>>>);

impl TraceSink for Journal {
    fn trace(&mut self, event: &TraceEvent) {
        self.0.borrow_mut().push(*event);
    }
}

/// Texts of events, each defined once.
#[derive(Default)]
struct Names {
    texts: HashMap<Arc<str>, NameId>,
    known: Vec<Arc<str>>,
    within: HashMap<(NameId, &'static str), NameId>,
}

/// A block of device memory, and the type of what it holds.
pub struct Block {
    memory: Memory,
    address: Cell<Address>,
    dtype: Cell<DType>,
    /// How many blocks were handed out before it.
    number: u64,
    stream: StreamId,
}

impl Block {
    pub(crate) const fn address(&self) -> Address {
        self.address.get()
    }

    pub(crate) const fn dtype(&self) -> DType {
        self.dtype.get()
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Trades memory and type with another block: whoever holds this one sees what that one held.
    pub(crate) fn swap(&self, other: &Self) {
        self.address.swap(&other.address);
        self.dtype.swap(&other.dtype);
    }

    pub(crate) const fn stream(&self) -> StreamId {
        self.stream
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.free(self.address.get());
    }
}

/// A moment of the compute stream, and how long training had been held until then.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    mark: Mark,
    held: Micros,
}

struct Shared {
    allocator: RefCell<CachingAllocator<Box<dyn SegmentSource>, Journal>>,
    journal: Journal,
    device: RefCell<Box<dyn Device>>,
    observer: RefCell<Box<dyn Observer>>,
    names: RefCell<Names>,
    scope: Cell<NameId>,
    /// Blocks that were handed out so far.
    blocks: Cell<u64>,
    /// Page-locked host memory.
    host: RefCell<CachingHostAllocator<Box<dyn HostMemorySource>>>,
    /// Bytes of tensors in pageable host memory.
    pageable: Cell<Bytes>,
    /// All host memory, of either kind.
    account: HostAccount,
    /// What the observer was last told of host memory.
    told_host: Cell<(Bytes, Bytes)>,
    /// Time that safe points spent waiting for a person.
    held: Cell<Micros>,
    /// Looks whether what is launched keeps to live blocks, where it is asked to.
    watch: Option<Watch>,
}

/// A handle on allocator, device and observer; clones share them. It lives on one thread.
#[derive(Clone)]
pub struct Memory(Rc<Shared>);

impl Memory {
    /// Takes over a device: its memory is cut into blocks by PyTorch's caching allocator.
    #[must_use]
    pub fn new(device: Box<dyn Device>, settings: Settings, observer: Box<dyn Observer>) -> Self {
        Self::with_watch(device, settings, observer, cfg!(debug_assertions))
    }

    /// The same; where it is `watched`, kernels and copies are refused that reach beyond live blocks, as they always are
    /// in debug builds.
    pub(super) fn with_watch(
        mut device: Box<dyn Device>,
        settings: Settings,
        observer: Box<dyn Observer>,
        watched: bool,
    ) -> Self {
        let journal = Journal::default();
        let allocator = CachingAllocator::new(device.segments(), settings, journal.clone());
        let host = CachingHostAllocator::new(device.pinned_source());
        let account = device.pinned_memory().account().clone();
        Self(Rc::new(Shared {
            allocator: RefCell::new(allocator),
            journal,
            device: RefCell::new(device),
            observer: RefCell::new(observer),
            names: RefCell::default(),
            scope: Cell::new(NameId::NONE),
            blocks: Cell::default(),
            host: RefCell::new(host),
            pageable: Cell::default(),
            account,
            told_host: Cell::default(),
            held: Cell::default(),
            watch: watched.then(Watch::default),
        }))
    }

    /// Gives all memory back and the device away; `None` where somebody else has a handle.
    pub(super) fn into_device(self) -> Option<Box<dyn Device>> {
        Rc::into_inner(self.0).map(|shared| shared.device.into_inner())
    }

    /// What the device is.
    #[must_use]
    pub fn device_info(&self) -> DeviceInfo {
        self.0.device.borrow().info().clone()
    }

    /// False on a simulated device: its tensors have addresses and nothing behind them.
    #[must_use]
    pub fn holds_bytes(&self) -> bool {
        !self.0.device.borrow().info().simulated
    }

    /// Time since the device was opened, without the time that a person held training at safe points.
    #[must_use]
    pub fn now(&self) -> Micros {
        let now = micros(self.0.device.borrow().now());
        Micros(now.0.saturating_sub(self.0.held.get().0))
    }

    /// Marks the present end of the compute stream's work: [`Memory::between`] tells later when the device got there.
    #[must_use]
    pub fn mark(&self) -> Moment {
        Moment { mark: self.0.device.borrow_mut().mark(), held: self.0.held.get() }
    }

    /// Time of the device between two moments, without the time that a person held training; waits until it has reached
    /// both.
    #[must_use]
    pub fn between(&self, from: Moment, to: Moment) -> Micros {
        let elapsed = micros(self.0.device.borrow_mut().between(from.mark, to.mark));
        Micros(elapsed.0.saturating_sub(to.held.0.saturating_sub(from.held.0)))
    }

    /// Tells the observer.
    pub fn emit(&self, kind: EventKind) {
        let time = self.now();
        self.0.observer.borrow_mut().event(Event { time, kind });
    }

    /// The identifier of `text`, defined to the observer at its first use.
    #[must_use]
    pub fn name(&self, text: &str) -> NameId {
        if let Some(&id) = self.0.names.borrow().texts.get(text) {
            return id;
        }
        let text: Arc<str> = text.into();
        let id = {
            let mut names = self.0.names.borrow_mut();
            let id = NameId(u32::try_from(names.known.len() + 1).unwrap_or(u32::MAX));
            names.known.push(Arc::clone(&text));
            names.texts.insert(Arc::clone(&text), id);
            id
        };
        self.emit(EventKind::Define { id, text });
        id
    }

    /// The text of `name`.
    #[must_use]
    pub fn text(&self, name: NameId) -> Arc<str> {
        let index = (name.0 as usize).checked_sub(1);
        index.and_then(|i| self.0.names.borrow().known.get(i).cloned()).unwrap_or_else(|| "a block".into())
    }

    /// The module whose ops run now; names of blocks begin with it.
    #[must_use]
    pub fn scope(&self) -> NameId {
        self.0.scope.get()
    }

    /// Enters a module; returns the one before.
    pub fn set_scope(&self, scope: NameId) -> NameId {
        self.0.scope.replace(scope)
    }

    /// The name of `what` within the present module: `blocks.0.fc output`.
    #[must_use]
    pub fn name_here(&self, what: &'static str) -> NameId {
        let scope = self.scope();
        if let Some(&id) = self.0.names.borrow().within.get(&(scope, what)) {
            return id;
        }
        let id =
            if scope == NameId::NONE { self.name(what) } else { self.name(&format!("{} {what}", self.text(scope))) };
        self.0.names.borrow_mut().within.insert((scope, what), id);
        id
    }

    /// A tensor that holds whatever its memory held, named `what` within the present module.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`].
    pub fn tensor(&self, shape: Shape, dtype: DType, category: Category, what: &'static str) -> OpResult<Tensor> {
        self.named_tensor(shape, dtype, category, self.name_here(what), StreamId::DEFAULT)
    }

    /// The same with a name of its own, for `stream`.
    ///
    /// # Errors
    /// [`TrainError::OutOfMemory`].
    pub fn named_tensor(
        &self,
        shape: Shape,
        dtype: DType,
        category: Category,
        name: NameId,
        stream: StreamId,
    ) -> OpResult<Tensor> {
        let block = self.block(shape.numel(), dtype, category, name, stream)?;
        Ok(Tensor::new(Rc::new(block), shape))
    }

    fn block(
        &self,
        elements: usize,
        dtype: DType,
        category: Category,
        name: NameId,
        stream: StreamId,
    ) -> Result<Block, TrainError> {
        let bytes = dtype.bytes(elements);
        let result = self.0.allocator.borrow_mut().malloc(bytes, stream);
        self.forward_trace(category, name);
        match result {
            Ok(allocation) => {
                let number = self.0.blocks.get();
                self.0.blocks.set(number + 1);
                if let Some(watch) = &self.0.watch {
                    watch.taken(allocation.address, bytes);
                }
                let (address, dtype) = (Cell::new(allocation.address), Cell::new(dtype));
                Ok(Block { memory: self.clone(), address, dtype, number, stream })
            }
            Err(AllocError::OutOfMemory(_) | AllocError::TooLarge { .. }) => {
                let left = self.0.allocator.borrow().left();
                Err(TrainError::OutOfMemory { kind: MemoryKind::Device, requested: bytes, left, what: self.text(name) })
            }
            Err(other) => Err(TrainError::Allocator(other.to_string())),
        }
    }

    fn free(&self, address: Address) {
        let result = self.0.allocator.borrow_mut().free(address);
        debug_assert!(result.is_ok(), "a block is freed once");
        if let Some(watch) = &self.0.watch {
            watch.given_back(address);
        }
        self.forward_trace(Category::Other, NameId::NONE);
    }

    /// Notes that `stream` uses the tensor's block: freed, it waits for that stream's work.
    pub fn record_stream(&self, tensor: &Tensor, stream: StreamId) {
        self.0.allocator.borrow_mut().record_stream(tensor.block().address(), stream);
    }

    /// A live block turned out to be something else.
    pub fn relabel(&self, tensor: &Tensor, category: Category, name: NameId) {
        self.emit(EventKind::Relabel { address: tensor.block().address(), category, name });
    }

    /// Turns what the allocator noted since the last call into events.
    fn forward_trace(&self, category: Category, name: NameId) {
        let mut journal = self.0.journal.0.borrow_mut();
        if journal.is_empty() {
            return;
        }
        let time = self.now();
        let mut observer = self.0.observer.borrow_mut();
        for event in journal.drain(..) {
            observer.event(Event { time, kind: event_kind(event, category, name) });
        }
    }

    /// Runs a kernel on the compute stream.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn launch(&self, kernel: &Kernel<'_>) -> OpResult<()> {
        let mut reached = Ok(());
        if self.0.watch.is_some() {
            kernel.reach(|span| {
                if reached.is_ok() {
                    reached = self.check(kernel.name(), span);
                }
            });
        }
        reached?;
        Ok(self.0.device.borrow_mut().launch(kernel, StreamId::DEFAULT)?)
    }

    /// Whether all of `span` lies within a live block, where that is looked at.
    fn check(&self, operation: &'static str, span: Span) -> Result<(), DeviceError> {
        let Some(watch) = &self.0.watch else { return Ok(()) };
        watch.check(operation, &self.0.device.borrow().info().id, span)
    }

    /// The same for a copy of a tensor's first `bytes`.
    fn check_copy(&self, tensor: &Tensor, bytes: usize) -> Result<(), DeviceError> {
        self.check("a copy", Span { start: tensor.address(), bytes: Bytes(bytes as u64) })
    }

    /// Writes host bytes to a tensor's block and waits, without an event: for weights and resident batches.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn write(&self, tensor: &Tensor, bytes: &[u8]) -> OpResult<()> {
        self.check_copy(tensor, bytes.len())?;
        Ok(self.0.device.borrow_mut().copy_pageable(bytes, tensor.address(), tensor.stream())?)
    }

    /// Writes what `make` makes to a tensor's block, as [`Memory::write`] does, in pieces: `make` gets the number of a
    /// piece's first element, and its bytes. A device without bytes spends the time and makes nothing.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn fill(&self, tensor: &Tensor, mut make: impl FnMut(usize, &mut [u8])) -> OpResult<()> {
        let (size, whole) = (tensor.dtype().size(), tensor.bytes().get());
        if !self.holds_bytes() {
            let path = CopyPath { to_host: false, pinned: false };
            self.with_device(|device| device.spend_copy(path, tensor.bytes(), tensor.stream()));
            return Ok(());
        }
        let mut piece = Vec::new();
        for start in (0..whole).step_by(PIECE) {
            piece.resize((whole - start).min(PIECE as u64) as usize, 0);
            make((start / size) as usize, &mut piece);
            let address = tensor.address().offset(Bytes(start));
            self.0.device.borrow_mut().copy_pageable(&piece, address, tensor.stream())?;
        }
        Ok(())
    }

    /// Copies a pageable batch to the device and waits.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn copy_pageable(&self, tensor: &Tensor, bytes: &[u8]) -> OpResult<()> {
        let begun = self.now();
        self.write(tensor, bytes)?;
        let duration = Micros(self.now().0.saturating_sub(begun.0));
        self.emit(EventKind::Copy {
            direction: CopyDirection::ToDevice,
            bytes: Bytes(bytes.len() as u64),
            pinned: false,
            duration,
        });
        Ok(())
    }

    /// The same on a device without bytes: only the time passes.
    pub fn spend_copy_pageable(&self, tensor: &Tensor) {
        let begun = self.now();
        let path = CopyPath { to_host: false, pinned: false };
        self.with_device(|device| device.spend_copy(path, tensor.bytes(), tensor.stream()));
        let duration = Micros(self.now().0.saturating_sub(begun.0));
        let (direction, bytes) = (CopyDirection::ToDevice, tensor.bytes());
        self.emit(EventKind::Copy { direction, bytes, pinned: false, duration });
    }

    /// Starts the copy of a page-locked batch on the copy stream.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn copy_pinned(&self, tensor: &Tensor, from: HostBuffer) -> Result<(), DeviceError> {
        self.check("a copy", Span { start: tensor.address(), bytes: from.bytes })?;
        self.0.device.borrow_mut().copy_pinned(from, tensor.address(), tensor.stream())
    }

    /// Waits and reads a tensor's bytes.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn read(&self, tensor: &Tensor, to: &mut [u8]) -> OpResult<()> {
        self.check_copy(tensor, to.len())?;
        Ok(self.0.device.borrow_mut().read(tensor.address(), to, StreamId::DEFAULT)?)
    }

    /// Reads one f32.
    ///
    /// # Errors
    /// [`TrainError::Device`].
    pub fn read_f32(&self, tensor: &Tensor) -> OpResult<f32> {
        let mut bytes = [0; 4];
        self.read(tensor, &mut bytes)?;
        Ok(f32::from_le_bytes(bytes))
    }

    /// Runs `work` with the device.
    pub fn with_device<T>(&self, work: impl FnOnce(&mut dyn Device) -> T) -> T {
        work(&mut **self.0.device.borrow_mut())
    }

    /// Marks the beginning of an op of the present module.
    pub fn begin_op(&self, name: &'static str) {
        self.emit(EventKind::OpBegin { name: self.name_here(name) });
    }

    /// Marks its end and lets the observer in.
    ///
    /// # Errors
    /// [`TrainError::Stopped`].
    pub fn end_op(&self) -> OpResult<()> {
        self.emit(EventKind::OpEnd);
        self.safe_point(SafePoint::Op)
    }

    /// Marks the beginning of a phase.
    pub fn begin_phase(&self, phase: Phase) {
        self.emit(EventKind::PhaseBegin { phase });
    }

    /// Marks the end of a phase and lets the observer in.
    ///
    /// # Errors
    /// [`TrainError::Stopped`].
    pub fn end_phase(&self, phase: Phase) -> OpResult<()> {
        self.emit(EventKind::PhaseEnd { phase });
        self.safe_point(SafePoint::Phase)
    }

    /// Does what the observer asks until it says go on.
    ///
    /// # Errors
    /// [`TrainError::Stopped`].
    pub fn safe_point(&self, point: SafePoint) -> OpResult<()> {
        loop {
            let (request, held) = {
                let mut observer = self.0.observer.borrow_mut();
                (observer.safe_point(point), observer.take_held())
            };
            // A simulated clock stands still meanwhile.
            if self.holds_bytes() {
                self.0.held.set(Micros(self.0.held.get().0 + micros(held).0));
            }
            match request {
                Request::Continue => return Ok(()),
                Request::EmptyCache => self.empty_cache(),
                Request::Stop => return Err(Interrupt::Failed(TrainError::Stopped)),
            }
        }
    }

    /// Gives free segments back to the driver, because somebody asked.
    pub fn empty_cache(&self) {
        self.emit(EventKind::EmptyCache);
        self.release_cached();
    }

    /// The same as a part of making the trainer: nothing that a person did, nothing to measure.
    pub(crate) fn release_cached(&self) {
        self.0.device.borrow_mut().synchronize();
        self.0.allocator.borrow_mut().empty_cache();
        self.forward_trace(Category::Other, NameId::NONE);
    }

    /// Lets at most `limit` bytes be reserved; `None`: all that the device has.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        self.0.allocator.borrow_mut().set_limit(limit);
        self.0.device.borrow_mut().set_limit(limit);
        self.emit(EventKind::Limit { limit });
    }

    /// Applies a configuration string (`PYTORCH_ALLOC_CONF`).
    ///
    /// # Errors
    /// [`SettingsError`]: what PyTorch would refuse.
    pub fn apply_settings(&self, text: &str) -> Result<(), SettingsError> {
        self.0.allocator.borrow_mut().apply_settings(text)
    }

    /// Forgets the peaks so far.
    pub fn reset_peaks(&self) {
        self.0.allocator.borrow_mut().reset_peak_statistics();
    }

    /// The allocator's statistics.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.allocator.borrow().statistics().clone()
    }

    /// Bytes of live blocks now (`torch.cuda.memory_allocated`).
    #[must_use]
    pub fn allocated(&self) -> Bytes {
        Bytes(u64::try_from(self.0.allocator.borrow().statistics().allocated_bytes.all.current).unwrap_or(0))
    }
}

/// Whole microseconds of a duration.
pub(crate) fn micros(duration: std::time::Duration) -> Micros {
    Micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

const fn pool(kind: PoolKind) -> Pool {
    match kind {
        PoolKind::Small => Pool::Small,
        PoolKind::Large => Pool::Large,
    }
}

fn event_kind(event: TraceEvent, category: Category, name: NameId) -> EventKind {
    match event {
        TraceEvent::Alloc { address, requested, size, stream, .. } => {
            EventKind::Alloc { address, size, requested, stream, category, name }
        }
        TraceEvent::FreeRequested { address, .. } => EventKind::FreeRequested { address },
        TraceEvent::FreeCompleted { address, .. } => EventKind::FreeCompleted { address },
        TraceEvent::SegmentAlloc { address, size, stream, pool: kind } => {
            EventKind::SegmentAlloc { address, size, stream, pool: pool(kind) }
        }
        TraceEvent::SegmentFree { address, size, .. } => EventKind::SegmentFree { address, size },
        TraceEvent::SegmentMap { address, size, stream, pool: kind, range, page } => {
            EventKind::SegmentMap { address, size, stream, pool: pool(kind), range, page }
        }
        TraceEvent::SegmentUnmap { address, size, .. } => EventKind::SegmentUnmap { address, size },
        TraceEvent::Oom { device_free, rounded, .. } => EventKind::Oom { requested: rounded, device_free, name },
    }
}
